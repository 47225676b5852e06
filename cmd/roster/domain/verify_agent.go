package domain

import (
	"context"
	"crypto/x509"
	"errors"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/trust"
)

// An agentVerification compares a registration with the agent's own description at its base
// (jimenez 8.5, A.2). It is fetched by this program, not by the directory.
type agentVerification struct {
	id     string // name or rid
	origin string
	fetch  connect.FetchOptions
}

// A memberDifference is a member in which the agent's own description differs.
type memberDifference struct {
	Member     string `json:"member"`
	Registered string `json:"registered"`
	Said       string `json:"said"`
}

func (v *agentVerification) run(ctx context.Context, session *connect.Session) error {
	registration, contents, err := connect.Contents(ctx, session, v.id, v.origin)
	if err != nil {
		return err
	}

	projection, err := kinds.Reproject(contents.Agent, contents.Document)
	if err != nil {
		return err
	}

	// The rule for the agent's server is the gateway's: an SVID of the owner, or of the owner's
	// domain for the host, by the bundle that the directory holds, or web PKI.
	owner, isSPIFFE := contents.Owner.SPIFFE()
	if !isSPIFFE || !owner.MemberOf(contents.Issuer) {
		owner = spiffeid.ID{}
	}

	source, ok := probe.SourceOf(owner, contents.Document, projection)
	if !ok {
		return cli.Failed(cli.ExitFailed, "%s has no https base with a description", v.id).
			WithHint("Descriptions exist for A2A, MCP and Web of Agents at an https base; its base is %s.",
				projection.Base)
	}

	if !owner.IsZero() {
		v.fetch.Judge = judgeBy(ctx, session, owner.TrustDomain())
	}

	guard, err := v.fetch.Guard(session.Console)
	if err != nil {
		return err
	}
	defer guard.Close()

	description, err := probe.Fetch(ctx, guard, source, "")

	var differences []probe.Difference

	at := source.URL
	if err == nil {
		at = description.At
		differences, err = description.Compare(contents.Agent, contents.Document, projection, !contents.Redacted)
	}

	verdict := probe.Judge(differences, err)
	if verdict.State == directory.ProbeUnreachable {
		return v.unreachable(at, err)
	}

	return v.report(session, differences, map[string]any{
		"agent": contents.Agent, "rid": registration.RID(), "at": at, "state": verdict.State,
	})
}

// unreachable is the failure to fetch the agent's own description.
func (v *agentVerification) unreachable(at string, err error) error {
	failure := cli.Failed(cli.ExitUnavailable, "cannot fetch the description of %s from %s: %s", v.id, at,
		cli.NetworkCause(err))

	if _, ok := errors.AsType[*probe.AbsentError](err); ok {
		return cli.Failed(cli.ExitUnavailable, "%s has no description where one is looked for: %s", v.id,
			cli.FirstLine(err.Error())).
			WithHint("The agent's server must answer at one of these URLs, without credentials.")
	}

	switch gateway.RuleOf(err) {
	case gateway.RuleAddress:
		return failure.WithHint(connect.HintPublicAddress)
	case "":
		return failure.WithHint("The command fetches it from this machine, at the base that is registered. " +
			"The sample agents of roster dev have no server.")
	}

	return failure
}

// judgeBy returns a judge of SVIDs by the bundle of a domain that the directory holds. It is nil
// if the directory has no bundle; then only web PKI certifies servers.
func judgeBy(
	ctx context.Context, session *connect.Session, domain spiffeid.TrustDomain,
) func([]*x509.Certificate) (spiffeid.ID, error) {
	client, err := session.Client()
	if err != nil {
		return nil
	}

	reply, err := client.Operator().Bundle(ctx, domain.Name())
	if err != nil {
		session.Note("cannot fetch the bundle of %s: %s", domain.Name(), cli.FailureOf(err).Message)
		return nil
	}

	bundle, err := trust.ParseBundle(domain, reply.Body)
	bundles := trust.NewBundles()

	if err == nil {
		err = bundles.SetX509(domain, bundle.X509Authorities())
	}

	if err != nil {
		session.Note("cannot use the directory's bundle of %s: %s", domain.Name(), err)
		return nil
	}

	return func(chain []*x509.Certificate) (spiffeid.ID, error) { return trust.VerifyServer(chain, bundles) }
}

// report prints the differences with the other members of the JSON output, and fails if
// there are any.
func (v *agentVerification) report(session *connect.Session, differences []probe.Difference,
	output map[string]any) error {
	list := []memberDifference{}

	t := cli.Table{Head: []string{"MEMBER", "REGISTERED", "DESCRIBED"}}
	for _, d := range differences {
		list = append(list, memberDifference(d))
		t.Add(d.Member, d.Registered, d.Said)
	}

	at := output["at"]

	output["differences"] = list
	if err := session.PrintValue(output, "differences", t); err != nil {
		return err
	}

	if len(list) > 0 {
		return cli.Failed(cli.ExitFailed, "%s differs from its own description at %s", v.id, at)
	}

	session.Note("%s matches its own description at %s", v.id, at)

	return nil
}

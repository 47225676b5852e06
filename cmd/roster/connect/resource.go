package connect

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// pathPrefix begins the path of every registration.
const pathPrefix = "/ad/r/"

// RegistrationPath returns the path of a registration. Id is a name, a rid, or a path from a response.
// With a rid, origin may name the domain that registered it.
func RegistrationPath(id, origin string) string {
	switch {
	case strings.HasPrefix(id, pathPrefix):
		return id
	case origin != "":
		return pathPrefix + url.PathEscape(origin) + "/" + url.PathEscape(id)
	}

	return pathPrefix + url.PathEscape(id)
}

// Locate returns the path of a registration of a domain, or of any domain if origin is
// empty. Another domain's registration has a path by its rid only, so its name is looked
// up.
func Locate(
	ctx context.Context, client *apiclient.Client, id, origin string, read apiclient.ReadOptions,
) (string, error) {
	if _, notRID := directory.ParseRID(id); origin == "" || notRID == nil {
		return RegistrationPath(id, origin), nil
	}

	if _, err := directory.ParseName(id); err != nil {
		return "", err
	}

	found, err := client.Lookup(ctx, apiclient.LookupOptions{Agent: id, Origin: origin, ReadOptions: read})
	if err != nil {
		return "", err
	}

	if len(found.Agents) == 0 {
		return "", cli.Failed(cli.ExitNotFound, "no registration %q of %s is visible to you here", id, origin)
	}

	return found.Agents[0].Href, nil
}

// Contents returns a registration by its name or rid, and the contents of its signed
// record.
func Contents(
	ctx context.Context, session *Session, id, origin string,
) (*apiclient.Resource, *signed.Contents, error) {
	client, err := session.Client()
	if err != nil {
		return nil, nil, err
	}

	path, err := Locate(ctx, client, id, origin, apiclient.ReadOptions{})
	if err != nil {
		return nil, nil, err
	}

	found, err := client.Get(ctx, path)
	if err != nil {
		return nil, nil, ExplainAmbiguity(session, SuggestLookup(ctx, session, err, id), id)
	}

	contents, err := contract.Contents(ctx, client, found.Href)

	return found, contents, err
}

// SuggestLookup adds a lookup to the failure to find a registration: by the beginning of its name, or of all
// registrations if id is a rid. If an agent calls itself id, it adds the agent's registered name.
func SuggestLookup(ctx context.Context, session *Session, err error, id string) error {
	if _, notRID := directory.ParseRID(id); notRID == nil {
		return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("lookup"))
	}

	if failure := cli.FailureOf(err); failure.Code == cli.ExitNotFound && failure.Next == "" {
		if agent := calledSo(ctx, session, id); agent != nil {
			return failure.
				WithHint("%q is what the agent %s of %s calls itself; commands take its registered name.", id,
					agent.Agent, agent.Provenance.Authority).
				WithNext(session.CommandLine("get", agent.Agent, "--origin", agent.Provenance.Authority))
		}
	}

	return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("lookup", "--agent", prefixPattern(id)))
}

// maxSameName bounds the agents that are searched for one that calls itself by a name.
const maxSameName = 20

// calledSo returns an agent that calls itself by a name; nil if the directory finds no such agent, or
// doesn't say.
func calledSo(ctx context.Context, session *Session, name string) *apiclient.Candidate {
	client, err := session.Client()
	if err != nil {
		return nil
	}

	found, err := client.Discover(ctx, apiclient.DiscoverOptions{Query: name, Limit: maxSameName, Plain: true})
	if err != nil {
		return nil
	}

	for i := range found.Candidates {
		if candidate := &found.Candidates[i]; strings.EqualFold(candidate.Name, name) && candidate.Agent != name {
			return candidate
		}
	}

	return nil
}

// prefixPattern returns the filter for names that begin like this one.
func prefixPattern(name string) string {
	runes := []rune(name)
	return string(runes[:min(len(runes), 3)]) + "*"
}

// ExplainAmbiguity turns the response that several domains have a name into a failure that
// lists the domains. Other errors are returned as they are.
func ExplainAmbiguity(session *Session, err error, id string) error {
	var response *apiclient.Error
	if !errors.As(err, &response) || response.Status != http.StatusMultipleChoices {
		return err
	}

	var origins []string
	for _, link := range response.Header.Values("Link") {
		_, rest, _ := strings.Cut(link, "<"+pathPrefix)
		if origin, _, ok := strings.Cut(rest, "/"); ok {
			origins = append(origins, origin)
		}
	}

	failure := cli.Failed(cli.ExitConflict, "ambiguous name %q: several domains have a registration of that name", id).
		WithHint("Choose one with --origin: %s.", strings.Join(origins, ", "))
	if len(origins) > 0 {
		failure.Next = session.CommandLine("get", id, "--origin", origins[0])
	}

	return failure
}

// DescribeIgnored returns a sentence about a part of a request that has no effect, without
// its final period.
func DescribeIgnored(part apiclient.Ignored) string {
	meant := ""
	if part.Near != "" {
		meant = "; is " + part.Near + " meant?"
	}

	peer, isPeer := strings.CutPrefix(part.Name, "peers:")
	switch {
	case isPeer:
		return peer + " is no peer of the directory's domain, so it doesn't get the registration"
	case strings.HasPrefix(part.Name, "/"):
		return "the member " + part.Name + " is kept but has no effect" + meant
	}

	return "the directory doesn't know the parameter " + part.Name + meant
}

package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// A Policy decides about the requests of identities. The zero identity is an
// anonymous caller.
type Policy interface {
	Register(id directory.Identity, agent string, p *directory.Projection, v directory.Visibility) directory.Decision
	// Renew decides whether the owner of a registration may register it as it is.
	Renew(e *directory.Entry) directory.Decision
	// OnBehalf decides whether a commissioning tool may register for another owner.
	OnBehalf(tool, owner directory.Identity, agent string, p *directory.Projection,
		v directory.Visibility) directory.Decision
	Read(id directory.Identity, e *directory.Entry) directory.Decision
	// Inside tells whether id is of this domain: one of its trust domain, or of an issuer
	// that configuration calls its own.
	Inside(id directory.Identity) bool
	// Commission tells whether id may change others' registrations.
	Commission(id directory.Identity) bool
	// Version is a version of the domain's policy that the next decisions are at least
	// as new as.
	Version() uint64
}

// A Guard decides what callers of a domain's directory may see and do.
type Guard struct {
	domain spiffeid.TrustDomain
	policy Policy
	view   *index.View
}

// NewGuard returns the Guard of a domain with a policy over the registrations in view.
func NewGuard(domain spiffeid.TrustDomain, policy Policy, view *index.View) *Guard {
	return &Guard{domain: domain, policy: policy, view: view}
}

// IsOwn tells whether a registration is of this node's domain.
func (g *Guard) IsOwn(e *directory.Entry) bool { return e.Origin == g.domain }

// Commissions tells whether the caller may change others' registrations.
func (g *Guard) Commissions(c *request.Call) bool {
	return !c.Anonymous() && g.policy.Commission(c.Identity)
}

// MayWrite tells whether the caller owns a registration of this domain, or is a
// commissioning tool (AD-002).
func (g *Guard) MayWrite(c *request.Call, e *directory.Entry) bool {
	return g.IsOwn(e) && !c.Anonymous() && (e.Owner == c.Identity || g.Commissions(c))
}

// Redaction returns the parts of a registration that policy withholds from the caller; ok is
// false if the caller sees none of it. Its owner, and a caller who may change any
// registration, see all of it.
func (g *Guard) Redaction(call *request.Call, entry *directory.Entry) (redaction directory.Redaction, ok bool) {
	if g.MayWrite(call, entry) {
		return redaction, true
	}

	decision := g.policy.Read(call.Identity, entry)

	return decision.Redaction, decision.Allow
}

// MayRead tells whether the caller sees anything of a registration.
func (g *Guard) MayRead(c *request.Call, e *directory.Entry) bool {
	_, ok := g.Redaction(c, e)
	return ok
}

// Viewer shows entries as the caller sees them.
func (g *Guard) Viewer(c *request.Call) index.Viewer {
	return func(e *directory.Entry) *directory.Entry {
		if redaction, ok := g.Redaction(c, e); ok {
			return g.Mark(c, kinds.Redact(e, redaction))
		}

		return nil
	}
}

// Mark returns an entry as a reader should see it who may confuse it with an earlier one: a
// copy that says so. Another entry is returned as it is.
func (g *Guard) Mark(call *request.Call, entry *directory.Entry) *directory.Entry {
	return g.MarkFor(entry, func(other *directory.Entry) bool { return g.MayRead(call, other) })
}

// MarkFor is Mark for a reader who sees the entries for which sees returns true.
func (g *Guard) MarkFor(entry *directory.Entry, sees func(*directory.Entry) bool) *directory.Entry {
	if !g.view.IsConfusable(entry, sees) {
		return entry
	}

	marked := *entry
	marked.Confusable = true

	return &marked
}

// Question returns a ranked query among the registrations that the caller sees. While it waits for
// another service, the call's slot is free.
func (g *Guard) Question(call *request.Call, r *discovery.Request) discovery.Query {
	return discovery.Query{
		Request: r,
		Reader: discovery.Reader{
			Key:  call.Identity.String(),
			Sees: func(e *directory.Entry) (directory.Redaction, bool) { return g.Redaction(call, e) },
		},
		Outside: func(wait func()) error { return call.Slot.Outside(call.Context(), wait) },
	}
}

// Rank answers a Question by find, with spans of it and of the policy's share of it.
func (g *Guard) Rank(call *request.Call, find func(context.Context, discovery.Query) (*discovery.Result, error),
	question discovery.Query) (result *discovery.Result, err error) {
	if !call.Span.IsRecorded() {
		return find(call.Context(), question)
	}

	ctx, step := span.Start(call.Context(), span.Rank)
	policy := span.Measure(ctx, span.Policy)
	sees := question.Reader.Sees
	question.Reader.Sees = func(e *directory.Entry) (directory.Redaction, bool) {
		defer policy.Add(time.Now())
		return sees(e)
	}

	result, err = find(ctx, question)
	policy.End()

	if err == nil {
		step.Items(len(result.Candidates))
	}

	step.Done(err)

	return result, err
}

// Authorise asks policy whether a proposed registration may be made: whether its owner
// may claim its contents, and whether the caller may name another owner than itself.
func (g *Guard) Authorise(call *request.Call, proposal directory.RegisterRequest) error {
	owner := call.Identity

	var behalf []string // the policies that let the caller act for the owner

	if !proposal.Owner.IsZero() {
		owner = proposal.Owner
		if !proposal.Caller.Commissioning {
			return directory.Refuse(directory.Forbidden,
				"%s is not a commissioning tool, so it can't register for another owner. Leave out the owner",
				call.Identity)
		}

		decision := g.policy.OnBehalf(call.Identity, owner, proposal.Agent, proposal.Projection, proposal.Visibility)

		err := Require(call, decision, "%s may not register %q on behalf of %s", call.Identity, proposal.Agent, owner)
		if err != nil {
			return err
		}

		behalf = decision.Policies
	}

	claims := Claims{
		Owner: owner, Agent: proposal.Agent, Projection: proposal.Projection, Visibility: proposal.Visibility,
	}
	err := g.AuthoriseClaims(call, claims,
		"%s may not register %q with visibility %s", owner, proposal.Agent, proposal.Visibility)

	// Both decisions go into the audit log.
	call.Decided = append(behalf, call.Decided...)

	return err
}

// Claims are the contents of a registration about which policy is asked.
type Claims struct {
	Owner      directory.Identity
	Agent      string
	Projection *directory.Projection
	Visibility directory.Visibility
}

// AuthoriseClaims asks policy whether an owner may have a registration with these
// contents. A refusal names the capability that the identity may not claim, if a single
// one is at fault (jimenez 7.3); otherwise the refusal uses format and args.
func (g *Guard) AuthoriseClaims(call *request.Call, claims Claims, format string, args ...any) error {
	if err := g.CheckOwner(claims.Owner); err != nil {
		return err
	}

	decision := g.policy.Register(claims.Owner, claims.Agent, claims.Projection, claims.Visibility)

	err := Require(call, decision, format, args...)
	if err == nil {
		return nil
	}

	capability, decision := g.unclaimable(claims)
	if capability == nil {
		return err
	}

	claimed := Require(call, decision, "%s may not claim the capability %q of type %q", claims.Owner,
		capability.Name, capability.Type)
	refused := problem.Explain(claimed)
	refused.Err.Problem = directory.CapabilityNotPermitted
	refused.Members = append(refused.Members,
		strictjson.Member{Name: "capability", Value: strictjson.AppendString(nil, capability.Name)})

	return refused
}

// AuthoriseRenewal refuses to renew a registration whose owner may no longer register it.
func (g *Guard) AuthoriseRenewal(call *request.Call, entry *directory.Entry) error {
	return Require(call, g.policy.Renew(entry),
		"%s may no longer register %q with visibility %s, so it is not renewed and ends at its deadline, %s",
		entry.Owner, entry.Agent, entry.Visibility, time.UnixMilli(entry.ExpiresAt).UTC().Format(time.RFC3339))
}

// CheckOwner refuses an owner of another domain, whatever policy permits: no domain would believe this one about such
// an identity (SEC-008).
func (g *Guard) CheckOwner(owner directory.Identity) error {
	if g.policy.Inside(owner) {
		return nil
	}

	return directory.Refuse(directory.OwnerOutsideDomain,
		"%s is no identity of %s, so it can't own a registration here. Owners are of this trust domain, or of "+
			"issuers that its configuration calls its own", owner, g.domain)
}

// MayOwn tells whether id may register the contents of an entry as its own.
func (g *Guard) MayOwn(id directory.Identity, e *directory.Entry) bool {
	return g.policy.Inside(id) && g.policy.Register(id, e.Agent, e.Projection(), e.Visibility).Allow
}

// unclaimable returns the first capability that policy refuses although it permits the
// same registration without any; nil if no single one is at fault.
func (g *Guard) unclaimable(claims Claims) (*directory.Capability, directory.Decision) {
	// Without any capability, the copy shows whether capabilities are at fault at all.
	rest := *claims.Projection
	rest.Capabilities = nil
	rest.Tags = nil

	if !g.policy.Register(claims.Owner, claims.Agent, &rest, claims.Visibility).Allow {
		return nil, directory.Decision{}
	}

	capabilities := claims.Projection.Capabilities
	for i := range capabilities {
		rest.Capabilities = capabilities[i : i+1]

		decision := g.policy.Register(claims.Owner, claims.Agent, &rest, claims.Visibility)
		if !decision.Allow {
			return &capabilities[i], decision
		}
	}

	return nil, directory.Decision{}
}

// Requester is the caller, for the domain's leader, of a change that policy is asked
// about: it carries the version of the policy that decides from now on.
func (g *Guard) Requester(call *request.Call) directory.Caller {
	version := g.policy.Version()

	return directory.Caller{
		Identity:      call.Identity,
		Commissioning: g.Commissions(call),
		RequestID:     call.RequestID,
		Proof:         call.Credential.Proof,
		ProofUntil:    call.Credential.ProofUntil,
		PolicyVersion: &version,
	}
}

// Owner is Requester for a removal, or a question, that the caller may make as the registration's
// owner: policy matters only to commissioning tools.
func (g *Guard) Owner(c *request.Call) directory.Caller {
	requester := g.Requester(c)
	if !requester.Commissioning {
		requester.PolicyVersion = nil
	}

	return requester
}

// Unauthenticated refuses a request without a credential, or with an invalid one. Its
// detail is cause's, if that has one for callers, and else the sentence before it.
func (g *Guard) Unauthenticated(before string, cause error) error {
	if before != "" {
		before += " "
	}

	refused := directory.Refuse(directory.Unauthenticated,
		"%sThis request needs a verified identity: present an X.509-SVID "+
			"of %s or of a peer domain as TLS client certificate, or another credential that /.well-known/ad lists",
		before, g.domain)
	refused.Err = cause

	if explained, ok := errors.AsType[*directory.Error](cause); ok {
		refused.Detail = explained.Detail
	}

	return refused
}

// Require turns policy's decision about a call into a refusal that names the policies
// that decided; nil if it allows. format is a sentence without its period. The call
// remembers the policies for the audit log.
func Require(c *request.Call, decision directory.Decision, format string, args ...any) error {
	c.Decided = decision.Policies
	if decision.Allow {
		return nil
	}

	refused := &problem.Refusal{Err: directory.Refuse(directory.Forbidden, format, args...)}
	if len(decision.Policies) == 0 {
		refused.Err.Detail += "; no policy permits it."
		return refused
	}

	names := slices.Sorted(slices.Values(decision.Policies))
	refused.Err.Detail += "; decided by " + strings.Join(names, ", ") + "."
	refused.Members = append(refused.Members,
		strictjson.Member{Name: "policies", Value: strictjson.AppendStrings(nil, names)})

	return refused
}

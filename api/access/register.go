package access

import (
	"time"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

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

package access

import (
	"fmt"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// permits is a policy that permits every registration; identities of alpha.test are inside, and one commissions.
type permits struct {
	Policy
	commissions directory.Identity
}

func (permits) Inside(id directory.Identity) bool { return id.MemberOf(alpha) }

func (p permits) Commission(id directory.Identity) bool { return id == p.commissions }

func (permits) Version() uint64 { return 7 }

func (permits) Register(directory.Identity, string, *directory.Projection, directory.Visibility) directory.Decision {
	return directory.Decision{Allow: true, Policies: []string{"register"}}
}

func (permits) OnBehalf(_, _ directory.Identity, _ string, _ *directory.Projection,
	_ directory.Visibility) directory.Decision {
	return directory.Decision{Allow: true, Policies: []string{"behalf"}}
}

var alpha = spiffeid.RequireTrustDomainFromString("alpha.test")

// A request carries the proof by which its caller authenticated, with its end, by which it is used up. That of an
// owner depends on no policy; that of a commissioning tool is refused once another policy is in force.
//
// Requirement: TRUST-005
func TestARequestCarriesItsProofAndPolicy(t *testing.T) {
	tool := directory.IdentityOf(spiffeid.RequireFromPath(alpha, "/tool/commissioner"))
	guard := NewGuard(alpha, permits{commissions: tool}, nil)

	for identity, versioned := range map[directory.Identity]bool{tool: true, directorytest.Ada: false} {
		call := &request.Call{Identity: identity, RequestID: "r",
			Credential: request.Credential{Proof: directory.HashOf([]byte("proof")), ProofUntil: 99}}

		caller := guard.Owner(call)
		if caller.Identity != identity || caller.Commissioning != versioned || caller.RequestID != "r" ||
			caller.Proof != call.Credential.Proof || caller.ProofUntil != 99 {
			t.Errorf("%s is sent as %+v", identity, caller)
		}

		if (caller.PolicyVersion != nil) != versioned {
			t.Errorf("%s depends on the policy's version %v", identity, caller.PolicyVersion)
		}

		if requester := guard.Requester(call); requester.PolicyVersion == nil || *requester.PolicyVersion != 7 {
			t.Errorf("the requester %s depends on the policy's version %v", identity, requester.PolicyVersion)
		}
	}
}

// What policy permits to an identity of another domain makes it no owner.
//
// Requirement: SEC-008
func TestAnotherDomainsIdentityOwnsNothing(t *testing.T) {
	guard := NewGuard(alpha, permits{}, nil)
	entry := &directory.Entry{Agent: "a"}

	for path, want := range map[string]bool{
		"spiffe://alpha.test/agent/ada": true, "spiffe://beta.test/agent/ada": false,
	} {
		identity := directory.IdentityOf(spiffeid.RequireFromString(path))
		if guard.MayOwn(identity, entry) != want || (guard.CheckOwner(identity) == nil) != want {
			t.Errorf("%s may own: %v, %v", path, guard.MayOwn(identity, entry), guard.CheckOwner(identity))
		}
	}
}

// The audit log has all policies that let a commissioning tool register for an owner, not the last that was asked.
//
// Requirement: TRUST-015
func TestEachDecisionOnBehalfIsNoted(t *testing.T) {
	tool := directory.IdentityOf(spiffeid.RequireFromPath(alpha, "/tool/commissioner"))
	guard := NewGuard(alpha, permits{commissions: tool}, nil)

	for owner, want := range map[directory.Identity]string{
		directorytest.Ada: "[behalf register]", {}: "[register]",
	} {
		call := &request.Call{Identity: tool}

		err := guard.Authorise(call, directory.RegisterRequest{Caller: guard.Requester(call), Owner: owner, Agent: "a"})
		if err != nil || fmt.Sprint(call.Decided) != want {
			t.Errorf("for %s: %v, decided by %v, want %s", owner, err, call.Decided, want)
		}
	}
}

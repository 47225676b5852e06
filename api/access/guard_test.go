package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/problem"
)

// permits is a policy that permits every registration without a capability or tag that is forbidden; identities of
// alpha.test are inside, and one commissions.
type permits struct {
	Policy
	commissions directory.Identity
	forbidden   []string
	reads       func(directory.Identity, *directory.Entry) directory.Decision
}

func (permits) Inside(id directory.Identity) bool { return id.MemberOf(alpha) }

func (p permits) Commission(id directory.Identity) bool { return id == p.commissions }

func (permits) Version() uint64 { return 7 }

func (p permits) Register(_ directory.Identity, _ string, contents *directory.Projection,
	_ directory.Visibility) directory.Decision {
	if contents != nil {
		for _, capability := range contents.Capabilities {
			if slices.Contains(p.forbidden, capability.Name) {
				return directory.Decision{Policies: []string{"not " + capability.Name}}
			}
		}

		if slices.ContainsFunc(contents.Tags, func(tag string) bool { return slices.Contains(p.forbidden, tag) }) {
			return directory.Decision{}
		}
	}

	return directory.Decision{Allow: !slices.Contains(p.forbidden, "all"), Policies: []string{"register"}}
}

func (permits) Renew(*directory.Entry) directory.Decision { return directory.Decision{} }

func (p permits) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	return p.reads(id, e)
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
		claims := Claims{Owner: identity, Agent: "a", Projection: entry.Projection()}

		err := guard.AuthoriseClaims(&request.Call{Identity: identity}, claims, "refused")
		if guard.MayOwn(identity, entry) != want || (guard.CheckOwner(identity) == nil) != want ||
			(err == nil) != want {
			t.Errorf("%s may own: %v, %v", path, guard.MayOwn(identity, entry), guard.CheckOwner(identity))
		}
	}

	if NewGuard(alpha, permits{forbidden: []string{"all"}}, nil).MayOwn(directorytest.Ada, entry) {
		t.Error("an identity of this domain may own what policy forbids")
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

	// An owner is no tool, whatever policy says of tools.
	call := &request.Call{Identity: directorytest.Bob}

	err := guard.Authorise(call, directory.RegisterRequest{Caller: guard.Requester(call), Owner: directorytest.Ada})
	directorytest.WantProblem(t, err, directory.Forbidden)
}

// A refusal names the policies that decided, and the capability at fault if it is a single one.
//
// Requirement: AD-036
func TestARefusalNamesWhatIsAtFault(t *testing.T) {
	contents := &directory.Projection{
		Capabilities: []directory.Capability{{Type: "skill", Name: "talk"}, {Type: "tool", Name: "pay"}},
		Tags:         []string{"gold"},
	}

	for forbidden, want := range map[string]string{
		"pay": `capability-not-permitted: spiffe://alpha.test/agent/ada may not claim the capability "pay" of type "tool"; ` +
			`decided by not pay. [{policies ["not pay"]} {capability "pay"}]`,
		"gold": `forbidden: no; no policy permits it. []`,
		"all":  `forbidden: no; decided by register. [{policies ["register"]}]`,
	} {
		call := &request.Call{Identity: directorytest.Ada}
		claims := Claims{Owner: directorytest.Ada, Agent: "a", Projection: contents}

		err := NewGuard(alpha, permits{forbidden: []string{forbidden}}, nil).AuthoriseClaims(call, claims, "no")
		refused := problem.Explain(err)

		got := fmt.Sprintf("%s: %s %s", refused.Err.Problem, refused.Err.Detail, refused.Members)
		if got != want {
			t.Errorf("without %s: %s, want %s", forbidden, got, want)
		}
	}
}

// An entry of alpha.test is whole for its owner and for a commissioning tool alone. Others see what policy shows them,
// and an entry that looks like one hidden from its reader is not marked.
//
// Requirement: AD-002
func TestWhatACallerSees(t *testing.T) {
	tool := directory.IdentityOf(spiffeid.RequireFromPath(alpha, "/tool/commissioner"))
	view := index.NewView(alpha)
	put := func(origin spiffeid.TrustDomain, n byte, agent string) *directory.Entry {
		entry := &directory.Entry{
			Origin: origin, RID: directorytest.RID(n), Agent: agent, Owner: directorytest.Ada, Created: uint64(n),
			Document:  directorytest.Document(t, directory.KindAD, `{"base":"https://a.test","vendor":"v"}`),
			ExpiresAt: time.Now().Add(time.Hour).UnixMilli(),
		}

		view.Origin(origin).Put(entry)

		return entry
	}
	hidden, later := put(alpha, 1, "paypal"), put(alpha, 2, "p\u0430ypal")
	foreign := put(directorytest.Beta, 3, "weather")

	guard := NewGuard(alpha, permits{
		commissions: tool,
		reads: func(_ directory.Identity, e *directory.Entry) directory.Decision {
			return directory.Decision{Allow: e != hidden, Redaction: directory.Withhold("vendor")}
		},
	}, view)

	for name, x := range map[string]struct {
		caller                  directory.Identity
		entry                   *directory.Entry
		writes, shown, redacted bool
		confusable              bool
	}{
		"the owner":                  {directorytest.Ada, hidden, true, true, false, false},
		"the owner of both":          {directorytest.Ada, later, true, true, false, true},
		"a tool":                     {tool, hidden, true, true, false, false},
		"another":                    {directorytest.Bob, later, false, true, true, false},
		"another, hidden":            {directorytest.Bob, hidden, false, false, false, false},
		"anonymous":                  {directory.Identity{}, later, false, true, true, false},
		"the owner, in another mesh": {directorytest.Ada, foreign, false, true, true, false},
	} {
		call := &request.Call{Identity: x.caller}
		sees := guard.Question(call, nil).Reader.Sees
		_, asked := sees(x.entry)
		got := guard.Viewer(call)(x.entry)

		if guard.MayWrite(call, x.entry) != x.writes || guard.MayRead(call, x.entry) != x.shown || asked != x.shown ||
			(got != nil) != x.shown {
			t.Errorf("%s: writes %t, reads %t and %t, is shown %+v", name, guard.MayWrite(call, x.entry),
				guard.MayRead(call, x.entry), asked, got)
		} else if got != nil && (got.Redacted != x.redacted || got.Confusable != x.confusable) {
			t.Errorf("%s: redacted %t, confusable %t", name, got.Redacted, got.Confusable)
		}
	}

	if later.Confusable {
		t.Error("an entry that readers share is marked")
	}

	// Without an identity a caller is no owner and no tool, even of a policy that says so.
	anyone, nobody := NewGuard(alpha, permits{}, view), &request.Call{}
	if anyone.MayWrite(nobody, &directory.Entry{Origin: alpha}) || anyone.Requester(nobody).Commissioning {
		t.Error("an anonymous caller may write")
	}
}

// A refusal for want of an identity says why the credential failed if its cause is for callers, and which are accepted
// otherwise.
func TestARefusalSaysWhichIdentityIsNeeded(t *testing.T) {
	for cause, want := range map[error]string{
		errors.New("secret"): "No. This request needs a verified identity",
		directory.Refuse(directory.Unauthenticated, "the token has expired"): "the token has expired",
	} {
		err := NewGuard(alpha, permits{}, nil).Unauthenticated("No.", cause)
		directorytest.WantProblem(t, err, directory.Unauthenticated)

		if detail := problem.Explain(err).Err.Detail; !strings.HasPrefix(detail, want) || !errors.Is(err, cause) {
			t.Errorf("%v: %s", cause, detail)
		}
	}
}

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/roster-mesh/roster/directory"
)

// Policies that are kept in parts decide as they do whole, for whomever, with whatever
// can't be evaluated: a permit of that kind permits nothing, and a forbid forbids.
//
// Requirement: TRUST-012
func TestPoliciesInPartsDecideAsWhole(t *testing.T) {
	atoms := []string{
		`principal.own`, `principal.path like "/team/*"`, `principal has path`, `principal.nothing`,
		`principal.path == 1`,
		`resource.agent == "printer"`, `resource.own`, `resource.nothing`,
		`resource.owner == "spiffe://alpha.test/team/ada"`,
		`principal == Identity::"spiffe://alpha.test/team/ada"`, `Registration::"printer".own`,
		`context has operation`, `true`, `false`,
		`(if principal.own then resource.own else true)`, `["/team/ada"].contains(principal.path)`,
	}

	var text strings.Builder
	n := 0

	add := func(conditions string) {
		effect := []string{"permit", "forbid"}[n%2]
		head := []string{"principal", "principal is Identity",
			`principal == Identity::"spiffe://alpha.test/team/ada"`,
			`principal in Identity::"spiffe://alpha.test/team/ada"`,
			`principal is Identity in Identity::"spiffe://alpha.test/team/ada"`}[n/2%5]
		fmt.Fprintf(&text, "@id(\"p%d\") %s (%s, action == Action::\"register\", resource) %s;\n", n, effect, head,
			conditions)
		n++
	}
	for i, a := range atoms {
		for j, b := range atoms {
			add([]string{
				fmt.Sprintf("when { %s && %s }", a, b), fmt.Sprintf("when { %s || %s }", a, b),
				fmt.Sprintf("unless { %s || %s }", a, b), fmt.Sprintf("unless { %s && %s }", a, b),
				fmt.Sprintf("when { %s } unless { %s }", a, b),
				fmt.Sprintf("when { !(%s) && (%s || %s) && %s }", a, b, a, b),
			}[(i+j)%6])
		}
	}

	whole := strings.SplitAfter(text.String(), ";\n")
	for _, one := range append(whole[:len(whole)-1:len(whole)-1], text.String()) {
		p, err := parsePolicy("test.cedar", []byte(one), alpha, mesh)
		must(t, err)
		list, err := cedar.NewPolicyListFromBytes("test.cedar", []byte(one))
		must(t, err)

		set := cedar.NewPolicySet()
		for _, policy := range list {
			set.Add(cedar.PolicyID(policy.Annotations()["id"]), policy)
		}

		for _, who := range []string{"", "spiffe://alpha.test/team/ada", "spiffe://alpha.test/agent/bob",
			"spiffe://beta.test/team/ada", "oauth:https://login.test#ada"} {
			for _, agent := range []string{"printer", "scanner"} {
				id := identity(t, who)
				got := p.Register(id, agent, &directory.Projection{}, mesh)

				allow, by := engines(p, set, id, agent)
				if slices.Sort(got.Policies); got.Allow != allow || !slices.Equal(got.Policies, by) {
					t.Fatalf("%q registers %s: %v by %v, want %v by %v\n%.300s", who, agent, got.Allow, got.Policies,
						allow, by, one)
				}
			}
		}
	}
}

// engines is what the engine itself decides, of policies as they are written.
func engines(p *Policy, set *cedar.PolicySet, id directory.Identity, agent string) (allow bool, by []string) {
	r := registration{agent: agent, owner: id.String(), origin: alpha.Name(), visibility: mesh.String(), own: true}
	who, what := p.identity(id).entity(), r.entity(looksAtWhole, &directory.Projection{})

	decision, why := cedar.Authorize(set, &pair{who, what}, cedar.Request{
		Principal: who.UID, Action: types.NewEntityUID("Action", askRegister), Resource: what.UID,
	})

	var failed []string
	for _, err := range why.Errors {
		if set.Get(err.PolicyID).Effect() == cedar.Forbid {
			failed = append(failed, string(err.PolicyID))
		}
	}

	if decision == cedar.Deny || len(failed) == 0 {
		for _, reason := range why.Reasons {
			by = append(by, string(reason.PolicyID))
		}
	}

	by = append(by, failed...)
	slices.Sort(by)

	return decision == cedar.Allow && len(failed) == 0, by
}

// What is kept for each principal is bounded.
func TestViewsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "@id(\"p%d\") permit (principal, action == Action::\"register\", resource) when { "+
			"resource.agent == \"a%d\" };\n", i, i)
	}

	p, err := Parse("many.cedar", []byte(text.String()), alpha)
	must(t, err)

	for i := range maxViewed/1000 + 10 {
		p.Register(identity(t, fmt.Sprintf("spiffe://alpha.test/agent/%d", i)), "printer", &directory.Projection{},
			mesh)
	}

	q, policies := p.current.Load(), 0
	for _, v := range q.views {
		policies += 1 + v.policies.len()
	}

	if policies > maxViewed || policies != q.viewed || len(q.views) == 0 {
		t.Errorf("%d policies, counted as %d, are in %d views", policies, q.viewed, len(q.views))
	}
}

// A view leaves out the policies that are about other principals, wherever they say so, and is made once.
func TestViewsLeaveOutOthers(t *testing.T) {
	for _, policy := range []string{
		`permit (principal is Peer, action, resource)`,
		`permit (principal == Identity::"spiffe://alpha.test/agent/bob", action, resource)`,
		`permit (principal, action, resource) when { principal.path == "/agent/bob" }`,
		`permit (principal, action, resource) when { resource.own && principal.path like "/agent/b*" && resource.own }`,
		`permit (principal, action, resource) unless { resource.own || principal.own }`,
		`permit (principal, action, resource) when { resource.own } when { !principal.own }`,
		`forbid (principal, action, resource) when { !principal.own && resource.own }`,
	} {
		p, err := parsePolicy("test.cedar", []byte(`@id("a") `+policy+";"), alpha, mesh)
		must(t, err)

		for _, who := range []string{"spiffe://alpha.test/agent/ada", ""} {
			q, id, want := p.current.Load(), p.identity(identity(t, who)), 0
			if who == "" && strings.HasPrefix(policy, "forbid") {
				want = 1 // without the attribute it fails, and so forbids
			}

			v := q.view(askRegister, id.uid, id.entity)
			if v.policies.len() != want || q.view(askRegister, id.uid, nil) != v {
				t.Errorf("%s: in the view of %q", policy, who)
			}
		}
	}
}

package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// manyPolicies is the shipped set and more: n policies, about one in five of which
// can answer each question.
func manyPolicies(n int) []byte {
	var b strings.Builder
	b.Write(shippedText)

	for i := strings.Count(b.String(), "@id("); i < n; i++ {
		action := []string{"register", "read", "invoke", "export", "operate"}[i%5]
		fmt.Fprintf(&b, "\n@id(\"p%d\") permit (principal is Identity, action == Action::%q, resource) when { "+
			"principal.path == \"/team-%d/lead\" };", i, action, i)
	}

	return []byte(b.String())
}

// A policy in the place of another answers the very next question, with nothing
// that was remembered; without a text it is what is built in again, and what can't
// be read permits nothing.
//
// Requirement: TRUST-003, TRUST-012, TRUST-013
func TestPolicyIsReplaced(t *testing.T) {
	p := mustPolicy(t, "shipped")

	ada, e := identity(t, "spiffe://alpha.test/agent/ada"), entryOf(t, alpha, mesh)
	if !p.Read(ada, e).Allow || p.Version() != 0 {
		t.Fatal("the shipped set does not let the domain read")
	}

	must(t, p.Set([]byte(`@id("closed") forbid (principal, action, resource);`), 7))

	if d := p.Read(ada, e); d.Allow || len(d.Policies) != 1 || d.Policies[0] != "closed" || p.Version() != 7 {
		t.Errorf("after the change: %+v, version %d", d, p.Version())
	}

	must(t, p.Set(nil, 9))

	if !p.Read(ada, e).Allow || p.Version() != 9 {
		t.Error("what is built in is not in force again")
	}

	if err := p.Set([]byte("permit"), 11); err == nil || p.Read(ada, e).Allow || p.Version() != 11 {
		t.Errorf("with what can't be read: %v, and it permits", err)
	}
}

// Requirement: TRUST-013
func TestPolicyMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"@id(\"a\")\npermit (principal, action, resource);\n" +
			"permit (principal, action, resource);": "my.cedar:3: a policy needs an @id",
		"@id(\"a\") permit (principal, action == Action::\"fly\", resource);": `my.cedar:1:` +
			` there is no action Action::"fly"`,
		"@id(\"a\") permit (principal, action, resource);\n" +
			"@id(\"b\") permit (principal, action, resource) when { 1 + };": "my.cedar:2",
	} {
		if err := Check("my.cedar", []byte(text)); directory.ProblemOf(err) != directory.BadRequest ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}

	if err := Check("my.cedar", make([]byte, MaxSize+1)); directory.ProblemOf(err) != directory.TooLarge {
		t.Errorf("too large a text: %v", err)
	}
}

// Requirement: TRUST-012, TRUST-013
func TestAThousandCases(t *testing.T) {
	p, err := Parse("many.cedar", manyPolicies(100), alpha)
	must(t, err)
	cases := []Case{
		{Who: "", Action: "read", What: "a", Expect: "deny"},
		{Who: "spiffe://alpha.test/agent/ada", Action: "read", What: "a", Expect: "allow",
			By: []string{"domain-reads"}},
		{Who: "spiffe://alpha.test/agent/ada", Action: "register", What: "a", Visibility: "mesh",
			Capabilities: []string{"print"}, Expect: "allow", By: []string{"domain-registers"}},
		{Who: "spiffe://alpha.test/agent/ada", Action: "operate", What: "policy.write", Expect: "deny", By: []string{}},
		{Who: "spiffe://alpha.test/ops/ann", Action: "operate", What: "policy.write", Expect: "allow"},
		{Who: "beta.test", Action: "export", What: "a", Expect: "deny", By: []string{"visibility-bounds-export"}},
		{Who: "spiffe://alpha.test/agent/ada", Action: "invoke", What: "a", Owner: "spiffe://alpha.test/agent/bob",
			Expect: "allow"},
		{Who: "spiffe://alpha.test/agent/ada", Action: "commission", Expect: "deny"},
	}
	began := time.Now()

	for i := range 1000 {
		if err := p.Check(cases[i%len(cases)]); err != nil {
			t.Fatalf("case %d: %v", i%len(cases), err)
		}
	}

	t.Logf("1,000 cases took %s", time.Since(began))

	for _, wrong := range []Case{
		{Who: "spiffe://alpha.test/agent/ada", Action: "read", Expect: "deny"},
		{Who: "spiffe://alpha.test/agent/ada", Action: "read", Expect: "allow", By: []string{"another"}},
		{Who: "spiffe://alpha.test/agent/ada", Action: "read"},
		{Who: "ada", Action: "read", Expect: "allow"},
		{Who: "spiffe://alpha.test/agent/ada", Action: "fly", Expect: "allow"},
	} {
		if p.Check(wrong) == nil {
			t.Errorf("%+v passes", wrong)
		}
	}
}

// A policy is tested for the exports that it is to keep, and for what a peer's identities
// read of them.
//
// Requirement: TRUST-013
func TestCasesAssumeAnExport(t *testing.T) {
	p, err := Parse("some.cedar", append([]byte(`
		@id("secrets-stay") forbid (principal == Peer::"beta.test", action == Action::"export", resource)
		when { resource.agent like "secret-*" };
	`), shippedText...), alpha)
	must(t, err)

	const eve = "spiffe://beta.test/agent/eve"

	yes, no := true, false
	read := func(c Case) Case {
		c.Who, c.Action, c.Visibility = eve, "read", "mesh"
		return c
	}

	for i, c := range []Case{
		{Who: "beta.test", Action: "export", What: "a", Visibility: "mesh", Expect: "deny", By: []string{}},
		{Who: "beta.test", Action: "export", What: "a", Visibility: "mesh", Exported: true, Expect: "allow",
			By: []string{"operator-exports"}},
		{Who: "beta.test", Action: "export", What: "secret-a", Visibility: "mesh", Exported: true, Expect: "deny",
			By: []string{"secrets-stay"}},
		read(Case{What: "a", Expect: "deny"}),
		read(Case{What: "a", Exported: true, Expect: "allow", By: []string{"peer-reads-its-streams"}}),
		read(Case{What: "a", Exported: true, Streamed: &no, Expect: "deny"}),
		read(Case{What: "a", Origin: "gamma.test", Exported: true, Streamed: &no, Expect: "deny"}),
		{Who: "spiffe://alpha.test/agent/ada", Action: "read", Streamed: &no, Expect: "allow",
			By: []string{"domain-reads"}},
		{Who: eve, Action: "invoke", What: "a", Visibility: "mesh", Exported: true, Expect: "deny"},
		read(Case{What: "secret-a", Exported: true, Expect: "deny"}),
		read(Case{What: "secret-a", Streamed: &yes, Expect: "allow", By: []string{"peer-reads-its-streams"}}),
	} {
		if err := p.Check(c); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
	}

	for want, c := range map[string]Case{
		"exported: is for export": {Who: eve, Action: "register", Exported: true, Expect: "deny"},
		"streamed: is for read":   {Who: "beta.test", Action: "export", Streamed: &yes, Expect: "deny"},
		"SPIFFE IDs of peers": {Who: "spiffe://alpha.test/agent/ada", Action: "read", Streamed: &yes,
			Expect: "allow"},
		`got "oauth:https://issuer.test#ada"`: {Who: "oauth:https://issuer.test#ada", Action: "read", Streamed: &yes,
			Expect: "allow"},
		"leave out origin": {Who: eve, Action: "read", Origin: "gamma.test", Streamed: &yes, Expect: "allow"},
	} {
		if err := p.Check(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, not %q", c, err, want)
		}
	}
}

// Policies without @members are evaluated once: a second evaluation, of what they withhold, nearly doubles the cost.
func TestADecisionWithoutMembersIsOneEvaluation(t *testing.T) {
	p, ada := mustPolicy(t, "shipped"), identity(t, "spiffe://alpha.test/agent/ada")

	allocs := testing.AllocsPerRun(100, func() { p.Register(ada, "printer", &directory.Projection{}, mesh) })
	if allocs > 24 {
		t.Errorf("%v allocations a decision, over 24", allocs)
	}
}

// A decision at 100 policies that is not remembered (the bar: 10 µs), and one that is.
func BenchmarkDecision(b *testing.B) {
	p, err := Parse("many.cedar", manyPolicies(100), alpha)
	must(b, err)
	ada, e := identity(b, "spiffe://alpha.test/agent/ada"), entryOf(b, alpha, mesh)
	b.Run("decided", func(b *testing.B) {
		for b.Loop() {
			p.Register(ada, "printer", &directory.Projection{}, mesh)
		}
	})
	b.Run("renewed", func(b *testing.B) {
		for b.Loop() {
			p.Renew(e)
		}
	})
	b.Run("remembered", func(b *testing.B) {
		for b.Loop() {
			p.Read(ada, e)
		}
	})
}

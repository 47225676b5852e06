package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
)

// What the shipped policy exports: nothing until the operator says so, and then
// what visibility lets the peer have.
func TestShippedExportsWhatTheOperatorLets(t *testing.T) {
	p := mustPolicy(t, "shipped")
	beta, gamma := spiffeid.RequireTrustDomainFromString("beta.test"),
		spiffeid.RequireTrustDomainFromString("gamma.test")
	exported := false
	p.Exports(func(peer spiffeid.TrustDomain) bool { return exported && peer == beta })
	ask := func(peer spiffeid.TrustDomain, v directory.Visibility) bool {
		return p.Export(peer, "agent", directory.Identity{}, v, nil).Allow
	}

	mesh := directory.Visibility{Mesh: true}
	if ask(beta, mesh) {
		t.Error("exported before the operator said so")
	}

	exported = true

	if !ask(beta, mesh) || ask(gamma, mesh) || ask(beta, directory.Visibility{}) {
		t.Errorf("beta %v, gamma %v, what is for the domain %v", ask(beta, mesh), ask(gamma, mesh),
			ask(beta, directory.Visibility{}))
	}
}

func identity(t testing.TB, s string) directory.Identity {
	t.Helper()

	if s == "" {
		return directory.Identity{}
	}

	id, err := directory.ParseIdentity(s)
	must(t, err)

	return id
}

func entryOf(t testing.TB, origin spiffeid.TrustDomain, v directory.Visibility) *directory.Entry {
	return &directory.Entry{Origin: origin, Agent: "printer", Visibility: v,
		Owner:  identity(t, "spiffe://"+origin.Name()+"/agent/ada"),
		Packed: directory.Pack(directory.Document{}, &directory.Projection{})}
}

func mustPolicy(t testing.TB, name string) *Policy {
	t.Helper()

	p, err := New(name, alpha)
	must(t, err)

	return p
}

var mesh = directory.Visibility{Mesh: true}

// Requirement: TRUST-012
// notes/users.md: "audit/auditor may read nothing by the shipped policy".
func TestPolicySets(t *testing.T) {
	const (
		register = 1 << iota
		readOwn  // of the domain, mesh-visible
		readForeign
		invoke
		operate // raft.transfer
		look    // raft.read
		commission
	)

	rows := []struct {
		id                   string
		shipped, development int
	}{
		{"", 0, readOwn | readForeign},
		{"spiffe://alpha.test/agent/ada", register | readOwn | readForeign | invoke,
			register | readOwn | readForeign | invoke},
		{"spiffe://alpha.test/tool/commissioner", register | readOwn | readForeign | invoke,
			register | readOwn | readForeign | invoke | look | commission},
		{"spiffe://alpha.test/client/reader", register | readOwn | readForeign | invoke,
			readOwn | readForeign | invoke},
		{"spiffe://alpha.test/ops/operator", register | readOwn | readForeign | invoke | operate | look,
			readOwn | readForeign | invoke | operate | look},
		{"spiffe://alpha.test/audit/auditor", readOwn | readForeign | invoke | look,
			readOwn | readForeign | invoke | look},
		{"spiffe://beta.test/audit/auditor", 0, readOwn | readForeign | invoke},
		{"spiffe://beta.test/agent/eve", 0, readOwn | readForeign | invoke},
		{"spiffe://beta.test/ops/operator", 0, readOwn | readForeign | invoke},
		{"spiffe://beta.test/tool/commissioner", 0, readOwn | readForeign | invoke},
		{"wimse://alpha.test/agent/ada", 0, readOwn | readForeign | invoke},
		{"wimse://alpha.test/ops/operator", 0, readOwn | readForeign | invoke},
		{"oauth:https://issuer.test#ada", 0, readOwn | readForeign | invoke},
		{"spiffe://alpha.test/opsx/operator", register | readOwn | readForeign | invoke,
			readOwn | readForeign | invoke},
	}
	for _, name := range []string{"shipped", "development"} {
		p := mustPolicy(t, name)
		for _, row := range rows {
			id := identity(t, row.id)

			got := 0
			for bit, allow := range map[int]bool{
				register:    p.Register(id, "printer", &directory.Projection{}, directory.Visibility{}).Allow,
				readOwn:     p.Read(id, entryOf(t, alpha, mesh)).Allow,
				readForeign: p.Read(id, entryOf(t, gamma, directory.Visibility{})).Allow,
				invoke:      p.Invoke(id, entryOf(t, alpha, mesh)).Allow,
				operate:     p.Operate(id, "raft.transfer").Allow,
				look:        p.Operate(id, "raft.read").Allow,
				commission:  p.Commission(id),
			} {
				if allow {
					got |= bit
				}
			}

			want := row.shipped
			if name == "development" {
				want = row.development
			}

			if got != want {
				t.Errorf("%s: %q may %07b, want %07b", name, row.id, got, want)
			}
		}
	}
}

// Requirement: TRUST-012
func TestPolicyExport(t *testing.T) {
	onlyBeta := directory.Visibility{Peers: []spiffeid.TrustDomain{beta}}

	rows := []struct {
		set   string
		v     directory.Visibility
		peer  spiffeid.TrustDomain
		allow bool
		why   string
	}{
		{"shipped", mesh, beta, false, ""},
		{"shipped", directory.Visibility{}, beta, false, "visibility-bounds-export"},
		{"development", mesh, beta, true, "dev-exports-all"},
		{"development", directory.Visibility{}, beta, false, "visibility-bounds-export"},
		{"development", onlyBeta, beta, true, "dev-exports-all"},
		{"development", onlyBeta, gamma, false, "visibility-bounds-export"},
	}
	for _, row := range rows {
		d := mustPolicy(t, row.set).Export(row.peer, "printer", directory.Identity{}, row.v, nil)

		var want []string
		if row.why != "" {
			want = []string{row.why}
		}

		if d.Allow != row.allow || !slices.Equal(d.Policies, want) {
			t.Errorf("%s, %s to %s: %+v, want %v by %v", row.set, row.v, row.peer, d, row.allow, want)
		}
	}

	if v := mustPolicy(t, "shipped").DefaultVisibility(); v.Mesh || v.Peers != nil {
		t.Errorf("shipped: the default visibility is %s", v)
	}

	if v := mustPolicy(t, "development").DefaultVisibility(); !v.Mesh {
		t.Errorf("development: the default visibility is %s", v)
	}
}

// The questions against no policy, a permit, and a permit with a forbid.
//
// Requirement: TRUST-012
func TestPolicyDenyByDefaultForbidWins(t *testing.T) {
	const (
		permit = `@id("let") permit (principal, action, resource);`
		forbid = `@id("stop") forbid (principal, action, resource);`
		every  = `Action::"register", Action::"read", Action::"invoke", Action::"export", Action::"operate",` +
			` Action::"commission", `
	)
	for _, set := range []struct {
		text  string
		allow bool
		why   []string
	}{
		{"", false, nil},
		{permit, true, []string{"let"}},
		{`@id("let") permit (principal, action in [` + every + every + `Action::"read"], resource);`, true,
			[]string{"let"}},
		{permit + forbid, false, []string{"stop"}},
		{forbid, false, []string{"stop"}},
		{`@id("errs") permit (principal, action, resource) when { resource.nothing };`, false, nil},
	} {
		p, err := parsePolicy("test.cedar", []byte(set.text), alpha, directory.Visibility{})
		must(t, err)

		ada := identity(t, "spiffe://alpha.test/agent/ada")
		for question, d := range map[string]directory.Decision{
			"register": p.Register(ada, "printer", nil, mesh),
			"read":     p.Read(ada, entryOf(t, alpha, mesh)),
			"invoke":   p.Invoke(ada, entryOf(t, alpha, mesh)),
			"export":   p.Export(beta, "printer", ada, mesh, nil),
			"operate":  p.Operate(ada, "raft.read"),
		} {
			if d.Allow != set.allow || !slices.Equal(d.Policies, set.why) {
				t.Errorf("%q: %s: %+v, want %v by %v", set.text, question, d, set.allow, set.why)
			}
		}

		if p.Commission(ada) != set.allow {
			t.Errorf("%q: commission is not %v", set.text, set.allow)
		}
	}
}

// A peer's identity sees what its domain's streams hold, and no more.
//
// Requirement: TRUST-012
func TestPolicyPeerReadsItsStreams(t *testing.T) {
	text := append(slices.Clone(shippedText), `
		@id("exports-to-most")
		permit (principal, action == Action::"export", resource) unless { principal == Peer::"gamma.test" };`...)

	p, err := parsePolicy("test.cedar", text, alpha, directory.Visibility{})
	must(t, err)

	bob, eve := identity(t, "spiffe://beta.test/agent/bob"), identity(t, "spiffe://gamma.test/agent/eve")
	streams := []string{"peer-reads-its-streams"}

	for _, row := range []struct {
		id directory.Identity
		e  *directory.Entry
		by []string
	}{
		{bob, entryOf(t, alpha, mesh), streams},
		{bob, entryOf(t, alpha, directory.Visibility{Peers: []spiffeid.TrustDomain{beta}}), streams},
		{bob, entryOf(t, alpha, directory.Visibility{}), nil},
		{bob, entryOf(t, alpha, directory.Visibility{Peers: []spiffeid.TrustDomain{gamma}}), nil},
		{bob, entryOf(t, gamma, mesh), nil},
		{eve, entryOf(t, alpha, mesh), nil},
		{identity(t, "oauth:https://issuer.test#bob"), entryOf(t, alpha, mesh), nil},
		{identity(t, "spiffe://alpha.test/agent/ada"), entryOf(t, alpha, mesh), []string{"domain-reads"}},
	} {
		if d := p.Read(row.id, row.e); d.Allow != (row.by != nil) || !slices.Equal(d.Policies, row.by) {
			t.Errorf("%s reads one of %s with visibility %s: %+v", row.id, row.e.Origin, row.e.Visibility, d)
		}
	}
}

// Answers that are kept are not given for what a policy would tell apart.
func TestPolicyRemembersWhatItLooksAt(t *testing.T) {
	ada := identity(t, "spiffe://alpha.test/agent/ada")
	agent := func(e *directory.Entry) { e.Agent = "scanner" }
	origin := func(e *directory.Entry) { e.Origin = gamma }

	for _, row := range []struct {
		condition string
		change    func(*directory.Entry)
	}{
		{`resource.agent == "printer"`, agent},
		{`resource == Registration::"printer"`, agent},
		{`[resource].contains(Registration::"printer")`, agent},
		{`Registration::"printer" has agent`, agent},
		{`{"it": resource}.it.agent == "printer"`, agent},
		{`resource.owner == "spiffe://alpha.test/agent/ada"`,
			func(e *directory.Entry) { e.Owner = identity(t, "spiffe://alpha.test/agent/bob") }},
		{`resource.origin == "alpha.test"`, origin},
		{`resource.own`, origin},
		{`resource.visibility == "mesh"`, func(e *directory.Entry) { e.Visibility = directory.Visibility{} }},
	} {
		p, err := parsePolicy("test.cedar",
			[]byte(`@id("a") permit (principal, action, resource) when { `+row.condition+` };`), alpha, mesh)
		must(t, err)

		match, other := entryOf(t, alpha, mesh), entryOf(t, alpha, mesh)
		row.change(other)

		for question, allow := range map[string]func(*directory.Entry) bool{
			askRead: func(e *directory.Entry) bool { return p.Read(ada, e).Allow },
			"renew": func(e *directory.Entry) bool { return p.Renew(e).Allow },
			askExport: func(e *directory.Entry) bool {
				return p.Export(beta, e.Agent, e.Owner, e.Visibility, nil).Allow
			},
		} {
			for range 2 {
				// A domain renews and exports its own registrations alone.
				if !allow(match) || (question == askRead || other.Origin == alpha) && allow(other) {
					t.Errorf("%s: %s does not tell them apart", row.condition, question)
				}
			}
		}
	}

	p := mustPolicy(t, "shipped")

	for i := range maxKnown + 10 {
		p.Read(identity(t, fmt.Sprintf("spiffe://alpha.test/agent/%d", i)), entryOf(t, alpha, mesh))
	}

	if n := len(p.current.Load().known); n > maxKnown {
		t.Errorf("%d answers are kept", n)
	}
}

// Policies look into the contents of a registration.
func TestPolicyLooksIntoContents(t *testing.T) {
	for attribute, with := range map[string]Case{
		"capabilities": {Capabilities: []string{"print"}},
		"types":        {Types: []string{"print"}},
		"tags":         {Tags: []string{"print"}},
		"protocols":    {Protocols: []string{"print"}},
	} {
		p, err := Parse("test.cedar", []byte(`@id("a") permit (principal, action in [Action::"register", `+
			`Action::"export"], resource) when { resource.`+attribute+`.contains("print") };`), alpha)
		must(t, err)

		export := func(proj *directory.Projection) bool {
			return p.Export(beta, "a", directory.Identity{}, mesh, proj).Allow
		}
		if !export(with.projection()) || export(nil) {
			t.Errorf("%s: exports are not told apart", attribute)
		}

		with.Action, with.Expect = askRegister, "allow"
		for _, c := range []Case{with, {Action: askRegister, Expect: "deny"}} {
			if err := p.Check(c); err != nil {
				t.Errorf("%s: %+v: %v", attribute, c, err)
			}
		}
	}
}

// An anonymous caller has no attributes, not even false ones; an identity that was adopted is the
// domain's own.
//
// Requirement: TRUST-012
func TestPrincipalsHaveAttributes(t *testing.T) {
	shipped := mustPolicy(t, "shipped")
	shipped.Adopt([]string{"oauth:https://issuer.test#"})

	for _, row := range []struct {
		who           string
		inside        bool
		own, stranger bool // what conditions permit
	}{
		{"", false, false, false},
		{"spiffe://alpha.test/agent/ada", true, true, false},
		{"spiffe://beta.test/agent/ada", false, false, true},
		{"oauth:https://issuer.test#ada", true, true, false},
		{"oauth:https://other.test#ada", false, false, true},
	} {
		id := identity(t, row.who)
		if shipped.Inside(id) != row.inside {
			t.Errorf("%q: inside is not %v", row.who, row.inside)
		}

		for condition, want := range map[string]bool{"when { principal.own }": row.own,
			"unless { principal.own }": row.stranger} {
			p, err := shipped.With("test.cedar", []byte(`@id("a") permit (principal, action, resource) `+condition+";"))
			must(t, err)

			if d := p.Read(id, entryOf(t, alpha, mesh)); d.Allow != want {
				t.Errorf("%q, %s: %+v", row.who, condition, d)
			}
		}
	}
}

// An operator is shown the domains that a new policy names, to find misspelt ones.
func TestPolicyNamesDomains(t *testing.T) {
	p := mustPolicy(t, "shipped")
	must(t, p.Set([]byte(`
		@id("a") permit (principal == Peer::"f.test", action == Action::"export", resource);
		@id("b") permit (principal == Identity::"spiffe://b.test/agent/eve", action == Action::"read", resource);
		@id("c") permit (principal is Identity, action == Action::"read", resource) when { principal.domain == "c.test" };
		@id("d") permit (principal, action == Action::"read", resource) unless { "d.test" != resource.origin };
		@id("e") permit (principal is Identity, action == Action::"read", resource) when {
			["e.test", "a.test", "alpha.test"].contains(principal.domain) && resource.agent == "agent.test" };`), 1))

	if got, want := p.Domains(), []string{"a.test", "b.test", "c.test", "d.test", "e.test", "f.test"}; !slices.Equal(
		got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	if err := p.Set([]byte("permit"), 2); err == nil || p.Domains() != nil {
		t.Errorf("of a text that can't be read: %v, %q", err, p.Domains())
	}
}

func TestPolicyText(t *testing.T) {
	for _, text := range []string{
		`permit (principal, action, resource);`,
		`@id("a") permit (principal, action, resource); @id("a") forbid (principal, action, resource);`,
		`@id("a") permit (principal, action == Action::"raed", resource);`,
		`@id("a") permit (principal, action == Verb::"read", resource);`,
		`@id("a") permit (principal, action`,
	} {
		if _, err := parsePolicy("test.cedar", []byte(text), alpha, directory.Visibility{}); err == nil {
			t.Errorf("%s: taken", text)
		}
	}

	if _, err := New("none", alpha); err == nil {
		t.Error("an unknown set is taken")
	}
}

// Whoever sees one registration of a class, by policy or as its owner, sees all of it, and what is of
// two classes differs in what the sets look at.
func TestClassDecidesReading(t *testing.T) {
	var entries []*directory.Entry
	for _, v := range []directory.Visibility{{}, {Mesh: true}, {Peers: []spiffeid.TrustDomain{beta}}} {
		for i, origin := range []spiffeid.TrustDomain{alpha, alpha, alpha, beta, beta} {
			e := entryOf(t, origin, v)
			e.RID, e.Agent = directory.NewRID(int64(len(entries)), [10]byte{}), fmt.Sprintf("printer-%d", i)

			switch i {
			case 1:
				e.Packed = directory.Pack(e.Document, &directory.Projection{Tags: []string{"large"}})
			case 2, 4:
				e.Owner = identity(t, "spiffe://"+origin.Name()+"/agent/bob")
			}

			entries = append(entries, e)
		}
	}

	const streams = `@id("streams") permit (principal, action == Action::"read", resource) when { resource.streamed };`

	for _, row := range []struct {
		text    string
		classes int
	}{
		{string(shippedText), 7},
		{string(developmentText), 3},
		{`@id("a") permit (principal, action, resource) when { resource.visibility == "mesh" };`, 9},
		{`@id("a") permit (principal, action, resource) when { resource.agent like "*-3" };`, 5},
		{`@id("a") permit (principal, action, resource) when { resource.owner like "*/bob" };`, 4},
		{streams + `@id("a") permit (principal, action == Action::"export", resource) when { resource.agent like "*-1" };`,
			10},
		{streams + `@id("a") permit (principal, action == Action::"export", resource)
			when { resource.visible && resource.tags.contains("large") };`, 10},
	} {
		p, err := parsePolicy("test.cedar", []byte(row.text), alpha, directory.Visibility{})
		must(t, err)

		first := map[string]*directory.Entry{}
		for _, e := range entries {
			class := p.Class(e)
			if first[class] == nil {
				first[class] = e
			}

			for _, who := range []string{"", "spiffe://alpha.test/agent/bob", "spiffe://beta.test/agent/eve",
				"spiffe://gamma.test/agent/eve"} {
				id := identity(t, who)
				sees := func(e *directory.Entry) bool { return e.Owner == id || p.Read(id, e).Allow }

				if sees(e) != sees(first[class]) {
					t.Errorf("%.200s: %q sees one of %q and not the other of class %q", row.text, who, e.Agent, class)
				}
			}
		}

		if len(first) != row.classes {
			t.Errorf("%.200s: there are %d classes, want %d", row.text, len(first), row.classes)
		}
	}
}

// Permits with members let these be seen together, and forbids with members take
// theirs away; all of them are named.
//
// Requirement: TRUST-012, AD-035
func TestPolicyNamesMembers(t *testing.T) {
	const (
		some = `@id("some") @members("description, tags") permit (principal, action == Action::"read", resource);`
		more = `@id("more") @members("vendor") permit (principal is Identity, action == Action::"read",` +
			` resource) when { principal.own };`
		all = `@id("all") permit (principal, action == Action::"read",` +
			` resource) when { resource.agent == "printer" };`
		less = `@id("less") @members("tags, provenance.registrant") forbid (principal,` +
			` action in [Action::"read", Action::"export"],` +
			` resource) unless { principal is Identity && principal.own };`
		sent  = `@id("sent") @members("tags") permit (principal, action == Action::"export", resource);`
		never = `@id("never") forbid (principal, action == Action::"read", resource);`
	)

	ada, bob := identity(t, "spiffe://alpha.test/agent/ada"), identity(t, "spiffe://beta.test/agent/bob")
	for _, row := range []struct {
		text  string
		id    directory.Identity
		sight directory.Redaction
		by    []string
	}{
		{some, bob, directory.ShowOnly("description", "tags"), []string{"some"}},
		{some + more, ada, directory.ShowOnly("description", "tags", "vendor"), []string{"more", "some"}},
		{some + more, bob, directory.ShowOnly("description", "tags"), []string{"some"}},
		{some + all, bob, directory.Redaction{}, []string{"all", "some"}},
		{some + less, bob, directory.ShowOnly("description"), []string{"less", "some"}},
		{all + less, bob, directory.Withhold("tags", directory.MemberRegistrant), []string{"all", "less"}},
		{all + less, ada, directory.Redaction{}, []string{"all"}},
		{all + sent, bob, directory.Redaction{}, []string{"all"}},
	} {
		p, err := Parse("test.cedar", []byte(row.text), alpha)
		must(t, err)

		for range 2 {
			d := p.Read(row.id, entryOf(t, alpha, mesh))
			if slices.Sort(d.Policies); !d.Allow || d.Redaction != row.sight || !slices.Equal(d.Policies, row.by) {
				t.Errorf("%s: %s sees %+v, want %+v by %v", row.text, row.id, d, row.sight, row.by)
			}
		}
	}

	p, err := Parse("test.cedar", []byte(all+less+never), alpha)
	must(t, err)

	if d := p.Read(bob, entryOf(t, alpha, mesh)); d.Allow || !slices.Equal(d.Policies, []string{"never"}) {
		t.Errorf("a forbid of the whole: %+v", d)
	}

	// A peer's identity sees no more than its domain is told.
	p, err = Parse("test.cedar", append(slices.Clone(shippedText), `
		@id("beta") @members("description") permit (principal == Peer::"beta.test", action == Action::"export", `+
		`resource);`...), alpha)
	must(t, err)

	if d := p.Read(bob, entryOf(t, alpha, mesh)); !d.Allow || d.Redaction != directory.ShowOnly("description") {
		t.Errorf("a peer's identity sees %+v", d)
	}

	for _, wrong := range []string{
		`@id("a") @members("x") permit (principal, action, resource);`,
		`@id("a") @members("x,") permit (principal, action == Action::"read", resource);`,
		`@id("a") @members("x") forbid (principal, action == Action::"operate", resource);`,
	} {
		if _, err := Parse("test.cedar", []byte(wrong), alpha); err == nil {
			t.Errorf("%s: taken", wrong)
		}
	}
}

// What answers depend on beside the policy is not remembered beyond Reconsider, and
// who waits for other answers is told.
func TestPolicyIsReconsidered(t *testing.T) {
	p := mustPolicy(t, "shipped")
	must(t, p.Set(shippedText, 7))

	exported := false
	p.Exports(func(spiffeid.TrustDomain) bool { return exported })
	bob, e := identity(t, "spiffe://beta.test/agent/bob"), entryOf(t, alpha, mesh)

	generation, changed := p.Generation(), p.Changed()
	if p.Read(bob, e).Allow {
		t.Fatal("a peer's identity sees what is not exported")
	}

	exported = true
	p.Reconsider()

	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}

	if p.Generation() == generation || !p.Read(bob, e).Allow || p.Version() != 7 {
		t.Errorf("generation %d, version %d", p.Generation(), p.Version())
	}

	// A proposed text is judged by the same exports.
	if next, err := p.With("next.cedar", shippedText); err != nil || !next.Read(bob, e).Allow {
		t.Errorf("by a proposed text a peer's identity doesn't see what is exported: %v", err)
	}
}

// A policy with an attribute that does not exist, or that its question doesn't know, is refused before
// it is in force: a permit of that kind would permit nothing, and a forbid would forbid everything.
//
// Requirement: TRUST-012
func TestUnknownAttributesAreRefused(t *testing.T) {
	for _, row := range []struct{ policy, want string }{
		{`forbid (principal, action == Action::"read", resource) when { resource.name == "x" }`,
			"test.cedar:1: there is no resource.name: use one of agent, capabilities, "},
		{`permit (principal, action == Action::"read", resource) when { resource.name == "x" }`,
			"there is no resource.name"},
		{`@members("tags") forbid (principal, action == Action::"read", resource) unless { resource has name }`,
			"there is no resource.name"},
		{`forbid (principal is Identity, action == Action::"invoke", resource) when { principal.paht like "/x" }`,
			"there is no principal.paht: use one of own, domain, path"},
		{`forbid (principal, action == Action::"operate", resource) when { context.op == "x" }`,
			"there is no context.op: use one of operation"},
		{`forbid (principal, action == Action::"read", resource) when { resource.tags.contains("x") }`,
			"resource.tags is not known of the action read: name one of register, export, on-behalf-of in"},
		{`@members("tags") forbid (principal, action == Action::"read", resource) when { resource.tags.contains("x") }`,
			"resource.tags is not known of the action read"},
		{`forbid (principal, action, resource) when { resource.types.contains("x") }`, "is not known of the action"},
		{`permit (principal, action == Action::"read", resource) when { resource.tags.contains("x") }`,
			"resource.tags is not known of the action read"},
		{`forbid (principal, action == Action::"read", resource) unless { resource.exported }`,
			"resource.exported is not known of the action read: name one of export in"},
		{`forbid (principal, action == Action::"operate", resource) when { resource.agent == "x" }`,
			"resource.agent is not known of the action operate"},
		{`forbid (principal, action, resource) when { context.operation == "x" }`,
			"context.operation is not known of the action register: name one of operate in"},
		{`forbid (principal, action == Action::"read", resource) unless { principal.own }`,
			"anonymous callers and peers have no principal.own"},

		{`forbid (principal, action == Action::"register", resource) when { resource.tags.contains("x") }`, ""},
		{`forbid (principal, action == Action::"export", resource) when { resource.tags.contains("x") }`, ""},
		{`forbid (principal, action == Action::"on-behalf-of", resource) when { resource.tags.contains("x") }`, ""},
		{`permit (principal, action, resource) when { resource.agent == "x" }`, ""},
		{`forbid (principal, action, resource) when { resource has agent && resource.agent == "x" }`, ""},
		{`forbid (principal, action, resource is Registration) when { resource.agent == "x" }`, ""},
		{`forbid (principal, action, resource) when { resource is Registration && resource.agent == "x" }`, ""},
		{`forbid (principal, action == Action::"read", resource) unless { principal is Identity && principal.own }`, ""},
		{`forbid (principal is Identity, action == Action::"read", resource) unless { principal.own }`, ""},
		{`forbid (principal, action == Action::"read", resource)
			when { principal == Identity::"spiffe://alpha.test/agent/ada" && principal.own }`, ""},
		{`forbid (principal, action == Action::"read", resource)
			when { principal in Identity::"spiffe://alpha.test/agent/ada" && principal.own }`, ""},
		{`permit (principal, action == Action::"read", resource) when { principal.own }`, ""},
	} {
		_, err := Parse("test.cedar", []byte(`@id("a") `+row.policy+";"), alpha)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) ||
			err != nil && directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("%s: %v, want %q", row.policy, err, row.want)
		}
	}

	for name, text := range map[string][]byte{"shipped": shippedText, "development": developmentText} {
		must(t, Check(name, text))
	}
}

// A forbid that can't be evaluated forbids, and one with members withholds them, whatever it is asked;
// it is reported. Cedar would skip it.
//
// Requirement: TRUST-012
func TestAForbidThatFailsForbids(t *testing.T) {
	const permits = `@id("all") permit (principal, action, resource);`

	ada := identity(t, "spiffe://alpha.test/agent/ada")
	for _, condition := range []string{
		`resource.nothing`, `resource.agent.contains("x")`, `principal.nothing == "x"`, `!(context.nothing)`,
		`principal.own && resource.nothing`, `resource.nothing && false`, `principal.nothing && false`,
		`9223372036854775807 + 1 == 2`,
	} {
		for _, conditions := range []string{"when { " + condition + " }", "unless { " + condition + " }"} {
			p, err := parsePolicy("test.cedar", []byte(permits+`@id("fails") forbid (principal, action, resource) `+
				conditions+";"), alpha, mesh)
			must(t, err)

			var failed []string
			p.Failing(func(policy, action, reason string) { failed = append(failed, policy+" "+action) })

			for action, decision := range map[string]directory.Decision{
				askRegister: p.Register(ada, "printer", nil, mesh),
				askOnBehalf: p.OnBehalf(ada, ada, "printer", nil, mesh),
				askRead:     p.Read(ada, entryOf(t, alpha, mesh)),
				askInvoke:   p.Invoke(ada, entryOf(t, alpha, mesh)),
				askOperate:  p.Operate(ada, "raft.read"),
			} {
				if decision.Allow || !slices.Equal(decision.Policies, []string{"fails"}) ||
					!slices.Contains(failed, "fails "+action) {
					t.Errorf("%s: %s is %+v, reported %q", conditions, action, decision, failed)
				}
			}

			if p.Commission(ada) {
				t.Errorf("%s: a tool may commission", conditions)
			}
		}
	}

	p, err := parsePolicy("test.cedar", []byte(permits+`@id("fails") @members("tags, vendor") `+
		`forbid (principal, action in [Action::"read", Action::"export"], resource) when { resource.nothing };`+
		`@id("stops") @members("url") forbid (principal, action == Action::"read", resource);`), alpha, mesh)
	must(t, err)

	reported := 0
	p.Failing(func(string, string, string) { reported++ })

	p.Read(ada, entryOf(t, alpha, mesh))

	decision := p.Read(ada, entryOf(t, alpha, mesh)) // remembered, and so reported once
	if slices.Sort(decision.Policies); !decision.Allow || reported != 1 ||
		decision.Redaction != directory.Withhold("tags", "url", "vendor") ||
		!slices.Equal(decision.Policies, []string{"all", "fails", "stops"}) {
		t.Errorf("a withholding forbid that fails: %+v, reported %d times", decision, reported)
	}

	if sent := p.Export(beta, "printer", ada, mesh, nil); sent.Redaction != directory.Withhold("tags", "vendor") {
		t.Errorf("a withholding forbid that fails, to a peer: %+v", sent)
	}
}

// A forbid of exports is about the domain's own registrations.
//
// Requirement: TRUST-012
func TestAnExportKnowsItsOrigin(t *testing.T) {
	for _, condition := range []string{`resource.own`, `resource.origin == "alpha.test"`} {
		p, err := Parse("test.cedar", []byte(`@id("all") permit (principal, action, resource);
			@id("own") forbid (principal, action == Action::"export", resource) when { `+condition+` };`), alpha)
		must(t, err)

		if d := p.Export(beta, "printer", identity(t, "spiffe://alpha.test/agent/ada"), mesh, nil); d.Allow {
			t.Errorf("%s: %+v", condition, d)
		}
	}
}

// A text that is no policy is refused with the place, the word that is missing and the word that is
// there. notes/users.md: "parser error: parse error at bad.cedar:2:1".
func TestMistakesInAPolicyAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"permit(principal":                        `test.cedar:1:17: expected ",", got the end of the text`,
		"permit(\nprincipal; action, resource);":  `test.cedar:2:12: expected ",", got ";"`,
		"allow(principal, action, resource);":     `test.cedar:1:6: unexpected effect: allow, before "("`,
		"permit(principal, action, resource) yes": `test.cedar:1:40: expected `,
	} {
		err := Check("test.cedar", []byte(text))
		if directory.ProblemOf(err) != directory.BadRequest || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "parse error") || strings.Contains(err.Error(), "exact got") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A renewal is decided as the registration that it renews, also where policies look into the
// document; and it is decided once for a policy in force.
//
// Requirement: AD-070
func TestARenewalIsDecidedAsARegistration(t *testing.T) {
	p := mustPolicy(t, "shipped")
	e := entryOf(t, alpha, mesh)
	e.Owner = identity(t, "spiffe://alpha.test/agent/eve")

	if d := p.Renew(e); !d.Allow {
		t.Fatalf("the shipped policy: %+v", d)
	}

	blocked := string(shippedText) + `
		@id("revoked") forbid (principal == Identity::"spiffe://alpha.test/agent/eve", action, resource);`
	must(t, p.Set([]byte(blocked), 7))

	if d := p.Renew(e); d.Allow || len(d.Policies) != 1 || d.Policies[0] != "revoked" {
		t.Errorf("a blocked owner: %+v", d)
	}

	must(t, p.Set([]byte(string(shippedText)+`
		@id("payments") forbid (principal, action == Action::"register", resource)
		when { resource.tags.contains("payment") };`), 8))

	for _, row := range []struct {
		rid       byte
		statement uint64
		tag       string
		want      bool
	}{{1, 1, "payment", false}, {1, 2, "other", true}, {2, 1, "other", true}} {
		e := *e
		e.RID, e.Statement = directory.NewRID(1, [10]byte{row.rid}), row.statement
		e.Packed = directory.Pack(e.Document, &directory.Projection{Name: e.Agent, Tags: []string{row.tag}})

		for range 2 { // decided, and remembered
			if got := p.Renew(&e).Allow; got != row.want {
				t.Errorf("%+v: %v", row, got)
			}
		}
	}
}

var must = directorytest.Must

package node

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/trust/policy"
)

// Under the policy that is shipped nothing is in the mesh's stream, and least of
// all before there is a peer: the first one could read it before policy has been
// asked about it.
func TestNothingIsGrantedToAMeshThatIsNotThereYet(t *testing.T) {
	alpha, beta := spiffeid.RequireTrustDomainFromString("alpha.test"),
		spiffeid.RequireTrustDomainFromString("beta.test")
	ada := directory.IdentityOf(spiffeid.RequireFromPath(alpha, "/agent/ada"))

	peer := func(state directory.PeeringState, mesh bool) directory.Peering {
		return directory.Peering{Domain: beta, State: state, Mesh: mesh}
	}
	for _, c := range []struct {
		policy   string
		mesh     bool // visibility
		peerings []directory.Peering
		want     int
	}{
		{"shipped", true, nil, 0},
		{"shipped", true, []directory.Peering{peer(directory.PeeringActive, true)}, 0},
		{"shipped", true, []directory.Peering{peer(directory.PeeringTerminated, true)}, 0},
		{"shipped", true, []directory.Peering{peer(directory.PeeringActive, false)}, 0},
		{"development", true, nil, 1},
		{"development", true, []directory.Peering{peer(directory.PeeringActive, true)}, 1},
		{"development", false, nil, 0},
	} {
		decider, err := policy.New(c.policy, alpha)
		must(t, err)

		s := consensus.Subject{Agent: "helper", Owner: ada, Projection: &directory.Projection{},
			Visibility: directory.Visibility{Mesh: c.mesh}}
		if got := grants(decider, c.peerings, s); len(got) != c.want {
			t.Errorf("%s with %v and visibility %v: %v", c.policy, c.peerings, s.Visibility, got)
		}
	}
}

// What all peers may have goes to the mesh; what one of them may not have goes to
// each of the others alone, and what is for named peers to them.
//
// Requirement: MESH-025
func TestWhatDiffersByPeerIsGrantedToEach(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString
	alpha, beta, gamma, delta := td("alpha.test"), td("beta.test"), td("gamma.test"), td("delta.test")
	peerings := []directory.Peering{
		{Domain: beta, State: directory.PeeringActive, Mesh: true},
		{Domain: delta, State: directory.PeeringActive}, // nothing is exported to it
		{Domain: gamma, State: directory.PeeringActive, Mesh: true},
	}

	const allowed = `@id("some") permit (principal, action == Action::"export",` +
		` resource) when { resource.visible && !(principal == Peer::"gamma.test" && resource.agent like "secret*") };`

	decider, err := policy.Parse("test.cedar", []byte(allowed), alpha)
	must(t, err)

	for _, c := range []struct {
		agent string
		v     directory.Visibility
		want  []directory.Audience
	}{
		{"open", directory.Visibility{Mesh: true}, []directory.Audience{directory.Mesh}},
		{"secret", directory.Visibility{Mesh: true}, []directory.Audience{directory.Only(beta)}},
		{"open", directory.Visibility{Peers: []spiffeid.TrustDomain{gamma}},
			[]directory.Audience{directory.Only(gamma)}},
		{"open", directory.Visibility{Peers: []spiffeid.TrustDomain{beta, gamma}},
			[]directory.Audience{directory.Only(beta), directory.Only(gamma)}},
		{"secret", directory.Visibility{Peers: []spiffeid.TrustDomain{gamma}}, nil},
		{"open", directory.Visibility{Peers: []spiffeid.TrustDomain{delta}}, nil},
		{"open", directory.Visibility{}, nil},
	} {
		s := consensus.Subject{Agent: c.agent, Projection: &directory.Projection{}, Visibility: c.v}

		var got []directory.Audience
		for _, g := range grants(decider, peerings, s) {
			got = append(got, g.Audience)
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("%s for %s: %v and not %v", c.agent, c.v, got, c.want)
		}
	}
}

// Whom a registration is sent to, and by which rule it is withheld from others, is told as it
// is decided.
//
// Requirement: MESH-025
func TestTheAudienceIsTold(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString
	peerings := []directory.Peering{
		{Domain: td("beta.test"), State: directory.PeeringActive, Mesh: true},
		{Domain: td("delta.test"), State: directory.PeeringActive}, // nothing is exported to it
		{Domain: td("eps.test"), State: directory.PeeringPending, Mesh: true},
		{Domain: td("gamma.test"), State: directory.PeeringActive, Mesh: true},
		{Domain: td("gone.test"), State: directory.PeeringTerminated},
		{Domain: td("rule.test"), State: directory.PeeringActive, Mesh: true,
			Export: directory.PeerRules{Names: []string{"only-*"}}},
	}
	decider := parsedPolicy(t, `@id("some") permit (principal, action == Action::"export", resource);
		@id("secrets") forbid (principal == Peer::"gamma.test", action == Action::"export", resource);
		@id("thin") @members("description") forbid (principal, action == Action::"export", resource);
		@id("bounds") forbid (principal, action == Action::"export", resource) unless { resource.visible };`)

	const inactive, notExported, ruled = "eps.test inactive []", "delta.test not-exported []", "rule.test rules []"

	for _, c := range []struct {
		visibility  directory.Visibility
		unconfirmed bool
		want        []string
	}{
		{directory.Visibility{Mesh: true}, false, []string{
			"beta.test sent [some thin] without [description]", notExported, inactive,
			"gamma.test policy [secrets]", ruled,
		}},
		{directory.Visibility{Peers: []spiffeid.TrustDomain{td("gamma.test")}}, false, []string{
			"beta.test visibility [bounds]", notExported, inactive, "gamma.test policy [secrets]", ruled,
		}},
		{directory.Visibility{}, false, []string{
			"beta.test visibility []", notExported, inactive, "gamma.test visibility []", "rule.test visibility []",
		}},
		{directory.Visibility{Mesh: true}, true, []string{
			"beta.test unconfirmed []", notExported, inactive, "gamma.test policy [secrets]", ruled,
		}},
	} {
		entry := exportedEntry(t, "open", c.visibility)
		entry.Unconfirmed = c.unconfirmed

		var got []string
		for _, r := range audience(decider, peerings, entry) {
			line := r.Domain + " " + r.Reason + fmt.Sprintf(" %v", r.Policies)
			if r.Sent {
				line = fmt.Sprintf("%s sent %v without %v", r.Domain, r.Policies, r.Withheld)
			}

			got = append(got, line)
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("visibility %q:\n%q, want\n%q", c.visibility, got, c.want)
		}
	}
}

// Before a policy is applied, it is told what it withdraws from which peer, and which domain it
// names that is none.
//
// Requirement: TRUST-013
func TestAPolicyIsPreviewed(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString
	peerings := []directory.Peering{
		{Domain: td("beta.test"), State: directory.PeeringActive, Mesh: true},
		{Domain: td("gamma.test"), State: directory.PeeringActive, Mesh: true},
	}
	own := index.NewView(td("alpha.test")).Own()

	for i := range 30 {
		entry := exportedEntry(t, fmt.Sprintf("secret-%02d", i), directory.Visibility{Mesh: true})
		entry.RID = directory.NewRID(1, [10]byte{byte(i + 1)})
		own.Put(entry)
	}

	hidden := exportedEntry(t, "secret-home", directory.Visibility{})
	hidden.RID = directory.NewRID(1, [10]byte{100})
	own.Put(hidden)

	const all = `@id("all") permit (principal, action == Action::"export", resource) when { resource.visible };`

	now := parsedPolicy(t, all)
	next := parsedPolicy(t, all+`
		@id("stay") forbid (principal == Peer::"beta.test", action == Action::"export", resource)
		when { resource.agent like "secret-*" };
		@id("typo") forbid (principal == Peer::"gama.test", action == Action::"export", resource);
		@id("thin") @members("description") forbid (principal == Peer::"gamma.test", action == Action::"export",
			resource) when { resource.agent == "secret-07" };
		@id("other") forbid (principal is Identity, action == Action::"read", resource)
		when { resource.origin == "elsewhere.test" || ["beta.test", "far.test"].contains(principal.domain) };`)

	changes, err := compareAll(t.Context(), own, peerings, now, next)
	if err != nil || len(changes) != 2 {
		t.Fatalf("%+v, %v", changes, err)
	}

	beta, gamma := changes[0], changes[1]
	if beta.Domain != "beta.test" || beta.Withdrawn.Total != 30 || len(beta.Withdrawn.Agents) != maxPreviewed ||
		beta.Redacted.Total != 0 || beta.Added.Total != 0 {
		t.Errorf("beta.test: %+v", beta)
	}

	if gamma.Withdrawn.Total != 0 || !slices.Equal(gamma.Redacted.Agents, []string{"secret-07"}) {
		t.Errorf("gamma.test: %+v", gamma)
	}

	back, err := compareAll(t.Context(), own, peerings, next, now)
	if err != nil || len(back) != 1 || back[0].Added.Total != 30 {
		t.Errorf("back: %+v, %v", back, err)
	}

	want := []wire.UnknownDomain{{Domain: "elsewhere.test"}, {Domain: "far.test"}, {Domain: "gama.test",
		Near: "gamma.test"}}
	if got := unknownDomains(next.Domains(), peerings); !slices.Equal(got, want) {
		t.Errorf("unknown: %+v, want %+v", got, want)
	}
}

// parsedPolicy is a policy of alpha.test.
func parsedPolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()

	parsed, err := policy.Parse("test.cedar", []byte(text), spiffeid.RequireTrustDomainFromString("alpha.test"))
	must(t, err)

	return parsed
}

// exportedEntry is a registration of alpha.test.
func exportedEntry(t *testing.T, agent string, visibility directory.Visibility) *directory.Entry {
	t.Helper()

	document, err := directory.ParseDocument(directory.KindAD,
		[]byte(`{"base": "https://x.example", "protocols": ["https"], "description": "an agent"}`))
	must(t, err)

	domain := spiffeid.RequireTrustDomainFromString("alpha.test")

	return &directory.Entry{
		Agent: agent, Origin: domain, Owner: directory.IdentityOf(spiffeid.RequireFromPath(domain, "/agent/ada")),
		Visibility: visibility, Document: document,
		Packed:    directory.Pack(document, &directory.Projection{Name: agent}),
		ExpiresAt: math.MaxInt64, Revision: 1, Statement: 1,
	}
}

// A forbid that can't be evaluated is counted each time, and logged by its name once a minute.
func TestFailingForbidsAreReported(t *testing.T) {
	var lines strings.Builder

	failed := 0

	p, err := policy.New("shipped", spiffeid.RequireTrustDomainFromString("alpha.test"))
	must(t, err)

	p.Failing(reportForbids(func() { failed++ }, slog.New(slog.NewTextHandler(&lines, nil))))

	if err := p.Set([]byte(`@id("all") permit (principal, action, resource);
		@id("misspelt") forbid (principal, action == Action::"operate", resource) when { context.op == "x" };`),
		7); err != nil {
		t.Fatal(err)
	}

	for range 3 {
		if p.Operate(directory.Identity{}, "raft.read").Allow {
			t.Error("a forbid that fails forbids nothing")
		}
	}

	if failed != 3 || strings.Count(lines.String(), "policy=misspelt action=operate") != 1 {
		t.Errorf("%d failures were counted; the log is\n%s", failed, &lines)
	}
}

// A proposal that another member brings is decided as a request to this node is.
//
// Requirement: SEC-008
func TestProposalsOfMembersAreDecided(t *testing.T) {
	decider, err := policy.Parse("test.cedar", []byte(`
		@id("all") permit (principal, action == Action::"register", resource);
		@id("reserved") forbid (principal, action == Action::"register", resource)
		when { resource.agent == "reserved" };
		@id("tool") permit (principal == Identity::"spiffe://alpha.test/tool/t", action == Action::"on-behalf-of",
		resource);`), spiffeid.RequireTrustDomainFromString("alpha.test"))
	if err != nil {
		t.Fatal(err)
	}

	const ada, tool, eve = "alpha.test/agent/ada", "alpha.test/tool/t", "beta.test/agent/eve"

	for _, row := range []struct {
		caller, owner, agent string
		want                 directory.Problem
	}{
		{ada, ada, "one", ""},
		{ada, ada, "reserved", directory.Forbidden},
		{eve, eve, "one", directory.OwnerOutsideDomain},
		{tool, ada, "one", ""},
		{tool, ada, "reserved", directory.Forbidden},
		{tool, eve, "one", directory.OwnerOutsideDomain},
		{ada, tool, "one", directory.Forbidden},
	} {
		err := permitter(decider)(consensus.Proposal{
			Caller: directory.IdentityOf(spiffeid.RequireFromString("spiffe://" + row.caller)),
			Owner:  directory.IdentityOf(spiffeid.RequireFromString("spiffe://" + row.owner)),
			Agent:  row.agent, Projection: &directory.Projection{},
		})
		if (err == nil) != (row.want == "") || err != nil && directory.ProblemOf(err) != row.want {
			t.Errorf("%+v: %v", row, err)
		}
	}
}

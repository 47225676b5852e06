package node

import (
	"slices"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
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
		if err != nil {
			t.Fatal(err)
		}

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
	if err != nil {
		t.Fatal(err)
	}

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

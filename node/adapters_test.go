package node

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// Under the policy that is shipped nothing is in the mesh's stream, and least of
// all before there is a peer: the first one could read it before policy has been
// asked about it.
//
// Requirement: MESH-014
func TestNothingIsGrantedToAMeshThatIsNotThereYet(t *testing.T) {
	alpha, beta := spiffeid.RequireTrustDomainFromString("alpha.test"), spiffeid.RequireTrustDomainFromString("beta.test")
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
		policy, err := trust.NewPolicy(c.policy, alpha)
		if err != nil {
			t.Fatal(err)
		}
		s := consensus.Subject{Agent: "helper", Owner: ada, Projection: &directory.Projection{}, Visibility: directory.Visibility{Mesh: c.mesh}}
		if got := grants(policy, c.peerings, s); len(got) != c.want {
			t.Errorf("%s with %v and visibility %v: %v", c.policy, c.peerings, s.Visibility, got)
		}
	}
}

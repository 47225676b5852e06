package node

import (
	"testing"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation"
)

// The end of a peering closes the connections to the peer, which is not shown as its failure.
func TestAnEndedPeeringHasNoFailure(t *testing.T) {
	for state, want := range map[directory.PeeringState]string{
		directory.PeeringActive: "connection closed", directory.PeeringTerminated: "",
	} {
		var peer wire.Peer
		addReceived(&peer, directory.Peering{State: state}, federation.PeerStatus{LastError: "connection closed"})

		if peer.LastError != want {
			t.Errorf("%s: %q, want %q", state, peer.LastError, want)
		}
	}
}

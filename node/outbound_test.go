package node

import (
	"net/netip"
	"testing"

	"github.com/roster-mesh/roster/consensus"
)

// A listener on all addresses answers at each address of loopback.
//
// Requirement: SEC-009
func TestEveryLoopbackAddressIsOwn(t *testing.T) {
	guard := &outbound{listeners: []string{"10.0.0.1:8400", "127.0.0.1:8400"},
		members: func() []consensus.RaftPeer { return nil }}

	for text, want := range map[string]bool{"127.0.0.1:8400": true, "127.8.9.10:8400": true, "[::1]:8400": true,
		"127.8.9.10:8401": false, "10.0.0.1:8400": true, "10.0.0.2:8400": false} {
		if got := guard.isOwn(netip.MustParseAddrPort(text)); got != want {
			t.Errorf("%s is own: %v", text, got)
		}
	}
}

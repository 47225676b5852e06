package node

import (
	"strings"
	"testing"
)

// No address that a peer or a member names is dialled that is a machine's metadata service, or embeds
// another address (finding 39).
//
// Requirement: SEC-009
func TestAddressesOfNodesAreJudged(t *testing.T) {
	network := Network{}.orTCP()

	for address, want := range map[string]string{
		"169.254.169.254:80": "metadata", "[64:ff9b::a9fe:a9fe]:80": "NAT64", "224.0.0.1:7946": "one machine",
	} {
		conn, err := network.Dial(t.Context(), address)
		if err == nil {
			_ = conn.Close()
		}

		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

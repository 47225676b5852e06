package node

import (
	"net"
	"net/netip"
	"slices"
	"strings"
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

// A listener counts at each address at which it can be reached: one that is bound to all
// counts at each of the machine's, loopback among them. Advertised addresses count, names
// don't, and what is off isn't there.
//
// Requirement: SEC-009
func TestOwnListeners(t *testing.T) {
	one, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()

	every, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer every.Close()

	got := ownListeners([]net.Listener{one, nil, every}, "10.9.8.7:8402", "node-1.alpha.test:8402", "")
	_, port, _ := net.SplitHostPort(every.Addr().String())

	for _, want := range []string{one.Addr().String(), "127.0.0.1:" + port, "10.9.8.7:8402"} {
		if !slices.Contains(got, want) {
			t.Errorf("%v lacks %s", got, want)
		}
	}

	for _, at := range got {
		if strings.HasPrefix(at, "[::]") || strings.HasPrefix(at, "0.0.0.0") || strings.Contains(at, "node-1") ||
			strings.Contains(at, "%") {
			t.Errorf("%s is no address of a connection", at)
		}
	}

	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("not in ascending order: %v", got)
	}
}

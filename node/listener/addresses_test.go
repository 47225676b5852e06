package listener

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

// A listener counts at each address at which it can be reached: one that is bound to all
// counts at each of the machine's, loopback among them. Advertised addresses count, names
// don't, and what is off isn't there.
//
// Requirement: SEC-009
func TestAddressesOfListeners(t *testing.T) {
	one, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer one.Close()

	every, err := net.Listen("tcp", ":0")
	must(t, err)
	defer every.Close()

	got := Addresses(64, []net.Listener{one, nil, every}, "10.9.8.7:8402", "node-1.alpha.test:8402", "")
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

// Of the machine's addresses, those count that a connection can name without a zone.
func TestAddressesWithoutAZone(t *testing.T) {
	var interfaces []net.Addr
	for _, text := range []string{"192.0.2.1/24", "169.254.1.1/16", "2001:db8::1/64", "fe80::1/64"} {
		ip, network, err := net.ParseCIDR(text)
		must(t, err)

		interfaces = append(interfaces, &net.IPNet{IP: ip, Mask: network.Mask})
	}

	got := fmt.Sprint(onEveryAddress(append(interfaces, &net.UnixAddr{Name: "none"}), 8401))
	if want := "[192.0.2.1:8401 169.254.1.1:8401 [2001:db8::1]:8401]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

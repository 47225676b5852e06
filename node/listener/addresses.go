package listener

import (
	"net"
	"net/netip"
	"slices"
)

// Addresses returns the addresses at which a node listens, at most that many, as
// ADDRESS:PORT in ascending order: of each listener, and those advertised to other nodes as
// literal addresses. One that is bound to all addresses counts at each of the machine's. The
// domain's gateways never connect to them (threats.md, S6). An advertised host name isn't resolved: it may lead to a
// proxy that agents share, and no gateway accepts a node as a server.
func Addresses(most int, bound []net.Listener, advertised ...string) []string {
	var all []netip.AddrPort

	for _, listener := range bound {
		if listener == nil {
			continue
		}

		at, err := netip.ParseAddrPort(listener.Addr().String())
		if err != nil {
			continue // of a network in memory
		}

		if at.Addr().IsUnspecified() {
			interfaces, _ := net.InterfaceAddrs() // an error leaves none
			all = append(all, onEveryAddress(interfaces, at.Port())...)
		} else {
			all = append(all, at)
		}
	}

	for _, address := range advertised {
		if at, err := netip.ParseAddrPort(address); err == nil {
			all = append(all, at)
		}
	}

	var texts []string
	for _, at := range all {
		texts = append(texts, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String())
	}

	// Gateways search the list of each member by bisection.
	slices.Sort(texts)
	texts = slices.Compact(texts)

	return texts[:min(len(texts), most)]
}

// linkLocal are the addresses that name no machine without a zone.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// onEveryAddress returns a port at each of the machine's addresses that a connection without
// a zone can name.
func onEveryAddress(interfaces []net.Addr, port uint16) (all []netip.AddrPort) {
	for _, each := range interfaces {
		network, err := netip.ParsePrefix(each.String())
		if err != nil || linkLocal.Contains(network.Addr()) {
			continue
		}

		all = append(all, netip.AddrPortFrom(network.Addr(), port))
	}

	return all
}

package gateway

import (
	"net/netip"
	"slices"
)

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, t := range texts {
		ps = append(ps, netip.MustParsePrefix(t))
	}

	return ps
}

var (
	// never are addresses that no allow-list opens: unspecified, multicast and broadcast
	// addresses, and the metadata services at which a cloud discloses a machine's
	// credentials.
	never = prefixes("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8",
		"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "100.100.100.200/32", "192.0.0.192/32",
		"168.63.129.16/32",
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128")
	// private are addresses that do not name the same machine on the whole Internet: the
	// registries of RFC 6890 as of 2025. IPv6 addresses outside publicV6 are private
	// too.
	private = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "3fff::/20")
	publicV6  = netip.MustParsePrefix("2000::/3")
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// reachable is whether the guard lets a connection be made to an address; allow
// are the private ones that it may be made to. An IPv6 address that stands for an
// IPv4 one is judged as that.
func reachable(addr netip.Addr, allow []netip.Prefix) bool {
	if addr.Zone() != "" {
		return false
	}

	addr = addr.Unmap()

	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case !addr.IsValid() || slices.ContainsFunc(never, in):
		return false
	case slices.ContainsFunc(allow, in):
		return true
	}

	if v4, ok := within(addr); ok {
		return reachable(v4, allow)
	}

	return !slices.ContainsFunc(private, in) && (addr.Is4() || publicV6.Contains(addr))
}

// within returns the IPv4 address that an IPv6 one leads to: through NAT64 (RFC
// 6052), 6to4 (RFC 3056) or ISATAP (RFC 5214). Teredo's are not public at all.
func within(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}

	b := addr.As16()
	switch {
	case nat64.Contains(addr), b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe && publicV6.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}

	return netip.Addr{}, false
}

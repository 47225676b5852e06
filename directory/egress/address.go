package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Anywhere opens every range that can be opened, for targets that an operator chose or
// confirmed.
var Anywhere = prefixes("0.0.0.0/0", "::/0")

var (
	// closed are addresses that no allow list opens: unspecified, multicast and broadcast.
	closed = prefixes("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8")

	// metadata are the services at which clouds disclose a machine's credentials and
	// configuration. No allow list opens them.
	metadata = prefixes(
		"169.254.169.254/32", "fd00:ec2::254/128", "fe80::a9fe:a9fe/128", // EC2 and most others
		"169.254.170.2/32", "169.254.170.23/32", "fd00:ec2::23/128", // containers at AWS
		"fd20:ce::254/128",                         // Google
		"168.63.129.16/32",                         // Azure
		"192.0.0.192/32", "fd00:c1::a9fe:a9fe/128", // Oracle
		"100.100.100.200/32",                  // Alibaba
		"169.254.0.23/32",                     // Tencent
		"169.254.42.42/32", "fd00:42::42/128", // Scaleway
	)

	// private are addresses that do not name the same machine on the whole Internet: the
	// registries of RFC 6890 as of 2025. IPv6 addresses outside publicV6 are private too.
	private = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "3fff::/20")
	publicV6 = netip.MustParsePrefix("2000::/3")

	// embedding are the IPv6 ranges whose addresses contain an IPv4 address to which a
	// gateway or the kernel forwards. No allow list opens them, because a range that an
	// operator allows for itself would open what the embedded address names.
	embedding = []struct {
		name   string
		prefix netip.Prefix
	}{
		{"NAT64", netip.MustParsePrefix("64:ff9b::/96")},              // RFC 6052
		{"local NAT64", netip.MustParsePrefix("64:ff9b:1::/48")},      // RFC 8215
		{"6to4", netip.MustParsePrefix("2002::/16")},                  // RFC 3056
		{"Teredo", netip.MustParsePrefix("2001::/32")},                // RFC 4380
		{"IPv4-translated", netip.MustParsePrefix("::ffff:0:0:0/96")}, // RFC 2765
		{"IPv4-compatible", netip.MustParsePrefix("::/96")},           // RFC 4291; loopback is not of it
	}
	loopbackV6 = netip.IPv6Loopback()
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}

	return all
}

// Check returns why no connection may be made to addr; nil if one may. Public addresses
// are open, private, loopback and link-local ones only within allow. Metadata services,
// multicast, addresses with a zone and IPv6 addresses that embed an IPv4 address are
// closed whatever allow contains.
func Check(addr netip.Addr, allow []netip.Prefix) error {
	contains := func(p netip.Prefix) bool { return p.Contains(addr) }

	switch {
	case !addr.IsValid():
		return errors.New("not an address")
	case addr.Zone() != "":
		return fmt.Errorf("%s has a zone", addr)
	}

	if form := embeds(addr); form != "" {
		return fmt.Errorf("%s embeds an IPv4 address (%s)", addr, form)
	}

	switch {
	case slices.ContainsFunc(metadata, contains):
		return fmt.Errorf("%s is a metadata service", addr)
	case slices.ContainsFunc(closed, contains):
		return fmt.Errorf("%s is not an address of one machine", addr)
	case slices.ContainsFunc(allow, contains):
		return nil
	case slices.ContainsFunc(private, contains), addr.Is6() && !publicV6.Contains(addr):
		return fmt.Errorf("%s is not a public address", addr)
	}

	return nil
}

// embeds returns the form in which an IPv6 address embeds an IPv4 address; "" if it
// embeds none.
func embeds(addr netip.Addr) string {
	if !addr.Is6() || addr == loopbackV6 || addr.IsUnspecified() {
		return ""
	}

	// Prefixes never contain a mapped address, whose prefix is given in IPv4 terms.
	if addr.Is4In6() {
		return "IPv4-mapped"
	}

	for _, form := range embedding {
		if form.prefix.Contains(addr) {
			return form.name
		}
	}

	// ISATAP (RFC 5214) has its form in the interface identifier, under any prefix.
	if b := addr.As16(); b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		return "ISATAP"
	}

	return ""
}

// IsLoopback reports whether a host, with or without a port, is this machine, which no other machine can reach there.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}

	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))

	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Control returns a function for net.Dialer that judges the resolved address of every
// connection by Check.
func Control(allow []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}

		return Check(target.Addr(), allow)
	}
}

package listener

import (
	"net"
	"net/netip"
)

// A class counts connections: all, those of each address and those of each network.
type class struct {
	max        int
	perAddress int
	perNetwork int
	total      int
	byAddress  counts
	byNetwork  counts
}

// newClass returns a class of at most max connections; perAddress 0 is an eighth of max.
func newClass(most, perAddress int) class {
	if perAddress == 0 {
		perAddress = max(1, most/8)
	}

	return class{
		max:        most,
		perAddress: perAddress,
		perNetwork: 2 * perAddress,
		byAddress:  counts{},
		byNetwork:  counts{},
	}
}

func (c *class) full() bool { return c.total >= c.max }

func (c *class) addressFull(from origin) bool { return c.byAddress[from.address] >= c.perAddress }

// hasShare reports whether an origin uses less than its share of the class.
func (c *class) hasShare(from origin) bool {
	return !c.addressFull(from) && (from.network == "" || c.byNetwork[from.network] < c.perNetwork)
}

// enter counts a connection, unless the class or the origin's share is full.
func (c *class) enter(from origin) bool {
	if c.full() || !c.hasShare(from) {
		return false
	}

	c.total++
	c.byAddress[from.address]++

	if from.network != "" {
		c.byNetwork[from.network]++
	}

	return true
}

func (c *class) leave(from origin) {
	c.total--
	c.byAddress.decrement(from.address)

	if from.network != "" {
		c.byNetwork.decrement(from.network)
	}
}

// counts has no entry for a count of zero.
type counts map[string]int

func (c counts) decrement(key string) {
	c[key]--
	if c[key] <= 0 {
		delete(c, key)
	}
}

// An origin is where a connection comes from: its IPv4 address and no network, or the
// /64 of its IPv6 address and the /48.
type origin struct{ address, network string }

func originOf(remote net.Addr) origin {
	parsed, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return origin{}
	}

	ip := parsed.Addr().Unmap().WithZone("")
	if !ip.Is6() {
		return origin{address: ip.String()}
	}

	return origin{
		address: netip.PrefixFrom(ip, 64).Masked().String(),
		network: netip.PrefixFrom(ip, 48).Masked().String(),
	}
}

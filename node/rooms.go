package node

import (
	"net"
	"net/netip"
)

// A room has places for connections, so many of them for each address and each network.
type room struct {
	most, share, wide, all int

	near tallies
	far  tallies
}

// newRoom has most places, and share of them for an address; 0 is an eighth.
func newRoom(most, share int) room {
	if share == 0 {
		share = max(1, most/8)
	}
	return room{most: most, share: share, wide: 2 * share, near: tallies{}, far: tallies{}}
}

// lets reports whether an origin has less than its share of the room.
func (r *room) lets(from origin) bool {
	return r.near[from.near] < r.share && (from.far == "" || r.far[from.far] < r.wide)
}

func (r *room) enter(from origin) bool {
	if r.all >= r.most || !r.lets(from) {
		return false
	}
	r.all++
	r.near[from.near]++
	if from.far != "" {
		r.far[from.far]++
	}
	return true
}

func (r *room) leave(from origin) {
	r.all--
	r.near.less(from.near)
	if from.far != "" {
		r.far.less(from.far)
	}
}

// tallies counts, and has no entry of what there is none of.
type tallies map[string]int

func (t tallies) less(of string) {
	if t[of]--; t[of] <= 0 {
		delete(t, of)
	}
}

// An origin is whose a connection is: its address, of IPv6 its /64, and the /48 of that.
type origin struct{ near, far string }

func originOf(a net.Addr) origin {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return origin{}
	}
	ip := at.Addr().Unmap().WithZone("")
	if !ip.Is6() {
		return origin{near: ip.String()}
	}
	near, err := ip.Prefix(64)
	if err != nil {
		return origin{}
	}
	far := netip.PrefixFrom(ip, 48).Masked()
	return origin{near.String(), far.String()}
}

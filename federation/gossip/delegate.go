package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The bounds of the pool.
const (
	maxForeign = 3                   // members of another domain
	maxSought  = 1024                // nodes in the search
	maxTries   = 5                   // to reach a node that was never a member
	seekFor    = 14 * 24 * time.Hour // longest search for a node
	seekFirst  = time.Second
)

// The states of a member.
const (
	MemberAlive = "alive" // a member of the pool, as far as this node knows
	MemberLost  = "lost"  // a former member; this node tries to reach it
)

// MemberStatus is one node of the mesh's pool as this node sees it. It is only a hint:
// nothing is accepted or refused because of it.
type MemberStatus struct {
	ID      spiffeid.ID // authenticated by the node's connections
	Address string      // host:port of its gossip listener
	State   string      // MemberAlive or MemberLost
}

var (
	errNotMet     = errors.New("not verified as reachable yet")
	errDomainFull = errors.New("its domain has reached its limit of members")
	errClaimed    = errors.New("not a member's name, address and version")
)

// A pool tracks the members of the gossip pool, and implements memberlist's callbacks
// (memberlist.Delegate, AliveDelegate, EventDelegate). memberlist trusts unauthenticated
// claims, so the pool admits no node on a claim alone. A node that is claimed to be alive
// must first authenticate over a connection; to that end this node dials the claimed
// address. memberlist calls with its own lock held: no method waits for the network or calls
// back. Lines of the log about members are written meanwhile; lineRate bounds them.
type pool struct {
	cfg        *Config
	acquainted func(spiffeid.ID) (address string, ok bool)
	wake       chan struct{} // capacity 1: a new node is sought

	mu      sync.Mutex
	members map[spiffeid.ID]string // addresses, including this node's
	sought  map[spiffeid.ID]*sought
	lines   *limit.Lines[spiffeid.TrustDomain]
}

// lineRate bounds the log lines about the members of one domain, because its nodes choose how
// often they join and leave.
var lineRate = limit.Rate{PerSecond: 0.1, Burst: 6}

const maxLineDomains = 1024

// sought is a seed, or a node that is not a member and that this node tries to reach.
type sought struct {
	address string      // its address as a member; "" if it never was one
	claimed string      // the address that others claim for it; "" without a claim
	found   spiffeid.ID // of a seed: the node that answered last, which may be this one
	since   time.Time
	tries   int
	next    time.Time
}

// at returns the address to dial next. It alternates between both addresses, because a false
// claim must not hide the last verified address.
func (s *sought) at() string {
	if s.address == "" || s.claimed != "" && s.tries%2 == 1 {
		return s.claimed
	}

	return s.address
}

var (
	_ memberlist.Delegate      = (*pool)(nil)
	_ memberlist.AliveDelegate = (*pool)(nil)
	_ memberlist.EventDelegate = (*pool)(nil)
)

func newPool(cfg *Config, acquainted func(spiffeid.ID) (address string, ok bool)) *pool {
	return &pool{
		cfg: cfg, acquainted: acquainted, wake: make(chan struct{}, 1),
		members: map[spiffeid.ID]string{}, sought: map[spiffeid.ID]*sought{},
		lines: limit.NewLines[spiffeid.TrustDomain](maxLineDomains, lineRate),
	}
}

// NodeMeta implements memberlist.Delegate. A node's metadata is its address.
func (p *pool) NodeMeta(int) []byte { return []byte(p.cfg.Advertise) }

// NotifyMsg implements memberlist.Delegate. It receives no message of an honest member: the
// transport delivers messages itself, because memberlist doesn't pass on their sender.
func (p *pool) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate. It returns no message, because memberlist doesn't
// know a message's audience; see broadcasts.
func (p *pool) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate. Heads go with the stream.
func (p *pool) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate; see LocalState.
func (p *pool) MergeRemoteState([]byte, bool) {}

// NotifyAlive implements memberlist.AliveDelegate: an error keeps the node out.
func (p *pool) NotifyAlive(n *memberlist.Node) error {
	return p.cfg.Panics.Run(contain.Gossip, func() error { return p.judge(n) })
}

func (p *pool) judge(n *memberlist.Node) error {
	id, err := spiffeid.FromString(n.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", errClaimed, err)
	}

	if id == p.cfg.Node {
		return nil // memberlist itself contradicts false claims about this node
	}

	if !p.cfg.Allow(id) {
		return errNotAllowed
	}

	address := string(n.Meta)
	if !n.Addr.Equal(placeholderIP) || n.Port != placeholderPort || !speaksOurs(n) || checkAddress(address) != nil {
		return errClaimed
	}

	return p.admit(id, address)
}

// speaksOurs keeps out a member whose version would make every push/pull of the
// whole pool fail memberlist's check of versions.
func speaksOurs(n *memberlist.Node) bool {
	const ours = memberlist.ProtocolVersion2Compatible
	return n.PMin <= ours && ours <= n.PMax && n.PCur == ours && n.DMin == 0 && n.DMax == 0 && n.DCur == 0
}

func (p *pool) admit(id spiffeid.ID, address string) error {
	// Asked before p.mu is taken, so that this lock and the transport's are never nested.
	proved, met := p.acquainted(id)
	p.mu.Lock()
	defer p.mu.Unlock()

	current, member := p.members[id]
	switch {
	case member && current == address, member && met && proved == address:
		return nil
	case !member && p.full(id.TrustDomain()):
		return errDomainFull
	case !member && met && proved == address:
		return nil
	}

	p.seek(id, sought{claimed: address})

	return errNotMet
}

// full reports whether the domain has reached its limit of members. p.mu is held.
func (p *pool) full(td spiffeid.TrustDomain) bool {
	limit := maxForeign
	if td == p.cfg.Node.TrustDomain() {
		limit = maxDomainNodes
	}

	n := 0
	for id := range p.members {
		if id.MemberOf(td) {
			n++
		}
	}

	return n >= limit
}

// seek adds a node to the search, or updates its addresses. p.mu is held.
func (p *pool) seek(id spiffeid.ID, what sought) {
	if s := p.sought[id]; s != nil {
		s.address, s.claimed = cmp.Or(what.address, s.address), cmp.Or(what.claimed, s.claimed)
		return
	}

	n := 0
	for other := range p.sought {
		if other.TrustDomain() == id.TrustDomain() {
			n++
		}
	}

	if n >= maxDomainNodes || len(p.sought) >= maxSought {
		return
	}

	what.since = time.Now()
	p.sought[id] = &what
	nudge(p.wake)
}

// due returns the addresses of at most limit sought nodes whose next try is due. It removes
// nodes whose search has ended.
func (p *pool) due(now time.Time, longest time.Duration, most int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()

	var addresses []string
	for id, sought := range p.sought {
		switch {
		case !p.cfg.Allow(id), sought.address == "" && sought.tries >= maxTries, now.Sub(sought.since) > seekFor:
			delete(p.sought, id)
		case now.Before(sought.next), len(addresses) >= most, p.members[id] == "" && p.full(id.TrustDomain()):
		default:
			addresses = append(addresses, sought.at())
			sought.next = now.Add(pause(sought.tries, longest))
			sought.tries++
		}
	}

	return addresses
}

// pause returns the wait after the nth failure: doubling, bounded, with jitter.
func pause(n int, longest time.Duration) time.Duration {
	d := min(seekFirst<<min(n, 16), longest)
	return d/2 + rand.N(d/2+1)
}

// NotifyJoin implements memberlist.EventDelegate.
func (p *pool) NotifyJoin(n *memberlist.Node) {
	if id, ok := p.found(n); ok {
		p.log("a member joined", id)
	}
}

// NotifyUpdate implements memberlist.EventDelegate.
func (p *pool) NotifyUpdate(n *memberlist.Node) { p.found(n) }

// found ends the search for a member, which is now at the address in its metadata.
func (p *pool) found(n *memberlist.Node) (spiffeid.ID, bool) {
	id, err := spiffeid.FromString(n.Name)
	if err != nil {
		return id, false
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[id] = string(n.Meta)
	delete(p.sought, id)

	return id, true
}

// NotifyLeave implements memberlist.EventDelegate. The node is sought at its last address,
// whether it left, failed or was falsely declared dead.
func (p *pool) NotifyLeave(n *memberlist.Node) {
	if id, err := spiffeid.FromString(n.Name); err == nil && id != p.cfg.Node {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.members, id)
		p.seek(id, sought{address: string(n.Meta)})
		p.log("a member is gone", id)
	}
}

// log writes a line about a member, if its domain hasn't caused too many.
func (p *pool) log(what string, id spiffeid.ID) {
	skipped, due := p.lines.Take(id.TrustDomain())
	if !due {
		return
	}

	attrs := []slog.Attr{slog.String("member", id.String())}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("lines_skipped", skipped))
	}

	p.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "gossip: "+what, attrs...)
}

// address returns the address of a member.
func (p *pool) address(id spiffeid.ID) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	address, ok := p.members[id]

	return address, ok
}

// settled reports whether joining at a node is needless: it is a member, as this node is, or its
// domain has reached its limit of members.
func (p *pool) settled(id spiffeid.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, member := p.members[id]

	return member || p.full(id.TrustDomain())
}

// status lists the members and the lost members by name, without nodes that are no longer
// allowed.
func (p *pool) status() []MemberStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := maps.Clone(p.members)

	var out []MemberStatus
	for id, s := range p.sought {
		if _, member := all[id]; s.address != "" && !member && p.cfg.Allow(id) {
			out = append(out, MemberStatus{id, s.address, MemberLost})
		}
	}

	for id, address := range all {
		if id == p.cfg.Node || p.cfg.Allow(id) {
			out = append(out, MemberStatus{id, address, MemberAlive})
		}
	}

	slices.SortFunc(out, func(a, b MemberStatus) int { return cmp.Compare(a.ID.String(), b.ID.String()) })

	return out
}

// others returns the members except this node. It includes members that are no longer
// allowed.
func (p *pool) others() []spiffeid.ID {
	p.mu.Lock()
	defer p.mu.Unlock()

	all := make([]spiffeid.ID, 0, len(p.members))
	for id := range p.members {
		if id != p.cfg.Node {
			all = append(all, id)
		}
	}

	return all
}

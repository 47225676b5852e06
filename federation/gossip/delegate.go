package gossip

import (
	"cmp"
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
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The bounds of the pool.
const (
	maxForeign = 3                   // members of another domain
	maxSought  = 1024                // nodes that are looked for
	maxTries   = 5                   // for one that was never met
	seekFor    = 14 * 24 * time.Hour // one that was a member
	seekFirst  = time.Second
)

// The states of a member.
const (
	MemberAlive = "alive" // as far as anyone says
	MemberLost  = "lost"  // it was a member, and is looked for
)

// MemberStatus is one node of the mesh's pool as this node sees it. It is a hint
// and nothing more: nothing is accepted or refused because of it.
type MemberStatus struct {
	ID      spiffeid.ID // which its connections proved
	Address string      // host:port of its gossip listener
	State   string      // MemberAlive or MemberLost
}

var (
	errNotMet     = errors.New("not verified as reachable yet")
	errDomainFull = errors.New("its domain has reached its limit of members")
	errClaimed    = errors.New("not a member's name, address and version")
)

// A pool knows who takes part in the gossip, and is what memberlist asks and
// tells (memberlist.Delegate, AliveDelegate, EventDelegate). memberlist believes
// rumours; so nobody is let in on a rumour: a node that is said to be alive must
// first have proved itself to us over a connection, and to that end is looked
// for where it is said to be. memberlist calls with its own lock held: nothing
// here blocks or calls back.
type pool struct {
	cfg        *Config
	acquainted func(spiffeid.ID) (address string, ok bool)
	wake       chan struct{} // has room for one: somebody new is to be looked for

	mu      sync.Mutex
	members map[spiffeid.ID]string // addresses; this node's too
	sought  map[spiffeid.ID]*sought
}

// sought is a node that isn't a member and perhaps should be.
type sought struct {
	address string // where it was a member; "" if it never was one
	claimed string // where it is said to be; "" if nobody said anything
	since   time.Time
	tries   int
	next    time.Time
}

// at is where to look for it the next time: a rumour must not keep us from where
// it really was.
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

func newPool(cfg *Config) *pool {
	return &pool{
		cfg: cfg, wake: make(chan struct{}, 1),
		members: map[spiffeid.ID]string{}, sought: map[spiffeid.ID]*sought{},
	}
}

// NodeMeta implements memberlist.Delegate: what a node tells about itself is its
// address.
func (p *pool) NodeMeta(int) []byte { return []byte(p.cfg.Advertise) }

// NotifyMsg implements memberlist.Delegate. Messages don't come this way, because
// memberlist doesn't say whose they are: the transport has taken them out.
func (p *pool) NotifyMsg([]byte) { p.cfg.Refused("malformed") }

// GetBroadcasts implements memberlist.Delegate. Messages don't go this way
// either, because memberlist doesn't ask who may have them: see broadcasts.
func (p *pool) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate. Heads go with the exchange.
func (p *pool) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate; see LocalState.
func (p *pool) MergeRemoteState([]byte, bool) { p.cfg.Refused("malformed") }

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
		return nil // memberlist contradicts whatever is said of this node
	}

	if !p.cfg.Allow(id) {
		p.cfg.Refused("not_allowed")
		return errNotAllowed
	}

	address := string(n.Meta)
	if !n.Addr.Equal(placeholderIP) || n.Port != placeholderPort || !speaksOurs(n) || checkAddress(address) != nil {
		p.cfg.Refused("malformed")
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

// full reports whether the domain has as many members as it may. p.mu is held.
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

// seek has the node looked for. p.mu is held.
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
		p.cfg.Refused("too_many")
		return
	}

	what.since = time.Now()
	p.sought[id] = &what
	nudge(p.wake)
}

// due returns addresses of at most limit sought nodes whose time has come, and
// drops the ones that are sought no longer.
func (p *pool) due(now time.Time, longest time.Duration, limit int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()

	var addresses []string
	for id, sought := range p.sought {
		switch {
		case !p.cfg.Allow(id), sought.address == "" && sought.tries >= maxTries, now.Sub(sought.since) > seekFor:
			delete(p.sought, id)
		case now.Before(sought.next), len(addresses) >= limit, p.members[id] == "" && p.full(id.TrustDomain()):
		default:
			addresses = append(addresses, sought.at())
			sought.next = now.Add(pause(sought.tries, longest))
			sought.tries++
		}
	}

	return addresses
}

// pause is how long to wait after the nth failure: doubling, bounded, jittered.
func pause(n int, longest time.Duration) time.Duration {
	d := min(seekFirst<<min(n, 16), longest)
	return d/2 + rand.N(d/2+1)
}

// NotifyJoin implements memberlist.EventDelegate.
func (p *pool) NotifyJoin(n *memberlist.Node) {
	if id, err := spiffeid.FromString(n.Name); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.members[id] = string(n.Meta)
		delete(p.sought, id)
		p.log("a member joined", id)
	}
}

// NotifyUpdate implements memberlist.EventDelegate.
func (p *pool) NotifyUpdate(n *memberlist.Node) {
	if id, err := spiffeid.FromString(n.Name); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.members[id] = string(n.Meta)
		delete(p.sought, id)
	}
}

// NotifyLeave implements memberlist.EventDelegate. Whether the node left, died or
// was slandered, it is looked for where it was.
func (p *pool) NotifyLeave(n *memberlist.Node) {
	if id, err := spiffeid.FromString(n.Name); err == nil && id != p.cfg.Node {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.members, id)
		p.seek(id, sought{address: string(n.Meta)})
		p.log("a member is gone", id)
	}
}

func (p *pool) log(what string, id spiffeid.ID) {
	p.cfg.Logger.Info("gossip: "+what, slog.String("member", id.String()))
}

// address returns where a member, or one that was, is to be dialled.
func (p *pool) address(id spiffeid.ID) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if a, ok := p.members[id]; ok {
		return a, true
	}

	return "", false
}

// settled reports that there is no use in joining at a node: it is a member, or
// its domain has enough of them.
func (p *pool) settled(id spiffeid.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, member := p.members[id]

	return member || p.full(id.TrustDomain())
}

// status lists the members and the lost, by name, without those that are no
// longer allowed.
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

// others returns the members but for this node, those that are no longer allowed
// among them.
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

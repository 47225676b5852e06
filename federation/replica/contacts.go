package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// contacts chooses which of an origin's nodes is asked, and paces pulls of its key
// document.
type contacts struct {
	domain    spiffeid.TrustDomain
	audiences [2]directory.Audience
	peering   *atomic.Pointer[directory.Peering]
	Issuing   *rate.Limiter // pulls of key documents that subscriptions announce

	// following has one item while a key document is pulled that a subscription announced,
	// because both subscriptions of an origin may announce it.
	Following chan struct{}

	mu        sync.Mutex // guards the fields below
	turns     map[directory.Audience]turn
	headTurn  int
	headGiver protocol.Node // of the last head that arrived on request; zero before
	headCame  time.Time
	keysAsked time.Time
	keysDue   bool // a pull of keys was postponed, because a pushed message caused one just before
	stated    []statedAddress
}

// A statedAddress is the base URL at which a node of the origin says that it is reached. It is a
// hint: it changes only which node is asked, and a node of the origin must answer there.
type statedAddress struct {
	node spiffeid.ID // authenticated, when it asked this node
	base string
}

// maxStated bounds the nodes of an origin whose addresses are kept; the latest are.
const maxStated = 8

// State notes the address at which a node of the origin is reached, by its own word.
func (ct *contacts) State(node spiffeid.ID, base string) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	stated := statedAddress{node, base}
	if slices.Contains(ct.stated, stated) {
		return
	}

	ct.stated = slices.DeleteFunc(ct.stated, func(s statedAddress) bool { return s.node == node })
	ct.stated = append(ct.stated, stated)
	ct.stated = ct.stated[max(0, len(ct.stated)-maxStated):]
}

// Stated returns the addresses that nodes of the origin stated and that the peering doesn't name,
// the latest last.
func (ct *contacts) Stated() []string {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return ct.unlisted(ct.peering.Load().Addresses)
}

// unlisted returns the stated addresses that are not among the agreed ones. ct.mu is held.
func (ct *contacts) unlisted(agreed []string) (bases []string) {
	for _, stated := range ct.stated {
		if !slices.Contains(agreed, stated.base) && !slices.Contains(bases, stated.base) {
			bases = append(bases, stated.base)
		}
	}

	return bases
}

// addresses returns those of the peering, and then those that its nodes stated. ct.mu is held.
func (ct *contacts) addresses() []string {
	agreed := ct.peering.Load().Addresses
	if len(ct.stated) == 0 {
		return agreed
	}

	return slices.Concat(agreed, ct.unlisted(agreed))
}

// A turn says which of an origin's addresses is asked for a stream.
type turn struct {
	n        int
	failedAt time.Time // when a node failed last
}

// Node returns the node that is asked at present, false if none is known.
func (ct *contacts) Node(feed *Feed) (protocol.Node, bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return ct.nodeAt(ct.turns[feed.Aud].n)
}

// HeadNode returns another node at each call, so that one that lags is noticed.
func (ct *contacts) HeadNode() (protocol.Node, bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	ct.headTurn++

	return ct.nodeAt(ct.headTurn)
}

func (ct *contacts) HeadFrom(node protocol.Node) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	ct.headGiver, ct.headCame = node, time.Now()
}

// HeadSince reports whether a head that was asked for has come from the origin since then.
func (ct *contacts) HeadSince(at time.Time) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return ct.headCame.After(at)
}

// LastHeadFrom returns the node that gave the last head on request.
func (ct *contacts) LastHeadFrom() (protocol.Node, bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return ct.headGiver, ct.headGiver != protocol.Node{}
}

func (ct *contacts) nodeAt(turn int) (protocol.Node, bool) {
	addresses := ct.addresses()
	if len(addresses) == 0 {
		return protocol.Node{}, false
	}

	return protocol.Node{Domain: ct.domain, Base: addresses[turn%len(addresses)]}, true
}

// Nodes returns all of the origin's nodes, the one that is asked at present first.
func (ct *contacts) Nodes() []protocol.Node {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	var all []protocol.Node
	for i := range ct.addresses() {
		if n, ok := ct.nodeAt(ct.turns[directory.Mesh].n + i); ok {
			all = append(all, n)
		}
	}

	return all
}

// failed turns to the next node for a stream, if node is the one that is asked at present.
func (ct *contacts) failed(aud directory.Audience, node protocol.Node) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	now := turn{n: ct.turns[aud].n, failedAt: time.Now()}

	// A late report about an earlier node must not skip the node that is asked since then.
	if asked, ok := ct.nodeAt(now.n); ok && asked == node {
		now.n++
	}

	ct.turns[aud] = now
}

// Lists reports whether a node is at one of the origin's addresses.
func (ct *contacts) Lists(node protocol.Node) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return slices.Contains(ct.addresses(), node.Base)
}

// Prefer turns to a node for all streams.
func (ct *contacts) Prefer(node protocol.Node) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	i := slices.Index(ct.addresses(), node.Base)
	if i < 0 {
		return
	}

	for _, aud := range ct.audiences {
		ct.turns[aud] = turn{n: i, failedAt: ct.turns[aud].failedAt}
	}
}

// failedSince reports whether a node failed to answer for a stream after a time.
func (ct *contacts) failedSince(aud directory.Audience, since time.Time) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return ct.turns[aud].failedAt.After(since)
}

// MayRefresh paces the pulls of key documents that pushed messages cause. When a pull is
// postponed, tend requests the head instead, because no other message may be pushed.
func (ct *contacts) MayRefresh(from Sender) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	now := time.Now()
	if from.Pushed && now.Sub(ct.keysAsked) < KeysEvery {
		ct.keysDue = true
		return false
	}

	ct.keysAsked = now

	return true
}

// PutOff reports, once, whether a pull of keys was postponed.
func (ct *contacts) PutOff() (due bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	due, ct.keysDue = ct.keysDue, false

	return due
}

const (
	KeysEvery  = time.Second // pulls of keys that a pushed message, or a subscription, may cause
	issueBurst = 8           // of those that subscriptions cause
)

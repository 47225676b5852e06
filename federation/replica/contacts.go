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
}

// A turn says which of an origin's addresses is asked for a stream.
type turn struct {
	n        int
	failedAt time.Time // when a node failed last
}

// Node returns the node that is asked at present, false if the peering names
// none.
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
	addresses := ct.peering.Load().Addresses
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
	for i := range ct.peering.Load().Addresses {
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
	if asked, ok := ct.nodeAt(now.n); ok && asked == node {
		now.n++
	}

	ct.turns[aud] = now
}

// Lists reports whether the peering names a node.
func (ct *contacts) Lists(node protocol.Node) bool {
	return slices.Contains(ct.peering.Load().Addresses, node.Base)
}

// Prefer turns to a node for all streams.
func (ct *contacts) Prefer(node protocol.Node) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	i := slices.Index(ct.peering.Load().Addresses, node.Base)
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
	IssueBurst = 8           // of those that subscriptions cause
)

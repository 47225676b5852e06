package replica

import (
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A Theirs is how a node of a peer sees this domain.
type Theirs struct {
	protocol.Standing
	Node string    // base URL of that node
	At   time.Time // when it said so, by this node's clock
}

// StateCertificate is the state of this domain at a node that rejects the certificate of this
// one. The node can't say it in an answer.
const StateCertificate = "certificate"

const (
	standingFor = 20 * time.Second // a node that is followed repeats its word every protocol.PingEvery
	refusingFor = 8 * time.Second  // before a refusal counts: a node or the peering may have just started
)

// standings are the last words of an origin's nodes about this domain.
type standings struct {
	mu       sync.Mutex // guards the fields below
	all      []Theirs   // of each node the last, oldest first
	refusing time.Time  // since all nodes whose word is fresh refuse this domain; zero if one doesn't
}

// Note records the word of a node.
func (ss *standings) Note(node protocol.Node, standing protocol.Standing) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	now := time.Now()
	kept := ss.all[:0]

	for _, theirs := range ss.all {
		if theirs.Node != node.Base && now.Sub(theirs.At) < standingFor {
			kept = append(kept, theirs)
		}
	}

	ss.all = append(kept, Theirs{Standing: standing, Node: node.Base, At: now})

	for _, theirs := range ss.all {
		if !refuses(theirs.State) {
			ss.refusing = time.Time{}
			return
		}
	}

	if ss.refusing.IsZero() {
		ss.refusing = now
	}
}

// Last returns the word that counts: the newest refusal, if there is one that counts, or else
// the word of the node that has taken most. refusal is its state, or "". A freeze counts by the
// word of one node, because the whole domain will follow. Other refusals count if no node says
// otherwise, because a single node may be cut off.
func (ss *standings) Last() (last Theirs, refusal string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	now := time.Now()

	for _, theirs := range ss.all {
		if theirs.State == string(directory.PeeringFrozen) && now.Sub(theirs.At) < standingFor {
			return theirs, theirs.State
		}

		if last.At.IsZero() || !theirs.Position.Before(last.Position) {
			last = theirs
		}
	}

	newest := Theirs{}
	if n := len(ss.all); n > 0 {
		newest = ss.all[n-1]
	}

	fresh := now.Sub(newest.At) < standingFor
	settled := !ss.refusing.IsZero() && now.Sub(ss.refusing) >= refusingFor

	if fresh && settled {
		return newest, newest.State
	}

	return last, ""
}

// Doubtful reports whether a node refuses this domain and that doesn't count yet: the other nodes of
// the peer have the word.
func (ss *standings) Doubtful() bool {
	_, refusal := ss.Last()

	ss.mu.Lock()
	defer ss.mu.Unlock()

	now := time.Now()

	return refusal == "" && slices.ContainsFunc(ss.all, func(theirs Theirs) bool {
		return now.Sub(theirs.At) < standingFor && refuses(theirs.State)
	})
}

// refuses reports whether a domain in that state at a peer has nothing taken from it there.
func refuses(state string) bool {
	switch state {
	case string(directory.PeeringFrozen), protocol.StandingNone, StateCertificate:
		return true
	}

	return passing(state)
}

// passing reports whether a domain is in that state at a peer for a moment, as it starts.
func passing(state string) bool { return state == "unreachable" || state == "failing" }

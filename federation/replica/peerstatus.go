package replica

import (
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A PeerStatus is the state of one peering as this node observes it.
type PeerStatus struct {
	Domain spiffeid.TrustDomain
	// active, behind, connecting, unreachable, refused, failing, unsupported, not_exported or
	// unknown; or the state of the peering itself, if that isn't active
	State         string
	Asked         bool               // this node asks its nodes: it is an active peer
	Up            bool               // one of its nodes answers this node
	LastAnswer    time.Time          // of one of its nodes to this node; zero for none since the start
	SilentSince   time.Time          // zero while it is up, and if nothing is asked of it
	LastPage      time.Time          // issue of the newest verified page; zero for none
	PageAge       time.Duration      // since then, by the origin's clock; 0 for none
	Position      directory.Position // applied
	Watermark     uint64
	Tip           uint64 // of its stream, as far as known
	LagRevisions  uint64
	LagSeconds    float64
	HeadAge       time.Duration            // of its last verified word; 0 if there was none
	LedgerAge     time.Duration            // of the last checkpoint of its ledger that is not behind the one before
	LedgerError   string                   // why there was no newer one; empty if none was expected
	LedgerDiffers []string                 // nodes that were shown another ledger of it
	LastHeard     time.Time                // zero for never
	LastError     string                   // empty once something worked again
	Entries       uint64                   // held, the pending ones too
	Pending       int                      // of which records are missing
	NotExported   bool                     // it doesn't export to this domain
	Hidden        bool                     // its records are hidden, because it is silent
	Shed          bool                     // its records are not shown, because this node is short of memory
	Records       uint64                   // held on disk, of both of its streams
	Bytes         uint64                   // of them
	RecordsLimit  uint64                   // 0 for none
	BytesLimit    uint64                   // as RecordsLimit
	OverQuota     uint64                   // entries for whose records the peering's quotas have no room
	BytesIn       uint64                   // of response bodies from its nodes
	BytesOut      uint64                   // of response bodies to its nodes
	GossipIn      uint64                   // bytes that its nodes gossiped to this one
	GossipOut     uint64                   // and that this one gossiped to them
	Received      map[protocol.Code]uint64 // messages about it, from any sender
	Refused       map[protocol.Code]uint64 // messages from its nodes, about any origin

	// Theirs is how the peer sees this domain, zero if it has not said so. Refusal is the state
	// there by which it takes nothing from this domain; "" if it takes all.
	Theirs  Theirs
	Refusal string

	// Doubtful are the nodes of the peer whose word other nodes of it contradict.
	Doubtful []Doubtful

	// Unconfirmed counts the registrations that only one node of the peer has announced for a minute or longer.
	Unconfirmed int

	// Stated are the addresses at which nodes of the peer say that they are reached, and which the
	// peering doesn't name.
	Stated []string

	// Unsupported says why a later release is needed to follow the peer; "" if none is.
	// Unopened counts the stored records that need a later release, by format.
	Unsupported string
	Unopened    map[string]uint64
}

// MaxHeadAge is how old an origin's last word may be for it still to be called
// active (federation.md, "Peering").
const MaxHeadAge = 180 * time.Second

// SilentAfter is the time since its last answer after which a peer is unreachable. A node that
// holds a pull answers every protocol.PingEvery.
const SilentAfter = 9 * time.Second

// answers are the responses of an origin's nodes to requests of this node, over connections
// that the origin's authorities certify. No other message counts: it may come from a node that
// this node can't reach, or through a relay.
type answers struct {
	mu      sync.Mutex // guards the fields below
	began   time.Time  // when this node began to ask; zero while it asks nothing
	last    time.Time
	excused time.Time // until then silence doesn't count, because this process did not run
}

// Begin notes that this node asks the origin's nodes from now on.
func (a *answers) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.began = time.Now()
	a.last = time.Time{}
	a.excused = time.Time{}
}

// Began returns when this node began to ask; zero while it asks nothing.
func (a *answers) Began() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.began
}

// End notes that this node asks no longer.
func (a *answers) End() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.began = time.Time{}
}

// Answered notes a response.
func (a *answers) Answered() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.last = time.Now()
}

// Excuse disregards the silence until now, of a peer that was up before; once after each
// answer.
func (a *answers) Excuse() {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.excused.Before(a.last) {
		a.excused = time.Now()
	}
}

// Last returns the time of the last answer, zero for none, and the time from which silence
// counts. asked is false, and the others are zero, if this node doesn't ask.
func (a *answers) Last() (at, silent time.Time, asked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.began.IsZero() {
		return at, silent, false
	}

	silent = a.began
	for _, at := range []time.Time{a.last, a.excused} {
		silent = later(silent, at)
	}

	return a.last, silent, true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

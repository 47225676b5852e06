package federation

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// A want is an entry whose record isn't here.
type want struct {
	digest signed.Digest
	tries  int
	next   time.Time // not before
}

// A stream is what memory holds of one stream; the store has the rest.
type stream struct {
	id     store.StreamID
	state  store.State
	used   store.Usage
	owners store.Owners // of the records that are held
	wanted map[directory.RID]*want
	anew   uint64       // while it is pulled anew: what was made before that revision is old; else 0
	again  *readmission // that is under way; nil for none, guarded by change
}

func newStream(id store.StreamID) *stream {
	return &stream{id: id, owners: store.Owners{}, wanted: map[directory.RID]*want{}}
}

// A replica is what all origins share.
type replica struct {
	cfg      *Config
	store    *store.Store
	records  *recordGate
	refusals *refusalLog
	moved    func()        // wakes those who wait for a position
	judge    chan struct{} // has room for one: rules have changed
}

// An origin is another domain as this node follows it.
type origin struct {
	replica
	domain spiffeid.TrustDomain
	index  *index.Index
	base   directory.Clock // what its messages are judged by: they don't move it
	mail   chan pushed     // gossiped messages; dropped when full, a pull brings what they said
	late   []pushed        // of which some wait for the key document; tend's own
	kick   chan struct{}   // something is wanted
	ask    chan struct{}   // somebody waits for the origin's newest word
	pull   chan struct{}   // something may be missing
	// Has one item while a key document is pulled of which a subscription told: both may.
	following chan struct{}

	// peering is as agreed; never nil. It is replaced while mu is held and read without.
	peering atomic.Pointer[directory.Peering]

	// reached is what position found last, nil once anything changed. It is replaced
	// while mu is held and read without.
	reached atomic.Pointer[directory.Position]

	// change orders changes on disk and in memory of what was heard. It is the only
	// lock that is held over disk I/O, and is taken before mu. A change replaces the
	// feeds' streams, what those hold, unlisted, keysText, past and doubted while both
	// are held, so the holder of either may read them.
	change changeLock

	// summary is what readers see of what mu guards; never nil.
	summary atomic.Pointer[summary]

	mu        guard // guards what follows and what index shows; never held over disk I/O
	ended     bool
	stale     bool               // it wasn't heard for long, and its peering hides what it told
	judging   *judging           // nil where what is shown is by the rules of now
	unshown   bool               // something is held and isn't shown yet, because it could not be read
	swapping  bool               // the streams of an epoch take the place of others
	shownUpTo directory.Position // what position found before unshown or swapping
	room      bool               // something was freed, or may be held, since readmit looked
	again     bool               // it may have been a peer before: what was found of it then isn't judged yet
	convicted bool               // frozen at this node, and the domain hasn't done it yet
	unlisted  bool               // by its newest key document it doesn't let this domain have its mesh stream
	feed                         // its mesh stream
	private   feed               // what it announces to this domain alone
	announced *rate.Limiter
	issuing   *rate.Limiter // pulls of key documents of which subscriptions tell; as the next
	doubting  *rate.Limiter // looks for what revoked keys signed; as the next
	comparing *rate.Limiter // pages of a chain that are read to compare; not guarded
	head      *signed.Head  // the newest verified one
	headText  string
	headIs    time.Time          // when it was issued, by the origin's clock
	passedOn  directory.Position // how far pages of the origin were gossiped on by this node
	keysText  string
	reads     readFormats
	doubted   map[string]bool // the keys that it revoked, of which nothing is held
	past      []pastDocument  // the newest first
	keysAsked time.Time
	keysDue   bool      // they were not, since a pushed message had been the reason just before
	heard     time.Time // when anything verified last came
	lastErr   string
	unread    unsupported
	headTurn  int
	headGiver protocol.Node // of the head that was asked for last and came; zero before
	headCame  time.Time

	stop     context.CancelFunc // of the loops; nil if none were started
	done     chan struct{}      // closed when they have ended
	removing atomic.Bool        // it is being removed from disk
}

func newOrigin(td spiffeid.TrustDomain, index *index.Index, shared replica) *origin {
	o := &origin{replica: shared, domain: td, index: index, announced: rate.NewLimiter(originRate, originBurst), comparing: rate.NewLimiter(compareRate, compareBurst),
		issuing:  rate.NewLimiter(rate.Every(keysEvery), issueBurst),
		doubting: rate.NewLimiter(rate.Every(doubtEvery), doubtBurst),
		mail:     make(chan pushed, 8), kick: make(chan struct{}, 1), ask: make(chan struct{}, 1), pull: make(chan struct{}, 1), following: make(chan struct{}, 1),
		feed: newFeed(directory.Mesh), private: newFeed(directory.Only(shared.cfg.Domain)), change: newChangeLock()}
	o.peering.Store(&directory.Peering{})
	o.level = time.Now()       // so that the lag of a first sync is counted from its beginning
	o.base.Advance(time.Now()) // from here on a step of the wall clock back is not seen
	o.mu.publish = o.publish
	o.publish()

	return o
}

// accepts reports whether messages of this origin are taken at all.
func (o *origin) accepts() bool {
	seen := o.summary.Load()
	return o.peering.Load().State == directory.PeeringActive && !seen.ended && !seen.convicted
}

// hasEnded reports whether the peering has ended, so that nothing more is kept.
func (o *origin) hasEnded() bool { return o.summary.Load().ended }

// A changeLock is a mutex that is not waited for while the disk does not answer.
type changeLock struct{ held chan struct{} }

func newChangeLock() changeLock { return changeLock{held: make(chan struct{}, 1)} }

// lock returns disk.ErrStalled, and does not lock, if the disk stalls meanwhile.
func (l changeLock) lock(s *store.Store) error { return s.Disk.Acquire(l.held) }

func (l changeLock) unlock() { <-l.held }

// renew shows an entry, if it is shown, with its later deadline.
func (o *origin) renew(rid directory.RID, h *store.Entry) {
	old, ok := o.index.Get(rid)
	if !ok {
		return
	}
	e, r := *old, *old.Received
	e.Received = &r
	describe(h, &e, o.peering.Load().Import.MaxLifetime)
	o.put(&e)
}

// saved is what is kept on disk of the origin. Its time is rule T4's floor. o.change is
// held.
func (o *origin) saved(floor time.Time) store.Origin {
	o.mu.Lock()
	defer o.mu.Unlock()

	st := store.Origin{Floor: floor.UnixMilli(), Head: o.headText, Keys: o.keysText}
	if o.cur != nil {
		st.Epoch = o.cur.id.Epoch
	}
	return st
}

// heardPage notes what an applied page says of where the origin is.
func (o *origin) heardPage(f *feed, st *stream, p *verifiedPage) {
	o.heard, o.lastErr = time.Now(), ""
	o.unread.page = nil
	if st != f.newest() {
		return
	}
	if n := len(p.Digests); n > 0 {
		f.tip = max(f.tip, p.Digests[n-1].Revision)
	}
	if p.To == p.At && p.To >= f.tip {
		f.level = time.Now()
	}
}

// node returns the node that is asked at present, false where the peering names
// none.
func (o *origin) node(f *feed) (protocol.Node, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodeAt(f.turn)
}

// headNode returns another node at each call, so that one that lags is noticed.
func (o *origin) headNode() (protocol.Node, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.headTurn++
	return o.nodeAt(o.headTurn)
}

func (o *origin) headFrom(n protocol.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.headGiver, o.headCame = n, time.Now()
}

// headSince reports whether a head that was asked for has come from the origin since then.
func (o *origin) headSince(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.headCame.After(t)
}

// lastHeadFrom returns which node gave the head that was asked for last and came.
func (o *origin) lastHeadFrom() (protocol.Node, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.headGiver, o.headGiver != protocol.Node{}
}

func (o *origin) nodeAt(turn int) (protocol.Node, bool) {
	addresses := o.peering.Load().Addresses
	if len(addresses) == 0 {
		return protocol.Node{}, false
	}

	return protocol.Node{Domain: o.domain, Base: addresses[turn%len(addresses)]}, true
}

// nodes returns all of the origin's nodes, the one that is asked at present first.
func (o *origin) nodes() []protocol.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []protocol.Node
	for i := range o.peering.Load().Addresses {
		if n, ok := o.nodeAt(o.turn + i); ok {
			all = append(all, n)
		}
	}
	return all
}

// failed notes an error and turns to the origin's next node.
func (o *origin) failed(f *feed, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastErr = err.Error()
	f.turn++
	f.failedAt = time.Now()
}

// complain notes an error that keeps nobody from going on.
func (o *origin) complain(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastErr = err.Error()
}

// nudge says so to a loop that may be asleep; once is enough.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A PeerStatus is what this node knows of one peering, from its own observation.
type PeerStatus struct {
	Domain       spiffeid.TrustDomain
	State        string             // active, behind, failing, unsupported or unlisted; or the peering's own, where that isn't active
	Position     directory.Position // applied
	Watermark    uint64
	Tip          uint64 // of its stream, as far as known
	LagRevisions uint64
	LagSeconds   float64
	HeadAge      time.Duration            // of its last verified word; 0 where there was none
	LastHeard    time.Time                // zero for never
	LastError    string                   // empty once something worked again
	Entries      uint64                   // held, the pending ones too
	Pending      int                      // of which records are missing
	Unlisted     bool                     // it lets this domain have nothing
	Hidden       bool                     // what it told, because it wasn't heard for long
	Records      uint64                   // held on disk, of both of its streams
	Bytes        uint64                   // of them
	RecordsLimit uint64                   // 0 for none
	BytesLimit   uint64                   // as RecordsLimit
	OverQuota    uint64                   // entries for whose records the peering's quotas have no room
	BytesIn      uint64                   // of the bodies that its nodes answered
	BytesOut     uint64                   // of those that its nodes were answered
	GossipIn     uint64                   // bytes that its nodes gossiped to this one
	GossipOut    uint64                   // and that this one gossiped to them
	Received     map[protocol.Code]uint64 // messages that name it, whoever brought them
	Refused      map[protocol.Code]uint64 // messages that its nodes brought, whomever they name

	// Unsupported says for what a later release is needed to follow the peer; "" for
	// nothing. Unopened are the records that are held and wait for a later release, by
	// their format.
	Unsupported string
	Unopened    map[string]uint64
}

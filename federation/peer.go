package federation

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
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
	domain   spiffeid.TrustDomain
	peering  *atomic.Pointer[directory.Peering] // as agreed; never nil
	base     directory.Clock                    // its messages are judged by it, and don't move it
	streams  *streams
	contacts *contacts
	keys     *keyHistory
	mailbox  mailbox
	loops    loops
	ask      chan struct{} // a reader waits for a head
	pull     chan struct{} // something may be missing

	// summary is what readers see of what mu guards; never nil.
	summary atomic.Pointer[summary]

	announced *rate.Limiter // digests; not guarded, as the next
	doubting  *rate.Limiter // looks for what revoked keys signed

	mu        guard        // guards what follows; taken before streams.mu, never held over disk I/O
	again     bool         // it may have been a peer before: evidence of that time isn't judged yet
	convicted bool         // frozen at this node; the domain hasn't done it yet
	unlisted  bool         // its newest key document doesn't list this domain for its mesh stream
	head      *signed.Head // the newest verified one
	headText  string
	headIs    time.Time          // when it was issued, by the origin's clock
	passedOn  directory.Position // how far pages of the origin were gossiped on by this node
	heard     time.Time          // when anything verified last came
	lastErr   string
	unread    unsupported
}

// A mailbox holds gossiped messages of an origin.
type mailbox struct {
	queue chan pushed // dropped when full: a pull brings the same
	late  []pushed    // wait for the key document; tend's own
}

// loops are the goroutines that follow an origin.
type loops struct {
	stop     context.CancelFunc // nil if none were started
	done     chan struct{}      // closed when they have ended
	removing atomic.Bool        // the origin is being removed from disk
}

// contacts chooses which of an origin's nodes is asked, and paces pulls of its key
// document.
type contacts struct {
	domain  spiffeid.TrustDomain
	peering *atomic.Pointer[directory.Peering]
	issuing *rate.Limiter // pulls of key documents that subscriptions announce

	// following has one item while a key document is pulled that a subscription announced,
	// because both subscriptions of an origin may announce it.
	following chan struct{}

	mu        sync.Mutex // guards what follows
	turns     map[directory.Audience]turn
	headTurn  int
	headGiver protocol.Node // of the last head that was asked for and came; zero before
	headCame  time.Time
	keysAsked time.Time
	keysDue   bool // a pull of keys was put off, because a pushed message had caused one just before
}

// A turn says which of an origin's addresses is asked for a stream.
type turn struct {
	n        int
	failedAt time.Time // when a node failed last
}

// keyHistory holds an origin's key documents: the newest, and earlier ones that list keys
// which the newest doesn't.
type keyHistory struct {
	mu      sync.Mutex // guards what follows; change is held as well when it is replaced
	newest  string
	past    []pastDocument  // the newest first
	revoked map[string]bool // keys of which nothing is held
	reads   readFormats
}

func newOrigin(td spiffeid.TrustDomain, index *index.Index, shared replica) *origin {
	peering := &atomic.Pointer[directory.Peering]{}
	peering.Store(&directory.Peering{})

	o := &origin{
		replica:   shared,
		domain:    td,
		peering:   peering,
		streams:   newStreams(td, index, peering, shared),
		keys:      &keyHistory{},
		mailbox:   mailbox{queue: make(chan pushed, 8)},
		ask:       make(chan struct{}, 1),
		pull:      make(chan struct{}, 1),
		announced: rate.NewLimiter(originRate, originBurst),
		doubting:  rate.NewLimiter(rate.Every(doubtEvery), doubtBurst),
		contacts: &contacts{
			domain:    td,
			peering:   peering,
			issuing:   rate.NewLimiter(rate.Every(keysEvery), issueBurst),
			following: make(chan struct{}, 1),
			turns:     map[directory.Audience]turn{},
		},
	}
	o.base.Advance(time.Now()) // from here on a step of the wall clock back is not seen
	o.mu.publish = o.publish
	o.publish()

	return o
}

func newStreams(td spiffeid.TrustDomain, index *index.Index, peering *atomic.Pointer[directory.Peering],
	shared replica) *streams {
	pair := &feedPair{mesh: newFeed(directory.Mesh), private: newFeed(directory.Only(shared.cfg.Domain))}
	shown := &shownIndex{cfg: shared.cfg, index: index, peering: peering}
	quotas := &quotas{cfg: shared.cfg, peering: peering, pair: pair}

	s := &streams{
		replica: shared,
		domain:  td,
		peering: peering,
		kick:    make(chan struct{}, 1),
		change:  newChangeLock(),
		pair:    pair,
		shown:   shown,
		quotas:  quotas,
		writer: &writer{
			cfg: shared.cfg, domain: td, store: shared.store, refusals: shared.refusals, quotas: quotas, shown: shown,
		},
		reader: &entryReader{
			cfg: shared.cfg, domain: td, store: shared.store, records: shared.records, pair: pair, shown: shown,
		},
	}
	s.readmitter = &readmitter{streams: s}
	s.rejudger = &rejudger{streams: s}
	s.comparer = &comparer{cfg: shared.cfg, streams: s, pace: rate.NewLimiter(compareRate, compareBurst)}
	s.pair.mesh.level = time.Now() // so that the lag of a first sync is counted from its beginning
	s.mu.publish = s.publish
	s.publish()

	return s
}

// accepts reports whether messages of this origin are taken at all.
func (o *origin) accepts() bool {
	return o.peering.Load().State == directory.PeeringActive && !o.streams.hasEnded() && !o.summary.Load().convicted
}

// A changeLock is a mutex that is not waited for while the disk does not answer.
type changeLock struct{ held chan struct{} }

func newChangeLock() changeLock { return changeLock{held: make(chan struct{}, 1)} }

// lock returns disk.ErrStalled, and does not lock, if the disk stalls meanwhile.
func (l changeLock) lock(s *store.Store) error { return s.Disk.Acquire(l.held) }

func (l changeLock) unlock() { <-l.held }

// renew shows an entry, if it is shown, with its later deadline.
func (sx *shownIndex) renew(rid directory.RID, h *store.Entry) {
	old, ok := sx.index.Get(rid)
	if !ok {
		return
	}
	e, r := *old, *old.Received
	e.Received = &r
	describe(h, &e, sx.peering.Load().Import.MaxLifetime)
	sx.put(&e)
}

// saved is what is kept on disk of the origin. Its time is rule T4's floor. o.change is
// held.
func (o *origin) saved(floor time.Time) store.Origin {
	o.mu.Lock()
	defer o.mu.Unlock()

	st := store.Origin{Floor: floor.UnixMilli(), Head: o.headText, Keys: o.keys.newestText()}
	st.Epoch = o.streams.shownEpoch()

	return st
}

// heardPage notes that a page was applied.
func (o *origin) heardPage() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.heard = time.Now()
	o.lastErr = ""
	o.unread.page = nil
}

// node returns the node that is asked at present, false where the peering names
// none.
func (ct *contacts) node(f *feed) (protocol.Node, bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	return ct.nodeAt(ct.turns[f.aud].n)
}

// headNode returns another node at each call, so that one that lags is noticed.
func (ct *contacts) headNode() (protocol.Node, bool) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	ct.headTurn++
	return ct.nodeAt(ct.headTurn)
}

func (ct *contacts) headFrom(n protocol.Node) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	ct.headGiver, ct.headCame = n, time.Now()
}

// headSince reports whether a head that was asked for has come from the origin since then.
func (ct *contacts) headSince(t time.Time) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	return ct.headCame.After(t)
}

// lastHeadFrom returns which node gave the head that was asked for last and came.
func (ct *contacts) lastHeadFrom() (protocol.Node, bool) {
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

// nodes returns all of the origin's nodes, the one that is asked at present first.
func (ct *contacts) nodes() []protocol.Node {
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

// failed notes an error and turns to the origin's next node.
func (o *origin) failed(f *feed, err error) {
	o.complain(err)
	o.contacts.failed(f.aud)
}

// failed turns to the next node for a stream.
func (ct *contacts) failed(aud directory.Audience) {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	ct.turns[aud] = turn{n: ct.turns[aud].n + 1, failedAt: time.Now()}
}

// failedSince reports whether a node failed to answer for a stream after a time.
func (ct *contacts) failedSince(aud directory.Audience, since time.Time) bool {
	ct.mu.Lock()
	defer ct.mu.Unlock()

	return ct.turns[aud].failedAt.After(since)
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

package replica

import (
	"context"
	"sync"
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

// An Origin is another domain as this node follows it: its mesh stream and its private stream to
// this domain, on disk and in the index, its head, its key documents and observations of its nodes.
type Origin struct {
	Deps
	feedPair // guarded by change and mu
	Domain   spiffeid.TrustDomain
	Peering  atomic.Pointer[directory.Peering] // as agreed; never nil
	base     directory.Clock                   // its messages are judged by it, and don't move it
	Shown    shownIndex                        // guarded by mu
	Contacts contacts
	Answers  answers
	Theirs   standings
	Keys     keyHistory
	Doubts   doubts
	// keyDoubts are about key documents. They are compared by a question of their own, so they have no part
	// in the rounds of Doubts.
	keyDoubts doubts
	Mailbox   mailbox
	Loops     loops
	Ask       chan struct{} // a reader waits for a head
	Pull      chan struct{} // something may be missing
	Kick      chan struct{} // has an item if a record is missing

	Announced   *rate.Limiter // digests
	comparePace *rate.Limiter // pages of a chain that are read to compare
	repulls     *rate.Limiter // searches for pages signed by revoked keys

	Again atomic.Bool // it may have been a peer before: evidence of that time isn't judged yet
	Room  atomic.Bool // records may fit that didn't fit at the last Readmit

	// reached caches the last result of findPosition, and is nil after a change. Writers
	// hold mu; readers need no lock.
	reached atomic.Pointer[directory.Position]

	// summary is the part that readers see of the fields that mu guards; never nil.
	summary atomic.Pointer[summary]

	trees [2]signedTrees // of the feeds, in the order of Feeds

	// open is nil if nothing is unconfirmed.
	open atomic.Pointer[unconfirmedState]

	// change orders changes on disk and in memory. It is the only lock that is held over
	// disk I/O, and is taken before mu. A change replaces the feeds' streams and their
	// contents while both are held, so the holder of either may read them.
	change changeLock

	mu        guard // guards the fields below, the feeds and the index; not held over disk I/O
	ended     bool
	convicted bool               // frozen at this node; the domain hasn't done it yet
	unlisted  bool               // its newest key document doesn't list this domain for its mesh stream
	swapping  bool               // the streams of an epoch take the place of others
	unshown   bool               // a stored entry isn't shown yet, because it could not be read
	judging   *judging           // the import policy has changed; nil if the index is in line
	shownUpTo directory.Position // the last position that was found before unshown or swapping was set
	head      *signed.Head       // the newest verified one; says where the mesh stream ends (rule G5)
	kept      store.Origin       // the next write of the origin's state, but for epoch and floor
	headIs    time.Time          // when head was issued, by the origin's clock
	pageIs    time.Time          // when the newest applied page was issued, likewise
	passedOn  directory.Position // how far pages of the origin were gossiped on by this node
	heard     time.Time          // when anything verified last came
	lastErr   string
	unread    unsupported

	run    context.Context // ends with the next rewind
	endRun context.CancelFunc
}

// Run returns a context that ends when the streams are pulled from their beginning again: a pull that a
// node holds at the former position is then of no use.
func (o *Origin) Run() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.run
}

// newestID returns the stream of a feed that a puller fills; false for none.
func (o *Origin) newestID(feed *Feed) (id store.StreamID, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	id = feed.Newest().Id

	return id, id != store.StreamID{}
}

// New returns an origin that this node holds nothing of. Load fills it from disk.
func New(td spiffeid.TrustDomain, index *index.Index, shared Deps) *Origin {
	own := directory.Only(shared.Cfg.Domain)

	origin := &Origin{
		Deps:        shared,
		feedPair:    feedPair{Mesh: newFeed(directory.Mesh), Private: newFeed(own)},
		Domain:      td,
		Mailbox:     mailbox{Queue: make(chan Pushed, 8)},
		Ask:         make(chan struct{}, 1),
		Pull:        make(chan struct{}, 1),
		Kick:        make(chan struct{}, 1),
		Announced:   rate.NewLimiter(originRate, originBurst),
		comparePace: rate.NewLimiter(compareRate, compareBurst),
		repulls:     rate.NewLimiter(rate.Every(RepullEvery), RepullBurst),
		change:      newChangeLock(),
	}
	origin.run, origin.endRun = context.WithCancel(context.Background())
	origin.Peering.Store(&directory.Peering{})
	origin.Shown = shownIndex{cfg: shared.Cfg, Index: index, peering: &origin.Peering}
	origin.Contacts = contacts{
		domain:    td,
		audiences: [2]directory.Audience{directory.Mesh, own},
		peering:   &origin.Peering,
		Issuing:   rate.NewLimiter(rate.Every(KeysEvery), issueBurst),
		Following: make(chan struct{}, 1),
		turns:     map[directory.Audience]turn{},
	}
	origin.Mesh.level = time.Now() // so that the lag of a first sync is counted from its beginning
	origin.base.Checked = index.Clock.Checked
	origin.base.Advance(index.Clock.Checked.Now()) // from here on a step of the wall clock back is not seen
	origin.mu.publish = origin.publish
	origin.publish()

	return origin
}

// A mailbox holds gossiped messages of an origin.
type mailbox struct {
	Queue chan Pushed // dropped when full: a pull brings the same
	Late  []Pushed    // wait for the key document; tend's own
}

// loops are the goroutines that follow an origin.
type loops struct {
	Stop     context.CancelFunc // nil if none were started
	Done     chan struct{}      // closed when they have ended
	Removing atomic.Bool        // the origin is being removed from disk
}

// Running reports whether the loops of an origin were started and haven't ended.
func (lp *loops) Running() bool {
	if lp.Stop == nil {
		return false
	}

	select {
	case <-lp.Done:
		return false
	default:
		return true
	}
}

// Halt asks the loops of an origin to end, and reports whether they have ended.
func (lp *loops) Halt() bool {
	if lp.Stop != nil {
		lp.Stop()
	}

	return !lp.Running()
}

// Wait ends the loops of an origin and waits for them.
func (lp *loops) Wait() {
	if !lp.Halt() {
		<-lp.Done
	}
}

// Accepts reports whether messages of this origin are taken at all.
func (o *Origin) Accepts() bool {
	seen := o.summary.Load()

	return o.Peering.Load().State == directory.PeeringActive && !seen.ended && !seen.convicted
}

// HasEnded reports whether the peering has ended, so that nothing more is kept.
func (o *Origin) HasEnded() bool { return o.summary.Load().ended }

// IsUnlisted reports whether the origin's newest key document doesn't list this domain for its
// mesh stream.
func (o *Origin) IsUnlisted() bool { return o.summary.Load().status.NotExported }

// IsFrozen reports whether nothing new is accepted because of evidence, which this node or the
// domain has judged.
func (o *Origin) IsFrozen() bool {
	return o.summary.Load().convicted || o.Peering.Load().State == directory.PeeringFrozen
}

// SetConvicted freezes the origin at this node, or ends that.
func (o *Origin) SetConvicted(convicted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.convicted = convicted
}

// Change runs do while nothing else changes the origin's state on disk and in memory. It
// returns store.ErrStalled if the disk doesn't respond.
func (o *Origin) Change(do func() error) error {
	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	return do()
}

// saved returns the state of the origin that is kept on disk, with rule T4's floor. The
// caller holds change.
func (o *Origin) saved() store.Origin {
	st := o.summary.Load().kept
	st.Floor = o.Shown.Index.Clock.Now().UnixMilli()

	return st
}

// Failed records an error of a node and selects the origin's next node.
func (o *Origin) Failed(f *Feed, node protocol.Node, err error) {
	o.Complain(err)
	o.Contacts.failed(f.Aud, node)
}

// Complain records an error after which the origin's loops continue.
func (o *Origin) Complain(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.lastErr = err.Error()
}

// hear records the arrival of a verified message.
func (o *Origin) hear() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.heard = time.Now()
}

// SaveClock stores the origin's clock (rule T4).
func (o *Origin) SaveClock() error {
	return o.Change(func() error {
		if o.HasEnded() || o.Mesh.Cur == nil {
			return nil
		}

		return o.Store.SaveOrigin(o.Domain, o.saved())
	})
}

// Furthest reports whether a page ends after all pages that were passed on. If so, it
// counts the page as passed on.
func (o *Origin) Furthest(page *Page) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	to := directory.Position{Epoch: page.Epoch, Revision: page.To}
	if !o.passedOn.Before(to) {
		return false
	}

	o.passedOn = to

	return true
}

// newestHead returns the newest verified head and its text, nil for none.
func (o *Origin) newestHead() (*signed.Head, string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.head, o.kept.Head
}

// NewestHead returns the newest verified head, "" for none.
func (o *Origin) NewestHead() string { return o.summary.Load().kept.Head }

// Silent reports whether the last sign of life of an origin is too old. If the origin gives
// this domain no readable head, any verified message counts.
func (o *Origin) Silent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.unlisted || o.unread.head != nil {
		return time.Since(o.heard) > MaxHeadAge
	}

	return o.Shown.Index.Clock.Now().Sub(o.headIs) > MaxHeadAge
}

// Load fills memory from disk before any loop runs. Accepted pages and records stay
// accepted, whether or not the present keys would verify them.
func (o *Origin) Load(saved store.Origin, peering *directory.Peering) (err error) {
	// The quotas may have been raised since the last run.
	o.Room.Store(true)
	o.Peering.Store(peering)

	if saved.Floor > 0 {
		o.Shown.Index.Clock.Advance(time.UnixMilli(saved.Floor))
		o.base.Advance(time.UnixMilli(saved.Floor))
	}

	past, err := o.loadPast(o.Domain)
	if err != nil {
		return err
	}

	o.Keys.replace(saved.Keys, past)
	o.kept = store.Origin{Keys: saved.Keys, Distrusted: saved.Distrusted} // loadHead adds the head

	if saved.Keys != "" {
		if _, err := o.Cfg.Keys.Adopt(o.Domain, saved.Keys); err != nil {
			o.Cfg.Logger.Info("the key document on disk is no longer valid; the peer is asked for its newest",
				"origin", o.Domain.Name(), "err", err)
		}
	}

	if err := o.Doubts.load(saved.Distrusted); err != nil {
		return err
	}

	if err := o.loadStreams(saved); err != nil {
		return err
	}

	o.loadHead(saved.Head)

	if err := o.loadPage(); err != nil {
		return err
	}

	// The node may have stopped between a revocation and the search for its signatures.
	if doc, _, ok := o.Cfg.Keys.Keys(o.Domain); ok {
		if err := o.RepullRevoked(doc); err != nil {
			return err
		}
	}

	if err := o.obey(); err != nil { // the machine may have stopped before it was done
		return err
	}

	o.publish()

	return nil
}

// A guard is a mutex that publishes the guarded fields when it is unlocked, for readers
// that take no lock.
type guard struct {
	sync.Mutex
	publish func() // is called while the mutex is held
}

// Unlock publishes and unlocks.
func (g *guard) Unlock() {
	g.publish()
	g.Mutex.Unlock()
}

// A changeLock is a mutex that is not waited for while the disk does not answer.
type changeLock struct{ held chan struct{} }

func newChangeLock() changeLock { return changeLock{held: make(chan struct{}, 1)} }

// Lock returns store.ErrStalled, and does not lock, if the disk stalls meanwhile.
func (l changeLock) Lock(s *store.Store) error { return s.Disk.Acquire(l.held) }

func (l changeLock) Unlock() { <-l.held }

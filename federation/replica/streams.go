package replica

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// streams holds an origin's mesh stream and its private stream to this domain, on disk and
// in the index.
type streams struct {
	Deps
	domain  spiffeid.TrustDomain
	peering *atomic.Pointer[directory.Peering] // as agreed; never nil

	Pair   *feedPair
	Shown  *shownIndex
	Quotas *quotas
	Writer *writer
	reader *entryReader

	ComparePace *rate.Limiter // pages of a chain that are read to compare
	Room        atomic.Bool   // records may fit that didn't fit at the last Readmit

	// Reached caches the last result of findPosition, and is nil after a change. Writers
	// hold mu; readers need no lock.
	Reached atomic.Pointer[directory.Position]

	// summary is the part that readers see of the fields that mu guards; never nil.
	summary atomic.Pointer[streamsSummary]

	Kick chan struct{} // has an item if a record is missing

	// change orders changes on disk and in memory. It is the only lock that is held over
	// disk I/O, and is taken before mu. A change replaces the feeds' streams and their
	// contents while both are held, so the holder of either may read them.
	Change changeLock

	mu        guard // guards the fields below and the index; never held over disk I/O
	ended     bool
	swapping  bool               // the streams of an epoch take the place of others
	Judging   *judging           // the import policy has changed; nil if the index is in line
	unshown   bool               // a stored entry isn't shown yet, because it could not be read
	shownUpTo directory.Position // the last position that was found before unshown or swapping was set
	head      *signed.Head       // the newest verified one; says where the mesh stream ends (rule G5)
}

// HasEnded reports whether the peering has ended, so that nothing more is kept.
func (ss *streams) HasEnded() bool { return ss.summary.Load().ended }

// End hides the registrations of a former peer without waiting for the disk. Nothing more
// is accepted from the peer afterwards.
func (ss *streams) End() {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if !ss.ended {
		ss.ended = true
		ss.Cfg.View.Drop(ss.domain)
	}
}

// SetPeering takes the peering as it is agreed now.
func (ss *streams) SetPeering(peering *directory.Peering) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	changed := !ss.peering.Load().Import.Equal(peering.Import)
	ss.peering.Store(peering)

	if changed {
		ss.rejudge()
	}
}

// SetStale hides the origin's registrations, or shows them again. It reports whether
// that is a change.
func (ss *streams) SetStale(stale bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if stale == ss.Shown.stale || ss.ended {
		return false
	}

	ss.Shown.stale = stale
	ss.rejudge()

	return true
}

// SetShed takes the origin's registrations out of the index, because the node is short of memory,
// or shows them again. The disk keeps them. It reports whether that is a change.
func (ss *streams) SetShed(shed bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if shed == ss.Shown.shed || ss.ended {
		return false
	}

	ss.Shown.shed = shed
	ss.rejudge()

	return true
}

// noteHead stores the end of the mesh stream according to a newer head. It reports false
// if the peering has ended, or if the epoch of the head hasn't begun here. restarts says
// that the head is of a later epoch than the previous head.
func (ss *streams) noteHead(head *signed.Head, restarts bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	st := ss.Pair.Mesh.existing(head.Epoch)
	if ss.ended || st == nil && head.Epoch >= ss.Pair.Mesh.Newest().Id.Epoch {
		return false
	}

	if restarts {
		ss.Pair.Mesh.tip = 0
	}

	ss.head = head
	ss.Reached.Store(nil)
	ss.Pair.Mesh.tip = max(ss.Pair.Mesh.tip, head.Tip)

	if st != nil && st.State.Watermark >= head.Tip {
		ss.Pair.Mesh.level = time.Now()
	}

	return true
}

// loadHead is noteHead of a head that was kept on disk. Nothing runs yet.
func (ss *streams) loadHead(h *signed.Head) {
	ss.head = h
	ss.Pair.Mesh.tip = h.Tip
}

// forgetHead forgets where the mesh stream ends.
func (ss *streams) forgetHead() {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	ss.head = nil
	ss.Reached.Store(nil)
}

// newestEpoch returns the newest epoch that is followed of a stream.
func (ss *streams) newestEpoch(aud directory.Audience) uint64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	return ss.Pair.FeedOf(aud).Newest().Id.Epoch
}

// shownEpoch returns the epoch of the mesh stream that is shown, 0 for none.
func (ss *streams) shownEpoch() uint64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if ss.Pair.Mesh.Cur == nil {
		return 0
	}

	return ss.Pair.Mesh.Cur.Id.Epoch
}

// ChainOf returns a feed's stream that is shown and its state, and whether one of a newer
// epoch is gathered beside it.
func (ss *streams) ChainOf(feed *Feed) (st *Stream, state store.State, gathering bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if feed.Cur != nil {
		state = feed.Cur.State
	}

	return feed.Cur, state, feed.next != nil
}

func newStreams(td spiffeid.TrustDomain, index *index.Index, peering *atomic.Pointer[directory.Peering],
	shared Deps) *streams {
	pair := &feedPair{Mesh: newFeed(directory.Mesh), Private: newFeed(directory.Only(shared.Cfg.Domain))}
	shown := &shownIndex{cfg: shared.Cfg, Index: index, peering: peering}
	quotas := &quotas{cfg: shared.Cfg, peering: peering, pair: pair}

	s := &streams{
		Deps:    shared,
		domain:  td,
		peering: peering,
		Kick:    make(chan struct{}, 1),
		Change:  newChangeLock(),
		Pair:    pair,

		ComparePace: rate.NewLimiter(compareRate, compareBurst),
		Shown:       shown,
		Quotas:      quotas,
		Writer: &writer{
			cfg: shared.Cfg, domain: td, store: shared.Store, refusals: shared.Refusals, quotas: quotas, shown: shown,
		},
		reader: &entryReader{
			cfg: shared.Cfg, domain: td, store: shared.Store, records: shared.Records, pair: pair, shown: shown,
		},
	}
	s.Pair.Mesh.level = time.Now() // so that the lag of a first sync is counted from its beginning
	s.mu.publish = s.publish
	s.publish()

	return s
}

// Apply repeats the effects of a disk transaction in memory. If page isn't nil, the feed's
// progress becomes visible to readers at the same moment. A stream that isn't shown yet
// changes no index. The caller holds Change.
func (ss *streams) Apply(feed *Feed, st *Stream, done Changes, page *Page) {
	var twice alternatives
	if st == feed.Cur {
		twice = ss.alternativesTo(feed, done.effects)
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	ss.account(st, done)
	ss.Reached.Store(nil)

	for _, effect := range done.effects {
		if effect.missing {
			st.Missing.add(effect.digest)
		} else {
			st.Missing.remove(effect.digest.RID)
		}
	}

	if page != nil {
		feed.progress(st, page)
	}

	if st != feed.Cur {
		return
	}

	for _, effect := range done.effects {
		rid := effect.digest.RID
		entries, both := twice[rid]

		switch {
		case both:
			ss.Shown.show(rid, entries...)
		case effect.renew != nil:
			ss.Shown.renew(rid, effect.renew)
		case effect.entry != nil:
			ss.Shown.show(rid, effect.entry)
		default:
			ss.Shown.Index.Delete(rid)
		}
	}
}

// account adds the changes of a transaction to its stream's totals. The caller holds
// Change and mu.
func (ss *streams) account(st *Stream, done Changes) {
	wasFull := ss.Quotas.missingRoom(st, store.Usage{}) <= 0
	st.State = done.State
	st.Used = st.Used.Plus(done.Delta)
	st.Owners.Absorb(done.owners)

	if done.Delta.Records < 0 || done.Delta.Bytes < 0 || wasFull && ss.Quotas.missingRoom(st, store.Usage{}) > 0 {
		ss.Room.Store(true)
	}
}

// alternativesTo reads the alternatives to effects on a feed. If they can't be read, the
// entries are shown later. The caller holds Change.
func (ss *streams) alternativesTo(f *Feed, effects []effect) alternatives {
	found, err := ss.reader.readAlternatives(f, effects)
	if err != nil {
		if !errors.Is(err, store.ErrStalled) {
			ss.Cfg.Logger.Error("reading a peer's stored records failed", "origin", ss.domain.Name(), "err", err)
		}

		ss.showLater()
	}

	return found
}

// Hide removes the entries of a feed that pick selects from the index. If the other feed
// has the same registration, its entry is shown instead. The caller holds Change.
func (ss *streams) Hide(feed *Feed, pick func(*directory.Entry) bool) {
	private := feed == &ss.Pair.Private

	var effects []effect
	for e := range ss.Shown.Index.All() {
		if e.Received.Private == private && pick(e) {
			effects = append(effects, effect{digest: signed.Digest{RID: e.RID}})
		}
	}

	twice := ss.alternativesTo(feed, effects)

	ss.mu.Lock()
	defer ss.mu.Unlock()

	for _, e := range effects {
		ss.Shown.show(e.digest.RID, twice[e.digest.RID]...)
	}
}

// AcceptRecords takes records that came for wanted entries.
func (ss *streams) AcceptRecords(st *Stream, wanted []signed.Digest,
	records map[protocol.RecordName]recordgate.Fetched) error {
	return ss.Cfg.Panics.Run(contain.Record, func() error { return ss.keepRecords(st, wanted, records) })
}

func (ss *streams) keepRecords(st *Stream, wanted []signed.Digest,
	records map[protocol.RecordName]recordgate.Fetched) error {
	opened := ss.Records.Open(ss.domain, &signed.Page{Epoch: st.Id.Epoch, Digests: wanted}, records)

	if err := ss.Change.Lock(ss.Store); err != nil {
		return err
	}

	defer ss.Change.Unlock()

	feed := ss.Pair.FeedOf(st.Id.Audience)
	if ss.HasEnded() || (st != feed.Cur && st != feed.next) {
		return nil
	}

	done, err := ss.Writer.writeRecords(st, opened)
	if err != nil {
		return err
	}

	ss.Apply(feed, st, done, nil)
	ss.Moved()

	return nil
}

// Sweep removes entries whose deadline passed at least directory.Skew ago, on disk and in
// the index. It removes up to limit entries of each stream, and returns when the next is due.
func (ss *streams) Sweep(limit int) (next time.Time, err error) {
	if err := ss.Change.Lock(ss.Store); err != nil {
		return next, err
	}

	defer ss.Change.Unlock()

	for _, feed := range ss.Pair.Feeds() {
		for _, st := range []*Stream{feed.Cur, feed.next} {
			if st == nil || ss.HasEnded() {
				continue
			}

			before := ss.Shown.Index.Clock.Now().Add(-directory.Skew)

			due, err := ss.sweepStream(feed, st, before.Unix()+1, limit)
			if err != nil {
				return next, err
			}

			if at := time.Unix(due, 0).Add(directory.Skew); due != 0 && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}

	return next, nil
}

func (ss *streams) sweepStream(feed *Feed, st *Stream, before int64, limit int) (next int64, err error) {
	var rids []directory.RID

	err = ss.Store.Read(st.Id, func(t *store.Tx) (err error) {
		rids, next, err = t.DueBefore(before, limit)
		return err
	})
	if err != nil || len(rids) == 0 {
		return next, err
	}

	return next, ss.removeAll(feed, st, rids)
}

// removeAll removes entries of a stream, on disk and in the index. The caller holds Change.
func (ss *streams) removeAll(feed *Feed, st *Stream, rids []directory.RID) error {
	var (
		done Changes
		err  error
	)

	done.State, err = ss.Store.Change(st.Id, func(t *store.Tx) error {
		for _, rid := range rids {
			old, err := t.Get(rid)
			if err == nil {
				err = t.Remove(rid, old)
			}

			if err != nil {
				return err
			}
		}

		done.Delta, done.owners = t.Delta, t.Owners

		return nil
	})
	if err != nil {
		return err
	}

	for _, rid := range rids {
		done.effects = append(done.effects, effect{digest: signed.Digest{RID: rid}})
	}

	ss.Apply(feed, st, done, nil)

	return nil
}

// ShownStream returns the stream of an audience that is shown, or nil.
func (ss *streams) ShownStream(aud directory.Audience) *Stream {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if f := ss.Pair.FeedOf(aud); f != nil {
		return f.Cur
	}

	return nil
}

// Since returns the revision after which to pull.
func (ss *streams) Since(feed *Feed) uint64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	return feed.Newest().State.Watermark
}

// caughtUp reports whether the origin's private stream is complete here up to position.
func (ss *streams) caughtUp(position directory.Position) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	st := ss.Pair.Private.Cur
	if st == nil {
		return false
	}

	have := directory.Position{Epoch: st.Id.Epoch, Revision: min(st.State.Watermark, st.Missing.complete())}

	return !have.Before(position)
}

// Blank reports whether a feed has no stream here.
func (ss *streams) Blank(feed *Feed) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	return feed.Cur == nil && feed.next == nil
}

// Fit returns the stream of a page, and reports whether the page will be applicable once
// the stream has reached done (apt). full reports that an applicable page exceeds the quotas.
func (ss *streams) Fit(page *Page, done Ahead) (id store.StreamID, full, apt bool) {
	id = store.StreamID{Origin: page.Issuer, Audience: page.Audience, Epoch: page.Epoch}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	feed := ss.Pair.FeedOf(page.Audience)

	st := feed.existing(page.Epoch)
	if st == nil {
		if page.Epoch < feed.Newest().Id.Epoch {
			return id, false, false
		}

		st = newStream(id) // which the page begins
	}

	mark := st.State.Watermark
	apt = mark < page.To && (page.From <= mark || page.Epoch == done.Epoch && page.From <= done.Watermark)

	return id, apt && ss.Quotas.full(st, store.Usage{}), apt
}

// Ahead is the position of a stream after the pages under way are applied; zero if no page
// is under way.
type Ahead struct{ Epoch, Watermark uint64 }

// Position returns the position up to which readers see every announced change. A missing
// record delays it only until a request for that record has failed.
func (ss *streams) Position() (directory.Position, bool) {
	if reached := ss.Reached.Load(); reached != nil {
		return *reached, true
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	if ss.Pair.Mesh.Cur == nil {
		return directory.Position{}, false
	}

	return ss.findPosition(), true
}

// findPosition computes the position of the mesh stream that is shown. The caller holds mu.
func (ss *streams) findPosition() directory.Position {
	if ss.unshown || ss.swapping {
		return ss.shownUpTo
	}

	position := directory.Position{Epoch: ss.Pair.Mesh.Cur.Id.Epoch, Revision: ss.Pair.Mesh.Cur.State.Watermark}
	if h := ss.head; h != nil && h.Epoch == position.Epoch && h.Tip <= position.Revision {
		position.Revision = max(position.Revision, h.At) // nothing changed here in between (rule G5)
	}

	position.Revision = min(position.Revision, ss.Pair.Mesh.Cur.Missing.complete())

	ss.Reached.Store(&position)
	ss.shownUpTo = position

	return position
}

// publish replaces the summary by the present one. The caller holds mu, or nothing runs yet.
func (ss *streams) publish() {
	newest := ss.Pair.Mesh.Newest()
	seen := &streamsSummary{ended: ss.ended, level: ss.Pair.Mesh.level}

	status := &seen.status
	status.Domain = ss.domain
	status.Watermark = newest.State.Watermark
	status.Tip = max(ss.Pair.Mesh.tip, status.Watermark)
	status.LagRevisions = status.Tip - status.Watermark
	status.Entries = newest.State.Live
	status.Pending = newest.Missing.Len()
	status.Hidden = ss.Shown.stale
	status.Shed = ss.Shown.shed

	for _, feed := range ss.Pair.Feeds() {
		if feed.Cur == nil {
			continue
		}

		status.Records += uint64(feed.Cur.Used.Records)
		status.Bytes += uint64(feed.Cur.Used.Bytes)

		status.OverQuota += uint64(feed.Cur.Used.OverQuota)
		for format, n := range feed.Cur.Used.Unopened {
			seen.waits[format] += n
		}
	}

	if private := ss.Pair.Private.Cur; private != nil {
		status.Entries += private.State.Live
		status.Pending += private.Missing.Len()
	}

	ss.summary.Store(seen)

	if ss.Pair.Mesh.Cur != nil && ss.Reached.Load() == nil {
		ss.findPosition()
	}
}

// A streamsSummary is the part that readers see of an origin's streams. It never changes either.
type streamsSummary struct {
	status PeerStatus // the part of it that the streams know
	waits  store.Unopened
	ended  bool
	level  time.Time
}

// Behind reports whether the origin is known to have announced more than is here.
func (ss *streams) Behind() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	return ss.Pair.Mesh.Newest().State.Watermark < ss.Pair.Mesh.tip
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

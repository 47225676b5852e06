package federation

import (
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// streams holds what an origin announces to the mesh and to this domain alone, on disk
// and in the index.
type streams struct {
	replica
	domain  spiffeid.TrustDomain
	peering *atomic.Pointer[directory.Peering] // as agreed; never nil

	pair       *feedPair
	shown      *shownIndex
	quotas     *quotas
	writer     *writer
	reader     *entryReader
	readmitter *readmitter
	rejudger   *rejudger
	comparer   *comparer

	// reached is what position found last, nil once anything changed. It is replaced
	// while mu is held and read without.
	reached atomic.Pointer[directory.Position]

	// summary is what readers see of what mu guards; never nil.
	summary atomic.Pointer[streamsSummary]

	kick chan struct{} // has an item if a record is missing

	// change orders changes on disk and in memory. It is the only lock that is held over
	// disk I/O, and is taken before mu. A change replaces the feeds' streams and their
	// contents while both are held, so the holder of either may read them.
	change changeLock

	mu        guard // guards what follows and what index shows; never held over disk I/O
	ended     bool
	swapping  bool               // the streams of an epoch take the place of others
	shownUpTo directory.Position // what position found before unshown or swapping
	head      *signed.Head       // the newest verified one; says where the mesh stream ends (rule G5)
	feed      feed               // its mesh stream
	private   feed               // what it announces to this domain alone
}

// hasEnded reports whether the peering has ended, so that nothing more is kept.
func (ss *streams) hasEnded() bool { return ss.summary.Load().ended }

// end hides what the former peer announced, which waits for no disk, and takes no more.
func (ss *streams) end() {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if !ss.ended {
		ss.ended = true
		ss.cfg.View.Drop(ss.domain)
	}
}

// setPeering takes the peering as it is agreed now.
func (ss *streams) setPeering(p *directory.Peering) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	changed := !ss.peering.Load().Import.Equal(p.Import)
	ss.peering.Store(p)

	if changed {
		ss.rejudger.rejudge()
	}
}

// setStale hides what is held, or shows it again, and reports whether that is a change.
func (ss *streams) setStale(stale bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if stale == ss.shown.stale || ss.ended {
		return false
	}

	ss.shown.stale = stale
	ss.rejudger.rejudge()

	return true
}

// noteHead notes where the mesh stream ends by a newer head. It reports false if the
// peering has ended, or if the head is of an epoch that hasn't begun here. restarts says
// that the head is of a later epoch than the one before.
func (ss *streams) noteHead(h *signed.Head, restarts bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	st := ss.pair.mesh.existing(h.Epoch)
	if ss.ended || st == nil && h.Epoch >= ss.pair.mesh.newest().id.Epoch {
		return false
	}

	if restarts {
		ss.pair.mesh.tip = 0
	}

	ss.head = h
	ss.reached.Store(nil)
	ss.pair.mesh.tip = max(ss.pair.mesh.tip, h.Tip)

	if st != nil && st.state.Watermark >= h.Tip {
		ss.pair.mesh.level = time.Now()
	}

	return true
}

// loadHead is noteHead of a head that was kept on disk. Nothing runs yet.
func (ss *streams) loadHead(h *signed.Head) {
	ss.head = h
	ss.pair.mesh.tip = h.Tip
}

// forgetHead forgets where the mesh stream ends.
func (ss *streams) forgetHead() {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	ss.head = nil
	ss.reached.Store(nil)
}

// newestEpoch returns the newest epoch that is followed of a stream.
func (ss *streams) newestEpoch(aud directory.Audience) uint64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	return ss.pair.feedOf(aud).newest().id.Epoch
}

// shownEpoch returns the epoch of the mesh stream that is shown, 0 for none.
func (ss *streams) shownEpoch() uint64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if ss.pair.mesh.cur == nil {
		return 0
	}

	return ss.pair.mesh.cur.id.Epoch
}

// chainOf returns a feed's stream that is shown and its state, and whether one of a newer
// epoch is gathered beside it.
func (ss *streams) chainOf(f *feed) (st *stream, state store.State, gathering bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if f.cur != nil {
		state = f.cur.state
	}

	return f.cur, state, f.next != nil
}

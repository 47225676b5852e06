package replica

import (
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// The import policy may change while an origin has hundreds of thousands of registrations.
// The index is therefore brought in line in steps. Between the steps pages are accepted and
// readers are answered. New entries are judged by the new policy at once.

// JudgeBatch bounds the entries of one step, and with it the time that the step holds the
// origin's locks.
const JudgeBatch = 256

// A judging is the progress of applying a changed import policy. streams.mu guards it,
// except for of and after, which belong to the loop.
type judging struct {
	rules bool               // the policy changed, and shown isn't filled yet
	shown []*directory.Entry // to check first, so that refused entries disappear soon
	feed  int                // number of the feed whose entries are being checked
	of    *Stream            // the shown stream of that feed
	after []byte             // the key of the last entry that was checked
}

// rejudge makes the index follow the present import policy. If nothing is to be shown it clears the
// index at once, and otherwise it wakes the loop that judges. The caller holds streams.mu.
func (ss *streams) rejudge() {
	ss.Room.Store(true)
	ss.Judging = nil

	if ss.Shown.isEmpty() {
		ss.unshown = false // nothing is to be shown
		ss.Shown.Index.Clear()
		ss.Moved()

		return
	}

	ss.Judging = &judging{rules: true}
	Wake(ss.Judge)
}

// showLater makes the loop show stored entries that could not be read when they were due to
// be shown. Until then the origin's position doesn't advance.
func (ss *streams) showLater() {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	if ss.Shown.isEmpty() {
		return
	}

	ss.unshown = true

	anew := &judging{}
	if ss.Judging != nil {
		anew.rules, anew.shown = ss.Judging.rules, ss.Judging.shown
	}

	ss.Judging = anew
	Wake(ss.Judge)
}

// HideSome removes refused entries of one batch from the index. It reports whether there
// was a batch.
func (ss *streams) HideSome() (more bool) {
	ss.listShown()

	ss.mu.Lock()
	defer ss.mu.Unlock()

	j := ss.Judging
	if j == nil || ss.ended || len(j.shown) == 0 {
		return false
	}

	n := min(JudgeBatch, len(j.shown))
	for _, e := range j.shown[:n] {
		if now, ok := ss.Shown.Index.Get(e.RID); ok && !ss.Shown.admits(now) {
			ss.Shown.Index.Delete(e.RID)
		}
	}

	j.shown = j.shown[n:]

	return true
}

// listShown lists the indexed entries to judge by a changed policy. It doesn't hold
// streams.mu while it reads the index, because that may take long. Entries shown meanwhile
// are judged by the new policy anyway.
func (ss *streams) listShown() {
	ss.mu.Lock()
	j := ss.Judging
	due := j != nil && j.rules
	ss.mu.Unlock()

	if !due {
		return
	}

	shown := slices.Collect(ss.Shown.Index.All())

	ss.mu.Lock()
	defer ss.mu.Unlock()

	if ss.Judging == j {
		j.rules, j.shown = false, shown
	}
}

// JudgeSome takes one step, and reports whether there is more to do.
func (ss *streams) JudgeSome() (more bool) {
	if ss.HideSome() {
		return true
	}

	if ss.Change.Lock(ss.Store) != nil {
		return false // the end of the stall wakes the judges
	}

	defer ss.Change.Unlock()

	ss.mu.Lock()

	j := ss.Judging
	if j != nil && (ss.ended || j.feed == len(ss.Pair.Feeds())) {
		ss.Judging = nil
		ss.unshown = false
		ss.Reached.Store(nil)
		ss.mu.Unlock()
		ss.Moved()

		return false
	}

	ss.mu.Unlock()

	if j == nil {
		return false
	}

	switch err := ss.judgeFeed(j); {
	case errors.Is(err, store.ErrStalled):
		return false
	case err != nil:
		ss.Cfg.Logger.Error("reading a peer's stored records failed", "origin", ss.domain.Name(),
			"err", err)
		j.next()
	}

	return true
}

func (j *judging) next() { j.feed, j.of, j.after = j.feed+1, nil, nil }

// judgeFeed shows admitted entries of a feed's next batch. The caller holds Change.
func (ss *streams) judgeFeed(j *judging) error {
	st := ss.Pair.Feeds()[j.feed].Cur
	if st == nil {
		j.next()
		return nil
	}

	if st != j.of { // the first batch, or a new epoch
		j.of, j.after = st, nil
	}

	var batch []store.StoredEntry
	after, more, err := ss.Store.EntriesAfter(st.Id, j.after, JudgeBatch,
		func(t *store.Tx, rid directory.RID, held *store.Entry) error {
			if held.Record != store.RecordHeld || ss.Shown.shows(st, rid, held) {
				return nil
			}

			e, err := t.StoredEntryOf(rid, held)
			batch = append(batch, e)

			return err
		})
	ss.showAll(st, batch)

	if err != nil {
		return err
	}

	j.after = after
	if !more {
		j.next()
	}

	return nil
}

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
func (rj *rejudger) rejudge() {
	rj.streams.Readmitter.GiveRoom()
	rj.Judging = nil

	if rj.streams.Shown.isEmpty() {
		rj.unshown = false // nothing is to be shown
		rj.streams.Shown.Index.Clear()
		rj.streams.Moved()

		return
	}

	rj.Judging = &judging{rules: true}
	Wake(rj.streams.Judge)
}

// showLater makes the loop show stored entries that could not be read when they were due to
// be shown. Until then the origin's position doesn't advance.
func (rj *rejudger) showLater() {
	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	if rj.streams.Shown.isEmpty() {
		return
	}

	rj.unshown = true

	anew := &judging{}
	if rj.Judging != nil {
		anew.rules, anew.shown = rj.Judging.rules, rj.Judging.shown
	}

	rj.Judging = anew
	Wake(rj.streams.Judge)
}

// HideSome removes refused entries of one batch from the index. It reports whether there
// was a batch.
func (rj *rejudger) HideSome() (more bool) {
	rj.listShown()

	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	j := rj.Judging
	if j == nil || rj.streams.ended || len(j.shown) == 0 {
		return false
	}

	n := min(JudgeBatch, len(j.shown))
	for _, e := range j.shown[:n] {
		if now, ok := rj.streams.Shown.Index.Get(e.RID); ok && !rj.streams.Shown.admits(now) {
			rj.streams.Shown.Index.Delete(e.RID)
		}
	}

	j.shown = j.shown[n:]

	return true
}

// listShown lists the indexed entries to judge by a changed policy. It doesn't hold
// streams.mu while it reads the index, because that may take long. Entries shown meanwhile
// are judged by the new policy anyway.
func (rj *rejudger) listShown() {
	rj.streams.mu.Lock()
	j := rj.Judging
	due := j != nil && j.rules
	rj.streams.mu.Unlock()

	if !due {
		return
	}

	shown := slices.Collect(rj.streams.Shown.Index.All())

	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	if rj.Judging == j {
		j.rules, j.shown = false, shown
	}
}

// JudgeSome takes one step, and reports whether there is more to do.
func (rj *rejudger) JudgeSome() (more bool) {
	if rj.HideSome() {
		return true
	}

	if rj.streams.Change.Lock(rj.streams.Store) != nil {
		return false // the end of the stall wakes the judges
	}

	defer rj.streams.Change.Unlock()

	rj.streams.mu.Lock()

	j := rj.Judging
	if j != nil && (rj.streams.ended || j.feed == len(rj.streams.Pair.Feeds())) {
		rj.Judging = nil
		rj.unshown = false
		rj.streams.Reached.Store(nil)
		rj.streams.mu.Unlock()
		rj.streams.Moved()

		return false
	}

	rj.streams.mu.Unlock()

	if j == nil {
		return false
	}

	switch err := rj.judgeFeed(j); {
	case errors.Is(err, store.ErrStalled):
		return false
	case err != nil:
		rj.streams.Cfg.Logger.Error("reading a peer's stored records failed", "origin", rj.streams.domain.Name(),
			"err", err)
		j.next()
	}

	return true
}

func (j *judging) next() { j.feed, j.of, j.after = j.feed+1, nil, nil }

// judgeFeed shows admitted entries of a feed's next batch. The caller holds Change.
func (rj *rejudger) judgeFeed(j *judging) error {
	st := rj.streams.Pair.Feeds()[j.feed].Cur
	if st == nil {
		j.next()
		return nil
	}

	if st != j.of { // the first batch, or a new epoch
		j.of, j.after = st, nil
	}

	var batch []store.StoredEntry
	after, more, err := rj.streams.Store.EntriesAfter(st.Id, j.after, JudgeBatch,
		func(t *store.Tx, rid directory.RID, held *store.Entry) error {
			if held.Record != store.RecordHeld || rj.streams.Shown.shows(st, rid, held) {
				return nil
			}

			e, err := t.StoredEntryOf(rid, held)
			batch = append(batch, e)

			return err
		})
	rj.streams.showAll(st, batch)

	if err != nil {
		return err
	}

	j.after = after
	if !more {
		j.next()
	}

	return nil
}

// A rejudger brings the index in line with the import policy. Its streams' lock guards it.
type rejudger struct {
	streams *streams
	Judging *judging // nil if the index is in line
	unshown bool     // a stored entry isn't shown yet, because it could not be read
}

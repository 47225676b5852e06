package replica

import (
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// Rules for what comes in may change while hundreds of thousands of an origin's
// registrations are held. What is shown is brought in line in steps, between which
// the origin's pages are taken and readers are answered: what comes meanwhile is
// judged by the new rules anyway.

// JudgeBatch bounds the entries that one step looks at, and with it how long it holds
// the origin.
const JudgeBatch = 256

// A judging is what is left to be done since the rules changed. It is guarded by the
// origin's mu, and of and after belong to the loop.
type judging struct {
	rules bool               // shown is to be filled
	shown []*directory.Entry // that may have to go; first, so that what is not let in is soon gone
	feed  int                // of the origin's feeds, whose entries may have to come
	of    *Stream            // that feed's
	after []byte             // the key of the entry that was looked at last
}

// rejudge has what the origin told shown by the rules of now. o.mu is held; judges does
// the work.
func (rj *rejudger) rejudge() {
	rj.streams.Readmitter.GiveRoom()
	rj.Judging = nil

	if rj.streams.Shown.stale {
		rj.unshown = false // nothing is to be shown
		rj.streams.Shown.Index.Clear()
		rj.streams.Moved()

		return
	}

	rj.Judging = &judging{rules: true}
	Wake(rj.streams.Judge)
}

// showLater has the judges show what is held and isn't shown, because it could not be
// read when it was to be. Until then the origin's position stays.
func (rj *rejudger) showLater() {
	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	if rj.streams.Shown.stale {
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

// HideSome looks at entries that may have to go, and reports whether there are more.
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

// listShown lists what is to be judged by new rules. It takes a while if that is much,
// and o.mu is not held meanwhile: what is shown from now on is judged anyway.
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

// judgeFeed looks at the next entries of a feed. o.change is held.
func (rj *rejudger) judgeFeed(j *judging) error {
	st := rj.streams.Pair.Feeds()[j.feed].Cur
	if st == nil {
		j.next()
		return nil
	}

	if st != j.of { // at first, or an epoch later
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
	unshown bool     // something is held and isn't shown yet, because it could not be read
}

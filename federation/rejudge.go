package federation

import (
	"context"
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// Rules for what comes in may change while hundreds of thousands of an origin's
// registrations are held. What is shown is brought in line in steps, between which
// the origin's pages are taken and readers are answered: what comes meanwhile is
// judged by the new rules anyway.

// judgeBatch bounds the entries that one step looks at, and with it how long it holds
// the origin.
const judgeBatch = 256

// A judging is what is left to be done since the rules changed. It is guarded by the
// origin's mu, and of and after belong to the loop.
type judging struct {
	rules bool               // shown is to be filled
	shown []*directory.Entry // that may have to go; first, so that what is not let in is soon gone
	feed  int                // of the origin's feeds, whose entries may have to come
	of    *stream            // that feed's
	after []byte             // the key of the entry that was looked at last
}

// rejudge has what the origin told shown by the rules of now. o.mu is held; judges does
// the work.
func (rj *rejudger) rejudge() {
	rj.streams.readmitter.giveRoom()
	rj.judging = nil

	if rj.streams.shown.stale {
		rj.unshown = false // nothing is to be shown
		rj.streams.shown.index.Clear()
		rj.streams.moved()
		return
	}
	rj.judging = &judging{rules: true}
	nudge(rj.streams.judge)
}

// showLater has the judges show what is held and isn't shown, because it could not be
// read when it was to be. Until then the origin's position stays.
func (rj *rejudger) showLater() {
	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	if rj.streams.shown.stale {
		return
	}

	rj.unshown = true
	anew := &judging{}
	if rj.judging != nil {
		anew.rules, anew.shown = rj.judging.rules, rj.judging.shown
	}
	rj.judging = anew
	nudge(rj.streams.judge)
}

// judges brings in line what is shown, after the rules have changed, until ctx ends.
// While the disk doesn't answer it hides what the rules don't admit, and no more.
func (u *upkeep) judges(ctx context.Context) {
	for wait(ctx, u.judge, 0) {
		u.judgeAll(ctx)
	}
}

// judgeAll does all that is to be done, of one origin a step after the other's. What
// is to be hidden comes first: it waits for no disk.
func (u *upkeep) judgeAll(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, o := range u.origins.all() {
			more = o.streams.rejudger.hideSome() || more
		}
	}

	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, o := range u.origins.all() {
			more = o.streams.rejudger.judgeSome() || more
		}
	}
}

// hideSome looks at entries that may have to go, and reports whether there are more.
func (rj *rejudger) hideSome() (more bool) {
	rj.listShown()

	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	j := rj.judging
	if j == nil || rj.streams.ended || len(j.shown) == 0 {
		return false
	}

	n := min(judgeBatch, len(j.shown))
	for _, e := range j.shown[:n] {
		if now, ok := rj.streams.shown.index.Get(e.RID); ok && !rj.streams.shown.admits(now) {
			rj.streams.shown.index.Delete(e.RID)
		}
	}
	j.shown = j.shown[n:]

	return true
}

// listShown lists what is to be judged by new rules. It takes a while if that is much,
// and o.mu is not held meanwhile: what is shown from now on is judged anyway.
func (rj *rejudger) listShown() {
	rj.streams.mu.Lock()
	j := rj.judging
	due := j != nil && j.rules
	rj.streams.mu.Unlock()

	if !due {
		return
	}

	shown := slices.Collect(rj.streams.shown.index.All())

	rj.streams.mu.Lock()
	defer rj.streams.mu.Unlock()

	if rj.judging == j {
		j.rules, j.shown = false, shown
	}
}

// judgeSome takes one step, and reports whether there is more to do.
func (rj *rejudger) judgeSome() (more bool) {
	if rj.hideSome() {
		return true
	}

	if rj.streams.change.lock(rj.streams.store) != nil {
		return false // the end of the stall wakes the judges
	}
	defer rj.streams.change.unlock()

	rj.streams.mu.Lock()
	j := rj.judging
	if j != nil && (rj.streams.ended || j.feed == len(rj.streams.pair.feeds())) {
		rj.judging = nil
		rj.unshown = false
		rj.streams.reached.Store(nil)
		rj.streams.mu.Unlock()
		rj.streams.moved()
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
		rj.streams.cfg.Logger.Error("can't read what a peer told", "origin", rj.streams.domain.Name(), "error", err)
		j.next()
	}

	return true
}

func (j *judging) next() { j.feed, j.of, j.after = j.feed+1, nil, nil }

// judgeFeed looks at the next entries of a feed. o.change is held.
func (rj *rejudger) judgeFeed(j *judging) error {
	st := rj.streams.pair.feeds()[j.feed].cur
	if st == nil {
		j.next()
		return nil
	}
	if st != j.of { // at first, or an epoch later
		j.of, j.after = st, nil
	}

	var batch []store.StoredEntry
	after, more, err := rj.streams.store.EntriesAfter(st.id, j.after, judgeBatch, func(t *store.Tx, rid directory.RID, h *store.Entry) error {
		if h.Record != store.RecordHeld || rj.streams.shown.shows(st, rid, h) {
			return nil
		}
		e, err := t.StoredEntryOf(rid, h)
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

// shows reports whether an entry is shown as it would be now, if it is admitted.
func (sx *shownIndex) shows(st *stream, rid directory.RID, h *store.Entry) bool {
	e, ok := sx.index.Get(rid)
	return ok && e.Received.H == h.H && e.Received.M == h.M && e.Received.Private == (st.id.Audience != directory.Mesh) &&
		e.ExpiresAt == clippedDeadline(h, sx.peering.Load().Import.MaxLifetime)*1000
}

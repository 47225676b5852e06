package replica

import (
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
)

// The import policy may change while an origin has hundreds of thousands of registrations.
// The index is therefore brought in line in steps. Between the steps pages are accepted and
// readers are answered. New entries are judged by the new policy at once.

// JudgeBatch bounds the entries of one step, and with it the time that the step holds the
// origin's locks.
const JudgeBatch = 256

// A judging is the progress of applying a changed import policy. The origin's mu guards it,
// except for of and after, which belong to the loop.
type judging struct {
	rules bool               // the policy changed, and shown isn't filled yet
	shown []*directory.Entry // to check first, so that refused entries disappear soon
	feed  int                // number of the feed whose entries are being checked
	of    *Stream            // the shown stream of that feed
	after []byte             // the key of the last entry that was checked
}

// End hides the registrations of a former peer without waiting for the disk. Nothing more
// is accepted from the peer afterwards.
func (o *Origin) End() {
	o.mu.Lock()
	defer o.mu.Unlock()

	if !o.ended {
		o.ended = true
		o.Cfg.View.Drop(o.Domain)
	}
}

// SetPeering takes the peering as it is agreed now.
func (o *Origin) SetPeering(peering *directory.Peering) {
	o.mu.Lock()
	defer o.mu.Unlock()

	changed := !o.Peering.Load().Import.Equal(peering.Import)
	o.Peering.Store(peering)

	if changed {
		o.rejudge()
	}
}

// SetStale hides the origin's registrations, or shows them again. It reports whether
// that is a change.
func (o *Origin) SetStale(stale bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	if stale == o.Shown.stale || o.ended {
		return false
	}

	o.Shown.stale = stale
	o.rejudge()

	return true
}

// SetShed takes the origin's registrations out of the index, because the node is short of memory,
// or shows them again. The disk keeps them. It reports whether that is a change.
func (o *Origin) SetShed(shed bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	if shed == o.IsShed() || o.ended {
		return false
	}

	o.Shown.shed.Store(shed)
	o.rejudge()

	return true
}

// IsShed reports whether the origin's registrations are out of the index for want of memory. It takes no lock.
func (o *Origin) IsShed() bool { return o.Shown.shed.Load() }

// rejudge makes the index follow the present import policy. If nothing is to be shown it clears the
// index at once, and otherwise it wakes the loop that judges. The caller holds mu.
func (o *Origin) rejudge() {
	o.Room.Store(true)
	o.judging = nil

	if o.Shown.isEmpty() {
		o.unshown = false // nothing is to be shown
		o.Shown.Index.Clear()
		o.Moved()

		return
	}

	o.judging = &judging{rules: true}
	Wake(o.Judge)
}

// showLater makes the loop show stored entries that could not be read when they were due to
// be shown. Until then the origin's position doesn't advance.
func (o *Origin) showLater() {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.Shown.isEmpty() {
		return
	}

	o.unshown = true

	// The scan begins again, because it may have passed the unread entries. The list of entries to hide is
	// kept.
	anew := &judging{}
	if o.judging != nil {
		anew.rules, anew.shown = o.judging.rules, o.judging.shown
	}

	o.judging = anew
	Wake(o.Judge)
}

// HideSome removes refused entries of one batch from the index. It reports whether there
// was a batch.
func (o *Origin) HideSome() (more bool) {
	o.listShown()

	o.mu.Lock()
	defer o.mu.Unlock()

	j := o.judging
	if j == nil || o.ended || len(j.shown) == 0 {
		return false
	}

	// The entries of the list may have been replaced since, so those that are shown at present are judged.
	n := min(JudgeBatch, len(j.shown))
	for _, e := range j.shown[:n] {
		if now, ok := o.Shown.Index.Get(e.RID); ok && !o.Shown.admits(now) {
			o.Shown.drop(e.RID)
		}
	}

	j.shown = j.shown[n:]

	return true
}

// listShown lists the indexed entries to judge by a changed policy. It doesn't hold
// mu while it reads the index, because that may take long. Entries shown meanwhile
// are judged by the new policy anyway.
func (o *Origin) listShown() {
	o.mu.Lock()
	j := o.judging
	due := j != nil && j.rules
	o.mu.Unlock()

	if !due {
		return
	}

	shown := slices.Collect(o.Shown.Index.All())

	o.mu.Lock()
	defer o.mu.Unlock()

	// Another change of the policy in between makes its own list.
	if o.judging == j {
		j.rules, j.shown = false, shown
	}
}

// JudgeSome takes one step, and reports whether there is more to do.
func (o *Origin) JudgeSome() (more bool) {
	if o.HideSome() {
		return true
	}

	if o.change.Lock(o.Store) != nil {
		return false // the end of the stall wakes the judges
	}

	defer o.change.Unlock()

	o.mu.Lock()

	j := o.judging
	if j != nil && (o.ended || j.feed == len(o.Feeds())) {
		o.judging = nil
		o.unshown = false
		o.reached.Store(nil)
		o.mu.Unlock()
		o.Moved()

		return false
	}

	o.mu.Unlock()

	if j == nil {
		return false
	}

	switch err := o.judgeFeed(j); {
	case errors.Is(err, store.ErrStalled):
		return false
	case err != nil:
		o.Cfg.Logger.Error("reading a peer's stored records failed", "origin", o.Domain.Name(),
			"err", err)

		// The rest of the feed is skipped, because judgeAll would repeat a read that fails for ever.
		j.next()
	}

	return true
}

func (j *judging) next() { j.feed, j.of, j.after = j.feed+1, nil, nil }

// judgeFeed shows admitted entries of a feed's next batch. The caller holds change.
func (o *Origin) judgeFeed(j *judging) error {
	st := o.Feeds()[j.feed].Cur
	if st == nil {
		j.next()
		return nil
	}

	if st != j.of { // the first batch, or a new epoch
		j.of, j.after = st, nil
	}

	var batch []store.StoredEntry
	after, more, err := o.Store.EntriesAfter(st.Id, j.after, JudgeBatch,
		func(t *store.Tx, rid directory.RID, held *store.Entry) error {
			if held.Record != store.RecordHeld || o.Shown.shows(st, rid, held) {
				return nil
			}

			e, err := t.StoredEntryOf(rid, held)
			batch = append(batch, e)

			return err
		})

	// The entries that were read before an error are shown too.
	o.showAll(st, batch)

	if err != nil {
		return err
	}

	j.after = after
	if !more {
		j.next()
	}

	return nil
}

// Hide removes the entries of a feed that pick selects from the index. If the other feed
// has the same registration, its entry is shown instead. The caller holds change.
func (o *Origin) Hide(feed *Feed, pick func(*directory.Entry) bool) {
	private := feed == &o.Private

	var effects []store.Effect
	for e := range o.Shown.Index.All() {
		if e.Received.Private == private && pick(e) {
			effects = append(effects, store.Effect{Digest: signed.Digest{RID: e.RID}})
		}
	}

	// The alternatives come from disk, so they are read before mu is taken.
	twice := o.alternativesTo(feed, effects)

	o.mu.Lock()
	defer o.mu.Unlock()

	for _, e := range effects {
		o.Shown.show(e.Digest.RID, twice[e.Digest.RID]...)
	}
}

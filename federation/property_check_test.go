package federation

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
)

// disk holds what is on a receiver's disk against itself.
func (tr *trial) disk(r *subscriber, aud directory.Audience) {
	tr.Helper()

	f := r.feed(aud)
	if f.Cur == nil {
		return
	}

	if err := holds(r.store, f.Cur.Id); err != nil {
		tr.fail("%s: %v", r.base, err)
	}
}

// holds checks a stream on disk: one deadline an entry, and one record where it is
// held.
func holds(s *store.Store, id store.StreamID) error {
	return s.Read(id, func(t *store.Tx) error {
		records, entries := map[string]bool{}, uint64(0)
		due := t.Bucket.Bucket([]byte("due"))

		err := t.Bucket.Bucket([]byte("entries")).ForEach(func(k, _ []byte) error {
			rid, err := directory.ParseRID(string(k))
			if err != nil {
				return err
			}

			h, err := t.Get(rid)
			if err != nil {
				return err
			}

			if entries++; due.Get(append(binary.BigEndian.AppendUint64(nil, uint64(h.Deadline)), k...)) == nil {
				return fmt.Errorf("no deadline of %s", k)
			}

			if h.Record == store.RecordHeld {
				records[string(h.Name().Bytes())] = true
				if at := s.Places.Of(id, h.Name()); len(at) != 1 || at[0] != h.Place {
					return fmt.Errorf("the record of %s is at %d, and sought at %d", k, h.Place, at)
				}
			}

			return nil
		})
		if n, due := t.Bucket.Bucket([]byte("records")).Stats().KeyN, due.Stats().KeyN; err != nil ||
			n != len(records) || entries != t.State.Live || due != int(entries) {
			return fmt.Errorf("%d entries (%d), %d deadlines, %d records for %d (%w)", entries, t.State.Live, due, n,
				len(records), err)
		}

		return nil
	})
}

// chain follows a receiver's chain from 0 to its watermark.
func (tr *trial) chain(r *subscriber, aud directory.Audience) {
	tr.Helper()

	err := r.store.Read(r.feed(aud).Cur.Id, func(t *store.Tx) error {
		for reached := uint64(0); reached < t.State.Watermark; {
			p, err := t.PageAfter(reached)
			if err != nil || p == nil || p.From > reached {
				tr.fail("%s: the chain breaks at %d: %+v (%v)", r.base, reached, p, err)
			}

			payload, _, err := r.keys.Verify(alpha, signed.TypePage, p.JWS)

			page, err2 := signed.ParsePage(payload)
			if err != nil || err2 != nil {
				tr.fail("%s: the chain holds what doesn't verify: %v %v", r.base, err, err2)
			}

			reached = page.To
		}

		return nil
	})
	if err != nil {
		tr.fail("%s: %v", r.base, err)
	}
}

// check holds receivers against what the origin announced.
func (tr *trial) check(receivers ...*subscriber) {
	tr.Helper()

	now := time.Now().Unix()
	for _, r := range receivers {
		pending := map[directory.RID]bool{}
		for _, aud := range r.audiences() {
			mark, wanted := r.state(aud)
			if mark < r.marks[aud] {
				tr.fail("%s: watermark of %v fell from %d to %d", r.base, aud, r.marks[aud], mark)
			}

			r.marks[aud] = mark

			for rid := range wanted {
				pending[rid] = true
			}
		}

		shown := r.shown(alpha)
		for rid, e := range shown {
			tr.checkShown(r, rid, e, now)
		}

		for rid := range tr.announced(r) {
			if pending[rid] {
				continue
			}

			want, e := tr.best(r, rid, now), shown[rid]
			if want.Live() && (e == nil || e.Revision != want.Revision || e.Received.M != want.M) {
				tr.fail("%s is at %v, shows %+v and not %+v", r.base, r.marks, e, want)
			}

			reg := tr.origin.regs[rid]
			if lag := now - r.level; reg != nil && reg.alive && reg.exported && now < reg.deadline &&
				reg.late < r.level && lag < 15 && shown[rid] == nil {
				tr.fail("%s lags %d seconds and dropped %s early", r.base, lag, rid)
			}
		}
	}
}

// announced returns what the origin ever announced to a receiver's domain.
func (tr *trial) announced(r *subscriber) map[directory.RID]bool {
	all := map[directory.RID]bool{}
	for _, aud := range r.audiences() {
		for rid := range tr.origin.historyOf(aud) {
			all[rid] = true
		}
	}

	return all
}

// best is what a receiver is to show of a registration, by the pages that it has
// applied: of what is alive the newer statement, and of one statement what is for
// its domain alone. It is not live where nothing is to be shown.
func (tr *trial) best(r *subscriber, rid directory.RID, now int64) (best signed.Digest) {
	for _, aud := range r.audiences() {
		ds := tr.origin.historyOf(aud)[rid]
		if len(ds) == 0 {
			continue
		}

		last := ds[len(ds)-1]
		if last.Revision > r.marks[aud] {
			return signed.Digest{} // what is here is one before it, or none: a page lists latest changes only
		}

		if last.Live() && now >= last.Deadline && best.Live() {
			return signed.Digest{} // until it is freed it keeps its place, beyond the margin of all lag
		}

		if last.Live() && now < last.Deadline &&
			(!best.Live() || tr.origin.written[last.H] >= tr.origin.written[best.H]) {
			best = last
		}
	}

	return best
}

// checkShown: what is shown was announced so, is not past that deadline, and what
// ended below the watermark never comes back.
func (tr *trial) checkShown(r *subscriber, rid directory.RID, e *directory.Entry, now int64) {
	tr.Helper()

	aud := directory.Mesh
	if e.Received.Private {
		aud = r.own()
	}

	ds, mark := tr.origin.historyOf(aud)[rid], r.marks[aud]

	i := slices.IndexFunc(ds, func(d signed.Digest) bool { return d.Revision == e.Revision })
	if i < 0 || !ds[i].Live() || ds[i].Revision > mark {
		tr.fail("%s at %d shows revision %d of %s, announced: %+v", r.base, mark, e.Revision, rid, ds)
	}

	if d := ds[i]; e.ExpiresAt != d.Deadline*1000 || e.Lifetime != d.Lifetime || e.Received.H != d.H ||
		e.Received.M != d.M || now >= d.Deadline {
		tr.fail("%s shows %s until %d at %d; announced: %+v", r.base, rid, e.ExpiresAt/1000, now, d)
	}

	if last := ds[len(ds)-1]; last.Revision <= mark && last.Revision != e.Revision {
		tr.fail("%s is at %d and shows revision %d of %s, whose latest is %+v", r.base, mark, e.Revision, rid, last)
	}
}

// equal holds the view of a receiver that was healed against the origin's truth.
func (tr *trial) equal(r *subscriber) {
	tr.Helper()

	shown := r.shown(alpha)
	for rid, reg := range tr.origin.regs {
		var want signed.Digest
		for _, aud := range r.audiences() {
			if slices.Contains(reg.streams(), aud) {
				if d := reg.to(aud).announced; d.Live() && time.Now().Unix() < d.Deadline {
					want = d // of the same statement in both
				}
			}
		}

		if e := shown[rid]; (e != nil) != want.Live() || e != nil &&
			(e.Revision != want.Revision || e.Received.M != want.M) {
			tr.fail("%s was healed and shows %+v; the origin announces %+v", r.base, e, want)
		}

		delete(shown, rid)
	}

	if len(shown) > 0 {
		tr.fail("%s was healed and shows %d that are no more", r.base, len(shown))
	}
}

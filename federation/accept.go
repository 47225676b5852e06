package federation

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A fetched record is one whose bytes are what its name says.
type fetched struct {
	*store.Record
	from spiffeid.TrustDomain
	at   time.Time
}

// An effect is what a transaction on disk leaves to do in memory.
type effect struct {
	digest signed.Digest
	entry  *directory.Entry // to show, if it is admitted; nil to take away
	renew  *store.Entry     // to carry an entry that is shown on to a later deadline
	want   bool
}

// changes is what a transaction did to a stream.
type changes struct {
	state   store.State
	delta   store.Usage
	owners  store.Owners // of the delta
	effects []effect
}

// accept is rule G3: it applies a verified page to its stream, on disk and then
// in the index, and returns CodeApplied, CodeOld or CodeGap. Opened are the records
// that the caller fetched for it already; the others are wanted from now on. It
// returns disk.ErrStalled if the page can't be written now; it is pulled again then.
func (o *origin) accept(p *verifiedPage, opened map[directory.RID]openedRecord) (code protocol.Code, err error) {
	defer nudge(o.streams.kick)

	err = o.cfg.Panics.Run(contain.Page, func() (err error) {
		code, err = o.acceptPage(p, opened)
		return err
	})

	return code, err
}

func (o *origin) acceptPage(p *verifiedPage, opened map[directory.RID]openedRecord) (protocol.Code, error) {
	if err := o.streams.change.lock(o.store); err != nil {
		return "", err
	}
	defer o.streams.change.unlock()

	if o.streams.hasEnded() {
		return "", errPeeringEnd
	}

	f := o.streams.pair.feedOf(p.Audience)
	if o.unlisted && f == &o.streams.pair.mesh {
		return "", o.refusals.refused(sender{}, p.text, &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: p.Issuer, Err: errUnlisted})
	}

	st, err := o.streams.streamOf(f, store.StreamID{Origin: p.Issuer, Audience: p.Audience, Epoch: p.Epoch})
	if err != nil {
		return "", err
	}
	if code := st.classify(p); code != protocol.CodeApplied {
		return o.streams.writer.counted(code), nil
	}

	done, err := o.streams.writer.writePage(st, p, opened, o.saved)
	if err != nil {
		return "", o.refusals.refused(sender{}, p.text, err)
	}

	o.announced.AllowN(time.Now(), len(p.Digests)) // of which the gate found room for as many
	o.streams.apply(f, st, done, p)
	o.heardPage()

	if p.To == p.At {
		if err := o.atTip(f, st); err != nil {
			return "", err
		}
	}

	o.moved()
	return o.streams.writer.counted(protocol.CodeApplied), nil
}

// classify returns CodeApplied for a page that goes on from where the stream is. The
// stream is nil if another page has begun a newer epoch.
func (st *stream) classify(p *verifiedPage) protocol.Code {
	switch {
	case st == nil:
		return protocol.CodeEpochOld
	case p.To <= st.state.Watermark, p.At < st.anew:
		return protocol.CodeOld
	case p.From > st.state.Watermark:
		return protocol.CodeGap
	}

	return protocol.CodeApplied
}

// writePage writes what a page says in one transaction: a page is taken whole or not
// at all. o.change is held.
func (wr *writer) writePage(st *stream, p *verifiedPage, opened map[directory.RID]openedRecord,
	saved func(floor time.Time) store.Origin) (done changes, err error) {
	floor := wr.shown.index.Clock.Now()

	done.state, err = wr.store.Change(st.id, func(t *store.Tx) error {
		for _, d := range p.Digests {
			e, err := wr.applyDigest(st, t, p, d, opened[d.RID], floor)
			if err != nil {
				return err
			}

			done.effects = append(done.effects, e)
		}

		if t.State.Live > wr.entryLimit(st) && t.State.Live > st.state.Live {
			return &protocol.Refusal{Code: protocol.CodeQuota, Origin: p.Issuer, Err: errQuota}
		}

		t.State.Watermark = p.To
		done.delta, done.owners = t.Delta, t.Owners

		if err := t.AddPage(p.Page, p.text); err != nil {
			return err
		}

		return t.SaveOrigin(wr.domain, saved(floor))
	})

	return done, err
}

// quota is how many entries a stream may hold. While it is pulled anew there are those
// beside its origin's that go then, and may be as many as it was let have.
func (wr *writer) entryLimit(st *stream) uint64 {
	if st.anew > 0 {
		return 2 * uint64(wr.cfg.Quota)
	}
	return uint64(wr.cfg.Quota)
}

// atTip does what waited for a stream to hold all that its origin announced. o.change
// is held.
func (o *origin) atTip(f *feed, st *stream) error {
	if st == f.next {
		return o.streams.swap(f, o.saved(o.streams.shown.index.Clock.Now()))
	}

	return o.streams.vouch(f, st, o.keys.revokedKeys())
}

func (wr *writer) counted(c protocol.Code) protocol.Code {
	wr.refusals.byOrigin.add(wr.domain, c)
	return c
}

// An openedRecord is a fetched record as this node understands it: entry is nil
// where it can't show it.
type openedRecord struct {
	fetched
	asked  protocol.RecordName
	bytes  []byte // as they are kept
	entry  *directory.Entry
	format store.Format // of a record that only a later release can open
	err    error
}

// openRecords puts the fetched records through the record gate, outside of any
// lock or transaction.
func (g *recordGate) openRecords(origin spiffeid.TrustDomain, p *signed.Page, records map[protocol.RecordName]fetched) map[directory.RID]openedRecord {
	all := make([]openedRecord, len(p.Digests))
	parallel(len(all), func(i int) {
		d := p.Digests[i]
		if rec, ok := records[protocol.NameOf(d)]; ok && d.Live() {
			opened := openedRecord{fetched: rec, asked: protocol.NameOf(d), bytes: rec.Record.Bytes()}
			opened.entry, opened.err = g.openContained(contain.Record, func() (*directory.Entry, error) {
				return g.openEntry(origin, p.Epoch, d, rec.Record, kinds.Project)
			})
			if errors.Is(opened.err, signed.ErrUnsupported) {
				opened.format, opened.err = store.FormatOf(opened.err), nil
			}
			all[i] = opened
		}
	})
	out := make(map[directory.RID]openedRecord, len(records))
	for i, rec := range all {
		if rec.Record != nil {
			out[p.Digests[i].RID] = rec
		}
	}
	return out
}

// A recordGate judges records behind their names: whether a record is a good document of
// its kind, and says of itself what its page says.
type recordGate struct{ cfg *Config }

// openContained opens a record. One that makes this release panic is no fault of its
// sender's: it is kept and passed on, and not shown, so the entry is nil without an
// error. It is opened again at the next start, by a release that may be a later one.
func (g *recordGate) openContained(place contain.Place, open func() (*directory.Entry, error)) (entry *directory.Entry, err error) {
	err = g.cfg.Panics.Run(place, func() (err error) {
		entry, err = open()
		return err
	})

	if contained := (*contain.Error)(nil); errors.As(err, &contained) {
		return nil, nil
	}

	return entry, err
}

// parallel calls f for 0 to n-1 on all processors, and returns when all is done.
func parallel(n int, f func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// applyDigest writes one digest. The entry that it leaves in force is shown once
// its record is here (federation.md, "Records on demand").
func (wr *writer) applyDigest(st *stream, t *store.Tx, p *verifiedPage, d signed.Digest, rec openedRecord, now time.Time) (effect, error) {
	old, err := t.Get(d.RID)
	if err != nil {
		return effect{}, err
	}
	if !d.Live() || freed(d.Deadline, now) {
		return effect{digest: d}, t.Remove(d.RID, old)
	}
	kid, err := directory.ParseHash(p.kid)
	if err != nil {
		return effect{}, fmt.Errorf("federation: the key id %q is no thumbprint", p.kid)
	}
	h := &store.Entry{Revision: d.Revision, H: d.H, M: d.M, Deadline: d.Deadline, Lifetime: d.Lifetime, Key: kid, CheckedAt: p.at.UnixMilli()}
	if old != nil && old.Name() == h.Name() && (old.Record != store.RecordMissing || rec.Record == nil) {
		h.At, h.From, h.Record, h.Place, h.Format = old.At, old.From, old.Record, old.Place, old.Format
		h.Owner, h.Size = old.Owner, old.Size
		return effect{digest: d, renew: h, want: h.Record == store.RecordMissing}, t.Put(d.RID, old, h)
	}
	if rec.asked != h.Name() { // the page names its registration twice, and it is the other one's
		rec = openedRecord{}
	}
	e := effect{digest: d, want: rec.Record == nil}
	switch {
	case rec.Record != nil:
		e.entry = wr.keep(st, t, old, h, rec)
	case (old == nil || old.Record != store.RecordHeld) && wr.quotas.full(st, t.Delta):
		e.want = false
		wr.overQuota(h)
	}
	if h.Record == store.RecordHeld {
		if err := t.PutRecord(h, rec.bytes); err != nil {
			return e, err
		}
	}
	return e, t.Put(d.RID, old, h)
}

// keep completes h and its entry for a record that came. A record that can't be
// shown is not asked for again: no other holder could have other bytes by that
// name. Nor is one for which the peering has no room, as long as it has none; what an
// entry held before makes room.
func (wr *writer) keep(st *stream, t *store.Tx, old, h *store.Entry, rec openedRecord) *directory.Entry {
	h.At, h.From, h.Record = rec.at.UnixMilli(), rec.from.Name(), store.RecordHeld
	if rec.err != nil {
		h.Record = store.RecordRefused
		code := protocol.CodeRecord
		if errors.Is(rec.err, errOwnerForeign) {
			code = protocol.CodeOwnerForeign
		}
		wr.counted(code)
		if wr.refusals.lines.allow(code, rec.from) {
			wr.cfg.Logger.Warn("refused a record", "origin", wr.domain.Name(), "h", h.H.String(), "error", rec.err)
		}
		return nil
	}

	h.Owner, h.Size = store.OwnerKeyOf(rec.entry), uint32(len(rec.bytes))
	if !wr.quotas.hasRoom(st, t, old, h) {
		wr.overQuota(h)
		return nil
	}

	h.Format = rec.format

	return wr.shown.describe(rec.entry, st.id.Audience, h)
}

// overQuota notes that there is no room for an entry's record.
func (wr *writer) overQuota(h *store.Entry) {
	h.Record = store.RecordOverQuota
	wr.counted(protocol.CodeQuota)
}

// account notes what a transaction changed. o.change and o.mu are held.
func (ss *streams) account(st *stream, done changes) {
	st.state = done.state
	st.used = st.used.Plus(done.delta)
	st.owners.Absorb(done.owners)

	if done.delta.Records < 0 || done.delta.Bytes < 0 {
		ss.readmitter.giveRoom()
	}
}

// describe completes an entry, if there is one, with what its stream says of it.
func (sx *shownIndex) describe(e *directory.Entry, aud directory.Audience, h *store.Entry) *directory.Entry {
	if e == nil {
		return nil
	}

	from, _ := spiffeid.TrustDomainFromString(h.From)
	e.Received = &directory.Received{At: h.At, From: from, H: h.H, M: h.M, Private: aud != directory.Mesh}
	describe(h, e, sx.peering.Load().Import.MaxLifetime)

	return e
}

// describe writes into e what a renewal changes; most is the peering's MaxLifetime.
func describe(h *store.Entry, e *directory.Entry, most uint32) {
	e.Revision, e.Lifetime, e.ExpiresAt = h.Revision, h.Lifetime, clippedDeadline(h, most)*1000
	e.Received.Key, e.Received.CheckedAt = h.Key.String(), h.CheckedAt
}

var errRecord = errors.New("the record is not the one that the page names")

// openEntry is the record gate behind the name: what the statement says of itself
// is what the page says of it, and it is a good document of its kind. A record of
// a kind that this release doesn't know is kept and passed on, and not shown: the
// entry is nil without an error. So is one of which the error is ErrUnsupported, and
// that says of itself up to its epoch what the page says. project is kinds.Project, or Reproject for
// what passed once.
func (g *recordGate) openEntry(origin spiffeid.TrustDomain, epoch uint64, d signed.Digest, r *store.Record,
	project func(string, directory.Document) (*directory.Projection, error)) (*directory.Entry, error) {
	c, err := g.cfg.Dialect.OpenNamed(r.Payload, r.Disclosures, d.H, d.M)
	unsupported := errors.Is(err, signed.ErrUnsupported)
	if err != nil && !unsupported {
		return nil, err
	}
	if c.Issuer != origin || c.RID != d.RID || c.Epoch != epoch || c.Revision > d.Revision || c.Op != signed.OpPut {
		return nil, errRecord
	}
	if unsupported {
		return nil, err
	}
	if err := g.refuseOwnIdentities(c); err != nil {
		return nil, err
	}
	if max(c.IssuedAt, c.Since) > maxTime { // a statement has none before 1970
		return nil, errTime
	}
	if _, err := directory.ParseKind(string(c.Document.Kind())); err != nil {
		return nil, nil
	}

	mutate(c.Document)
	projection, err := project(c.Agent, c.Document)
	if err != nil {
		return nil, err
	}
	e := &directory.Entry{
		Origin: origin, RID: c.RID, Agent: c.Agent, Owner: c.Owner, Document: c.Document, Packed: directory.Pack(c.Document, projection),
		RegisteredAt: c.Since * 1000, UpdatedAt: c.IssuedAt * 1000, Statement: c.Revision, Redacted: c.Redacted,
	}
	e.Rest()
	return e, nil
}

var errOwnerForeign = errors.New("a peer names an identity of this domain as owner or registrant")

// refuseOwnIdentities refuses a record that names an identity of this domain as its
// owner or as having a part in it: only this domain says what those did
// (threats.md, S5).
func (g *recordGate) refuseOwnIdentities(c *signed.Contents) error {
	for _, named := range append(c.Provenance.Identities(), c.Owner) {
		if named.MemberOf(g.cfg.Domain) {
			return fmt.Errorf("%w: %.100q", errOwnerForeign, named)
		}
	}

	return nil
}

// freed reports whether an entry with that deadline is forgotten (rule T4).
func freed(deadline int64, now time.Time) bool {
	return !now.Before(time.Unix(deadline, 0).Add(directory.Skew))
}

// acceptRecords takes records that came for wanted entries.
func (ss *streams) acceptRecords(st *stream, wanted []signed.Digest, records map[protocol.RecordName]fetched) error {
	return ss.cfg.Panics.Run(contain.Record, func() error { return ss.keepRecords(st, wanted, records) })
}

func (ss *streams) keepRecords(st *stream, wanted []signed.Digest, records map[protocol.RecordName]fetched) error {
	opened := ss.records.openRecords(ss.domain, &signed.Page{Epoch: st.id.Epoch, Digests: wanted}, records)

	if err := ss.change.lock(ss.store); err != nil {
		return err
	}
	defer ss.change.unlock()

	f := ss.pair.feedOf(st.id.Audience)
	if ss.hasEnded() || (st != f.cur && st != f.next) {
		return nil
	}

	done, err := ss.writer.writeRecords(st, opened)
	if err != nil {
		return err
	}

	ss.apply(f, st, done, nil)
	ss.moved()

	return nil
}

// writeRecords writes records of entries that want them still. o.change is held.
func (wr *writer) writeRecords(st *stream, opened map[directory.RID]openedRecord) (done changes, err error) {
	done.state, err = wr.store.Change(st.id, func(t *store.Tx) error {
		for rid, rec := range opened {
			h, err := t.Get(rid)
			if err != nil {
				return err
			}
			if h == nil || h.Record != store.RecordMissing || h.Name() != rec.asked {
				continue // another page changed it meanwhile
			}

			was := *h
			entry := wr.keep(st, t, &was, h, rec)
			if h.Record == store.RecordHeld {
				if err := t.PutRecord(h, rec.bytes); err != nil {
					return err
				}
			}
			if err := t.Put(rid, &was, h); err != nil {
				return err
			}

			done.effects = append(done.effects, effect{digest: h.Digest(rid), entry: entry})
		}

		done.delta, done.owners = t.Delta, t.Owners
		return nil
	})

	return done, err
}

// sweep frees what is dead for a minute, on disk and in the index, and returns
// when the next is due.
func (ss *streams) sweep(limit int) (next time.Time, err error) {
	if err := ss.change.lock(ss.store); err != nil {
		return next, err
	}
	defer ss.change.unlock()

	for _, f := range ss.pair.feeds() {
		for _, st := range []*stream{f.cur, f.next} {
			if st == nil || ss.hasEnded() {
				continue
			}

			before := ss.shown.index.Clock.Now().Add(-directory.Skew)
			due, err := ss.sweepStream(f, st, before.Unix()+1, limit)
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

func (ss *streams) sweepStream(f *feed, st *stream, before int64, limit int) (next int64, err error) {
	var rids []directory.RID
	err = ss.store.Read(st.id, func(t *store.Tx) (err error) {
		rids, next, err = t.DueBefore(before, limit)
		return err
	})
	if err != nil || len(rids) == 0 {
		return next, err
	}

	return next, ss.removeAll(f, st, rids)
}

// removeAll takes entries of a stream away, on disk and in the index. o.change is held.
func (ss *streams) removeAll(f *feed, st *stream, rids []directory.RID) error {
	var done changes
	var err error

	done.state, err = ss.store.Change(st.id, func(t *store.Tx) error {
		for _, rid := range rids {
			old, err := t.Get(rid)
			if err == nil {
				err = t.Remove(rid, old)
			}
			if err != nil {
				return err
			}
		}

		done.delta, done.owners = t.Delta, t.Owners
		return nil
	})
	if err != nil {
		return err
	}

	for _, rid := range rids {
		done.effects = append(done.effects, effect{digest: signed.Digest{RID: rid}})
	}
	ss.apply(f, st, done, nil)

	return nil
}

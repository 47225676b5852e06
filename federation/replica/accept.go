package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Sender says which domain's node handed a message over, and how.
type Sender struct {
	Domain spiffeid.TrustDomain
	Pushed bool // without being asked
	Again  bool // it was postponed once (putAside)
}

// A Claim holds the members that Origin.Admit checks, of a page or a head.
type Claim struct {
	Issuer   spiffeid.TrustDomain
	Aud      directory.Audience
	Epoch    uint64
	IssuedAt int64
	Digests  int
}

// A Page is one that passed the gate; accept has the last word (G3).
type Page struct {
	*signed.Page
	Text       string
	KeyID      string
	VerifiedAt time.Time
}

// Last reports whether the node has no page behind p. A link of a relay's chain says
// only that it was the tip once.
func (p *Page) Last(n protocol.Node) bool { return p.To == p.At && n.Domain == p.Issuer }

// A Pushed message came unasked.
type Pushed struct {
	From Sender
	Msg  string
}

// Admit is the rest of the gate, after the signature: rate, epoch and time. A message from
// the future is detected by a clock that the origin's own messages don't advance. Otherwise
// a thief of a key could advance the clock page by page, and all of the origin's
// registrations would appear expired.
func (o *Origin) Admit(claim Claim) error {
	now := o.base.Now()

	// The origin's newest word on the time confirms a step of this machine's clock (rule T2). An older
	// one may be a replay.
	seen := o.summary.Load()
	if clock := o.base.Checked; clock != nil && claim.IssuedAt > max(seen.headIs.Unix(), seen.status.LastPage.Unix()) {
		clock.Witness(time.Unix(claim.IssuedAt, 0))
	}

	o.mu.Lock()
	newest := o.FeedOf(claim.Aud).Newest().Id.Epoch
	o.mu.Unlock()

	cost := float64(claim.Digests)
	switch {
	case cost > 0 && o.Announced.TokensAt(time.Now()) < cost:
		return &protocol.Refusal{Code: protocol.CodeQuota, Origin: claim.Issuer, Err: errQuota}
	case claim.Epoch < newest:
		return &protocol.Refusal{Code: protocol.CodeEpochOld, Origin: claim.Issuer, Err: errEpoch}
	case claim.IssuedAt > now.Add(future).Unix(), claim.Epoch > uint64(now.Add(future).Unix()):
		return &protocol.Refusal{Code: protocol.CodeFuture, Origin: claim.Issuer, Err: errFuture}
	}

	// The origin's own word on the time counts from here on (rule T4).
	o.Shown.Index.Clock.Advance(time.Unix(claim.IssuedAt, 0))

	return nil
}

// Wanted returns the names of the records to fetch for a page: those that are missing, if the page will
// be applicable once the stream has reached done. Of a full stream these are records that replace others.
func (o *Origin) Wanted(page *Page, done Ahead) (names []protocol.RecordName, err error) {
	id := store.StreamID{Origin: page.Issuer, Audience: page.Audience, Epoch: page.Epoch}
	full, apt := o.fits(page, id, done)

	if !apt {
		return nil, nil
	}

	now := o.Shown.Index.Clock.Now()
	lacking := slices.DeleteFunc(slices.Clone(page.Digests), func(digest signed.Digest) bool {
		return !digest.Live() || Freed(digest.Deadline, now)
	})

	// A stream that the page begins isn't on disk yet, and lacks them all.
	err = o.Store.Read(id, func(t *store.Tx) (err error) {
		lacking, err = t.Lacking(lacking, full)
		return err
	})

	for _, digest := range lacking {
		names = append(names, protocol.NameOf(digest))
	}

	return names, err
}

// fits reports whether the page of a stream will be applicable once the stream has reached done
// (apt). full reports that nothing can be added to the stream.
func (o *Origin) fits(page *Page, id store.StreamID, done Ahead) (full, apt bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	feed := o.FeedOf(page.Audience)

	st := feed.existing(page.Epoch)
	if st == nil {
		if page.Epoch < feed.Newest().Id.Epoch {
			return false, false
		}

		st = newStream(id) // which the page begins
	}

	mark := st.State.Watermark

	// During a pull, the page may continue pages of its epoch that are still on their way to the disk.
	apt = mark < page.To && (page.From <= mark || page.Epoch == done.Epoch && page.From <= done.Watermark)

	return o.full(st, store.Usage{}), apt
}

// Ahead is the position of a stream after the pages under way are applied; zero if no page
// is under way.
type Ahead struct{ Epoch, Watermark uint64 }

// AcceptPage takes a verified page, and returns CodeApplied, CodeOld, CodeGap or CodeEpochOld.
// records are those that were fetched for the page; the others are asked for later. It returns
// store.ErrStalled if the page can't be written now: it is pulled again once the disk answers.
func (o *Origin) AcceptPage(ctx context.Context, page *Page,
	records map[directory.RID]recordgate.Opened) (code protocol.Code, err error) {
	defer Wake(o.Kick)

	err = o.Cfg.Panics.Run(contain.Page, func() (err error) {
		code, err = o.acceptPage(ctx, page, records)
		return err
	})
	if err != nil {
		return "", o.Refusals.Refused(Sender{}, page.Text, err)
	}

	if code == protocol.CodeApplied {
		o.Moved()
	}

	return o.Counted(code), nil
}

// acceptPage applies a verified page to its stream (rule G3): one transaction on disk, then the
// index. Pages that are old or leave a gap change nothing.
func (o *Origin) acceptPage(ctx context.Context, page *Page,
	records map[directory.RID]recordgate.Opened) (protocol.Code, error) {
	if err := o.change.Lock(o.Store); err != nil {
		return "", err
	}

	defer o.change.Unlock()

	st, code, err := o.classify(page)
	if err != nil || code != protocol.CodeApplied {
		return code, err
	}

	// The quota is checked inside the transaction: a page is taken whole or not at all.
	changes, err := o.writePage(ctx, st, page, records)
	if err != nil {
		return "", err
	}

	o.Announced.AllowN(time.Now(), len(page.Digests)) // Admit checked the rate before

	_, step := span.Start(ctx, span.Index)
	o.Apply(st, changes, page)
	step.End()

	// Such a page reaches the origin's own position. Before that, entries that the stream lacks may still be
	// announced, so none is removed. A failure leaves the page applied: the next head or page at the tip tries again.
	if page.To == page.At {
		if err := o.atTip(st); err != nil {
			o.Complain(err)
			o.Cfg.Logger.Error("a stream is complete and entries that are over can't be removed yet", "origin",
				o.Domain.Name(), "audience", page.Audience.String(), "err", err)
		}
	}

	return protocol.CodeApplied, nil
}

// classify returns the stream that a page continues and CodeApplied, or the reason why the page can't be
// applied. The caller holds change.
func (o *Origin) classify(page *Page) (*Stream, protocol.Code, error) {
	feed := o.FeedOf(page.Audience)

	switch {
	case o.HasEnded():
		return nil, "", ErrPeeringEnd
	case o.unlisted && feed == &o.Mesh:
		// The page may have passed the gate before the key document that no longer lists this domain was adopted.
		// It must not bring back the stream that obey dropped.
		return nil, "", &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: page.Issuer, Err: ErrUnlisted}
	}

	st, err := o.streamOf(feed, page.Epoch)

	code := protocol.CodeApplied
	switch {
	case st == nil: // a newer epoch has begun
		code = protocol.CodeEpochOld
	case page.To <= st.State.Watermark, page.At < st.RepullSince:
		code = protocol.CodeOld
	case page.From > st.State.Watermark:
		code = protocol.CodeGap
	}

	return st, code, err
}

// streamOf returns the stream of an epoch, and begins it if it is new; nil if the epoch is over. If
// a newer epoch replaces a stream that hasn't reached its tip, that stream is first deleted from
// disk. Otherwise no quota would count it, and records that the origin withdraws would stay there.
// The caller holds change.
func (o *Origin) streamOf(feed *Feed, epoch uint64) (*Stream, error) {
	if over := feed.next; over != nil && over.Id.Epoch < epoch {
		if err := o.Store.Discard(over.Id); err != nil {
			return nil, err
		}
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	id := store.StreamID{Origin: o.Domain, Audience: feed.Aud, Epoch: epoch}
	if feed.Cur == nil {
		// The first epoch is shown while it is pulled, because it replaces nothing.
		feed.Cur = newStream(id)
	}

	switch {
	case epoch == feed.Cur.Id.Epoch:
		return feed.Cur, nil
	case epoch < feed.Newest().Id.Epoch:
		return nil, nil
	case feed.next == nil || feed.next.Id.Epoch < epoch:
		feed.next = newStream(id)
	}

	return feed.next, nil
}

// writePage writes a page in one transaction, so that it is accepted whole or not at all.
// The caller holds change.
func (o *Origin) writePage(ctx context.Context, st *Stream, page *Page,
	opened map[directory.RID]recordgate.Opened) (Changes, error) {
	// One time for the whole page: the floor that is saved with it is the time by which its digests were freed.
	floor := o.Shown.Index.Clock.Now()

	// A repeated pull doubles the limit, because entries that the origin no longer announces stay
	// until the end of the pull.
	limit := uint64(o.Cfg.Quota)
	if st.RepullSince > 0 {
		limit *= 2
	}

	return span.Get(ctx, span.Store, func() (Changes, error) {
		return o.write(st, func(t *store.Tx) (effects []effect, err error) {
			for _, d := range page.Digests {
				effect, err := o.applyDigest(st, t, page, d, opened[d.RID], floor)
				if err != nil {
					return nil, err
				}

				effects = append(effects, effect)
			}

			// A page that adds no entry passes even over the limit. Otherwise no removal could arrive after the
			// limit was lowered.
			if t.State.Live > limit && t.State.Live > st.State.Live {
				return nil, &protocol.Refusal{Code: protocol.CodeQuota, Origin: page.Issuer, Err: errQuota}
			}

			t.State.Watermark = page.To
			if err := t.AddPage(page.Page, page.Text); err != nil {
				return nil, err
			}

			return effects, t.SaveOrigin(o.Domain, o.saved(floor))
		})
	})
}

// write changes a stream on disk in one transaction. Apply is to repeat the effects in memory. The caller
// holds change.
func (o *Origin) write(st *Stream, change func(*store.Tx) ([]effect, error)) (done Changes, err error) {
	done.State, err = o.Store.Change(st.Id, func(t *store.Tx) (err error) {
		done.effects, err = change(t)
		done.Delta, done.owners = t.Delta, t.Owners

		return err
	})

	return done, err
}

// commit changes a stream on disk and then in memory. The caller holds change.
func (o *Origin) commit(st *Stream, change func(*store.Tx) ([]effect, error)) error {
	done, err := o.write(st, change)
	if err == nil {
		o.Apply(st, done, nil)
	}

	return err
}

// isKnown reports whether a digest announces the stored entry. held is nil if there is no entry. An
// origin may still announce an entry that this node has freed.
func isKnown(held *store.Entry, digest signed.Digest, now time.Time) bool {
	if held == nil {
		return !digest.Live() || Freed(digest.Deadline, now)
	}

	return digest.Live() && agree(held.Digest(digest.RID), digest)
}

// applyDigest writes one digest. The entry that it leaves in force is shown once
// its record is here (federation.md, "Records on demand").
func (o *Origin) applyDigest(st *Stream, t *store.Tx, page *Page, digest signed.Digest, rec recordgate.Opened,
	now time.Time) (effect, error) {
	old, err := t.Get(digest.RID)
	if err != nil {
		return effect{}, err
	}

	// Most such digests are known: a gossiped page repeats those of pages before it.
	// Any other digest changes a part of the stream that a second node has confirmed. That part is confirmed
	// again (rule S14).
	if digest.Revision <= t.Confirmed() && !isKnown(old, digest, now) {
		if err := t.Confirm(digest.Revision - 1); err != nil {
			return effect{}, err
		}
	}

	if !digest.Live() || Freed(digest.Deadline, now) {
		gone := effect{digest: digest}
		if old != nil {
			gone.ended = old.Deadline
		}

		return gone, t.Remove(digest.RID, old)
	}

	kid, err := directory.ParseHash(page.KeyID)
	if err != nil {
		return effect{}, fmt.Errorf("federation: key id %q is not a thumbprint", page.KeyID)
	}

	held := &store.Entry{Revision: digest.Revision, H: digest.H, M: digest.M, Deadline: digest.Deadline,
		Lifetime: digest.Lifetime, Key: kid, CheckedAt: page.VerifiedAt.UnixMilli()}

	// A renewal names the same record, so the record and its state stay. Only a missing record is taken from
	// the page.
	if old != nil && old.Name() == held.Name() && (old.Record != store.RecordMissing || rec.Record == nil) {
		held.At = old.At
		held.From = old.From
		held.Record = old.Record
		held.Place = old.Place
		held.Format = old.Format
		held.Owner, held.Size = old.Owner, old.Size

		return effect{digest: digest, renew: held, missing: held.Record == store.RecordMissing}, t.Put(digest.RID, old,
			held)
	}

	if rec.Asked != held.Name() { // the page names its registration twice, and it is the other one's
		rec = recordgate.Opened{}
	}

	e := effect{digest: digest, missing: rec.Record == nil}
	switch {
	case rec.Record != nil:
		if e.entry, err = o.keep(st, t, old, held, rec); err != nil {
			return e, err
		}
	case (old == nil || old.Record != store.RecordHeld) && o.full(st, t.Delta),
		o.missingRoom(st, t.Delta) <= 0:
		// The record isn't requested, so that a peer can't make this node fetch records that it has to drop.
		// Even a full stream accepts one in place of another.
		e.missing = false
		o.overQuota(held)
	}

	return e, t.Put(digest.RID, old, held)
}

// keep writes a record that arrived and completes held. It returns the entry to show or nil. A
// refused record isn't requested again, because all holders have the same bytes by that
// name. A record that exceeds a quota isn't requested again until there is room. The record
// that it replaces counts as room.
func (o *Origin) keep(st *Stream, t *store.Tx, old, held *store.Entry, rec recordgate.Opened) (*directory.Entry,
	error) {
	held.At, held.From, held.Record = rec.At.UnixMilli(), rec.From.Name(), store.RecordHeld
	if rec.Err != nil {
		held.Record = store.RecordRefused

		code := protocol.CodeRecord
		if errors.Is(rec.Err, recordgate.ErrOwnIdentity) {
			code = protocol.CodeOwnerForeign
		}

		o.Counted(code)

		if o.Refusals.Lines.Allow(code, rec.From) {
			o.Cfg.Logger.Warn("refused a record", "origin", o.Domain.Name(), "h", held.H.String(), "err", rec.Err)
		}

		return nil, nil
	}

	// Both stay in the entry if its record doesn't fit: reserve needs them to see when it does.
	held.Owner, held.Size = store.OwnerKeyOf(rec.Entry), uint32(rec.Stored.Size())
	if !o.hasRoom(st, t, old, held) {
		o.overQuota(held)
		return nil, nil
	}

	held.Format = rec.Format

	return o.Shown.describe(rec.Entry, st.Id.Audience, held), t.PutRecord(held, rec.Stored)
}

// overQuota notes that there is no room for an entry's record.
func (o *Origin) overQuota(h *store.Entry) {
	h.Record = store.RecordOverQuota
	o.Counted(protocol.CodeQuota)
}

// Counted counts a message of the origin, and returns its code.
func (o *Origin) Counted(c protocol.Code) protocol.Code {
	o.Refusals.ByOrigin.Add(o.Domain, c)
	return c
}

// Apply repeats the effects of a disk transaction in memory. If page isn't nil, the feed's
// progress becomes visible to readers at the same moment. A stream that isn't shown yet
// changes no index. The caller holds change.
func (o *Origin) Apply(st *Stream, done Changes, page *Page) {
	feed := o.FeedOf(st.Id.Audience)

	// The alternatives come from disk, so they are read before mu is taken.
	var twice alternatives
	if st == feed.Cur {
		twice = o.alternativesTo(feed, done.effects)
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	wasFull := o.missingRoom(st, store.Usage{}) <= 0
	st.State = done.State
	st.Used = st.Used.Plus(done.Delta)
	st.Owners.Absorb(done.owners)
	o.reached.Store(nil)

	// Room appears when records are freed, or when the missing ones fall below their bound. Readmit then looks
	// for records that fit.
	if done.Delta.Records < 0 || done.Delta.Bytes < 0 || wasFull && o.missingRoom(st, store.Usage{}) > 0 {
		o.Room.Store(true)
	}

	for _, effect := range done.effects {
		if effect.missing {
			st.Missing.add(effect.digest)
		} else {
			st.Missing.remove(effect.digest.RID)
		}
	}

	st.noteEnds(done.effects, o.Cfg.Quota, o.Shown.Index.Clock.Now())

	if page != nil {
		o.progress(feed, st, page)
	}

	if st == feed.Cur {
		o.Shown.apply(done.effects, twice)
	}
}

// progress notes an applied page: a sign of life, and the tip and the level of its feed. The caller
// holds mu.
func (o *Origin) progress(feed *Feed, st *Stream, page *Page) {
	o.pageIs = later(o.pageIs, time.Unix(page.IssuedAt, 0)) // a relay's may be older than the newest
	o.heard = time.Now()
	o.lastErr = ""
	o.unread.page = nil

	// Tip and lag are of the newest epoch, whose revisions can't be compared with those of an earlier one.
	if st != feed.Newest() {
		return
	}

	if n := len(page.Digests); n > 0 {
		feed.tip = max(feed.tip, page.Digests[n-1].Revision)
	}

	if page.To == page.At && page.To >= feed.tip {
		feed.level = time.Now()
	}
}

// Emptied completes a repeated pull of a stream in which a node of the origin has nothing.
func (o *Origin) Emptied(feed *Feed) error {
	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	st := feed.Cur
	if st == nil || st.RepullSince == 0 || st.State.Watermark > 0 || o.HasEnded() {
		return nil
	}

	return o.atTip(st)
}

// atTip completes a change of epoch or a repeated pull after a stream has reached its tip.
// The caller holds change.
func (o *Origin) atTip(st *Stream) error {
	if feed := o.FeedOf(st.Id.Audience); st == feed.next {
		return o.swap(feed)
	}

	return o.endRepull(st)
}

// future is how far ahead of a reader's time a message may have been issued.
const future = 60 * time.Second

// The rate of an origin's digests (rule G6).
const (
	originRate  = 20_000 // a second
	OriginBurst = 200_000
)

var (
	errQuota  = errors.New("origin exceeds its announcement quota")
	errEpoch  = errors.New("epoch is over")
	errFuture = errors.New("issued in the future; check the clocks")

	ErrUnlisted   = errors.New("the origin does not export to this domain")
	ErrPeeringEnd = errors.New("the peering has ended")
)

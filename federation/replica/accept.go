package replica

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Sender says which domain's node handed a message over, and how.
type Sender struct {
	Domain spiffeid.TrustDomain
	Pushed bool // without being asked
	Again  bool // it was postponed once (putAside)
}

// A Claim holds what Origin.Admit checks of a page or a head.
type Claim struct {
	Issuer      spiffeid.TrustDomain
	Aud         directory.Audience
	Epoch       uint64
	IssuedAt    int64
	Digests     int
	KeyID       string
	Unsupported error // the message has a format that this release can't read
}

// A Page is one that passed the gate; accept has the last word (G3).
type Page struct {
	*signed.Page
	Text       string
	KeyID      string
	VerifiedAt time.Time
}

// Stream returns the name of the stream that p is of.
func (p *Page) Stream() store.StreamID {
	return store.StreamID{Origin: p.Issuer, Audience: p.Audience, Epoch: p.Epoch}
}

// Last reports whether the node has no page behind p. A link of a relay's chain says
// only that it was the tip once.
func (p *Page) Last(n protocol.Node) bool { return p.To == p.At && n.Domain == p.Issuer }

// A Pushed message came unasked.
type Pushed struct {
	From Sender
	Msg  string
}

// Examine is the rest of the gate for a page (Admit), and compares the page with its stream. It returns the
// names of the records to fetch (Lacking). The error is a Contradiction if an accepted page convicts the origin.
func (o *Origin) Examine(page *Page, claim Claim, done Ahead) ([]protocol.RecordName, error) {
	if err := o.Admit(claim); err != nil {
		return nil, err
	}

	// Digests after the stream's watermark can't be compared; those are nearly all.
	if mark, _, _ := o.fits(page, done); len(page.Digests) > 0 && page.Digests[0].Revision <= mark {
		if other, err := o.Contradicted(page); err != nil {
			return nil, err
		} else if other != "" {
			return nil, &Contradiction{Other: other}
		}
	}

	return o.Lacking(page, done)
}

// A Contradiction reports that a page differs from an accepted one on the same registration and revision.
type Contradiction struct {
	Other string // the accepted page
}

// Error implements error.
func (c *Contradiction) Error() string { return "page contradicts an accepted one" }

// Admit is the rest of the gate, after the signature: signer, format, rate, epoch and time. A message from
// the future is detected by a clock that the origin's own messages don't advance. Otherwise
// a thief of a key could advance the clock page by page, and all of the origin's
// registrations would appear expired.
func (o *Origin) Admit(claim Claim) error {
	switch {
	case o.Distrusts(claim.KeyID):
		return &protocol.Refusal{Code: protocol.CodeDistrusted, Origin: claim.Issuer, Err: ErrDistrusted}
	case claim.Unsupported != nil:
		return &protocol.Refusal{Code: protocol.CodeUnsupported, Origin: claim.Issuer, Err: claim.Unsupported}
	}

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
		return &protocol.Refusal{Code: protocol.CodeRate, Origin: claim.Issuer, Err: errRate}
	case claim.Epoch < newest:
		return &protocol.Refusal{Code: protocol.CodeEpochOld, Origin: claim.Issuer, Err: errEpoch}
	case claim.IssuedAt > now.Add(future).Unix(), claim.Epoch > uint64(now.Add(future).Unix()):
		return &protocol.Refusal{Code: protocol.CodeFuture, Origin: claim.Issuer, Err: errFuture}
	}

	// The origin's own word on the time counts from here on (rule T4).
	o.Shown.Index.Clock.Advance(time.Unix(claim.IssuedAt, 0))

	return nil
}

// Distrusts reports whether the word of a key's node is not taken, because other nodes of the origin
// contradict it.
func (o *Origin) Distrusts(kid string) bool {
	if !o.Doubts.some.Load() {
		return false
	}

	return o.Doubts.distrusts(o.NodeOf(kid), time.Now())
}

// Lacking returns the names of the records to fetch for a page: those that are missing, if the page will
// be applicable once the stream has reached done. Of a full stream these are records that replace others.
func (o *Origin) Lacking(page *Page, done Ahead) ([]protocol.RecordName, error) {
	_, full, apt := o.fits(page, done)
	if !apt {
		return nil, nil
	}

	return o.Store.Lacking(page.Stream(), page.Digests, full, o.Shown.Index.Clock.Now())
}

// fits reports whether a page will be applicable once its stream has reached done (apt), the watermark of the
// stream, and whether it has room for no other record or entry.
func (o *Origin) fits(page *Page, done Ahead) (mark uint64, full, apt bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	feed := o.FeedOf(page.Audience)
	if page.Epoch < feed.Newest().Id.Epoch && feed.existing(page.Epoch) == nil {
		return 0, false, false
	}

	// A new epoch begins with the page.
	st := cmp.Or(feed.existing(page.Epoch), &Stream{Id: page.Stream()})
	mark = st.State.Watermark

	// During a pull, the page may continue pages of its epoch that are still on their way to the disk.
	apt = mark < page.To && (page.From <= mark || page.Epoch == done.Epoch && page.From <= done.Watermark)

	room := o.room(st)

	return mark, room.Full(store.Usage{}) || room.NoEntry(st.State.Live), apt
}

// Ahead is the position of a stream after the pages under way are applied; zero if no page
// is under way.
type Ahead struct{ Epoch, Watermark uint64 }

// AcceptPage takes a verified page, and returns CodeApplied, CodeOld, CodeGap or CodeEpochOld.
// records are those that were fetched for the page; the others are asked for later. It returns
// store.ErrStalled if the page can't be written now: it is pulled again once the disk answers.
func (o *Origin) AcceptPage(ctx context.Context, page *Page,
	records map[directory.RID]store.Arrival) (code protocol.Code, err error) {
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
	records map[directory.RID]store.Arrival) (protocol.Code, error) {
	if err := o.change.Lock(o.Store); err != nil {
		return "", err
	}

	defer o.change.Unlock()

	st, code, err := o.classify(page)
	if err != nil || code != protocol.CodeApplied {
		return code, err
	}

	changes, err := o.writePage(ctx, st, page, records)
	if err != nil {
		return "", err
	}

	o.Announced.AllowN(time.Now(), len(page.Digests)) // Admit checked the rate before
	o.noteUnkept(changes.Effects)

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
		if err := o.Store.DropStream(over.Id); err != nil {
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

// writePage writes a page to disk. The caller holds change.
func (o *Origin) writePage(ctx context.Context, st *Stream, page *Page,
	records map[directory.RID]store.Arrival) (store.Changes, error) {
	key, _ := directory.ParseHash(page.KeyID) // of a key that the gate has found, so it is a thumbprint

	// The saved state may be newer than on disk, where a write of it failed.
	fresh := &store.NewPage{
		Page: page.Page, Text: page.Text, Key: key, VerifiedAt: page.VerifiedAt, Records: records, Room: o.room(st),
		Now: o.Shown.Index.Clock.Now(), Saved: o.summary.Load().kept,
	}

	return span.Get(ctx, span.Store, func() (store.Changes, error) { return o.Store.ApplyPage(st.Id, fresh) })
}

// Counted counts a message of the origin, and returns its code.
func (o *Origin) Counted(c protocol.Code) protocol.Code {
	o.Refusals.ByOrigin.Add(o.Domain, c)
	return c
}

// Apply repeats the effects of a disk transaction in memory and in the index. If page isn't nil, the feed's
// progress becomes visible to readers at the same moment. A stream that isn't shown yet
// changes no index. The caller holds change.
func (o *Origin) Apply(st *Stream, done store.Changes, page *Page) {
	feed := o.FeedOf(st.Id.Audience)

	// The alternatives come from disk, so they are read before mu is taken.
	var twice alternatives
	if st == feed.Cur {
		twice = o.alternativesTo(feed, done.Effects)
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	before := o.room(st)
	st.repeat(done, o.Cfg.Entries, o.Shown.Index.Clock.Now())
	after := o.room(st)
	o.reached.Store(nil)

	// Room appears when records are freed, or when the missing ones fall below their bound. Readmit then looks
	// for records that fit.
	if done.Delta.Records < 0 || done.Delta.Bytes < 0 ||
		before.Missing(store.Usage{}) <= 0 && after.Missing(store.Usage{}) > 0 {
		o.Room.Store(true)
	}

	if page != nil {
		o.progress(feed, st, page)
	}

	// The index comes last: if it panics, the counters and the position agree with the disk all the same.
	if st == feed.Cur {
		o.Shown.apply(st.Id.Audience, done.Effects, twice)
	}
}

// noteUnkept counts the records and entries of a transaction that weren't kept, and logs the records that the gate
// refused.
func (o *Origin) noteUnkept(effects []store.Effect) {
	for _, effect := range effects {
		switch {
		case effect.Refused != nil:
			code := protocol.CodeRecord
			if errors.Is(effect.Refused, ErrOwnIdentity) {
				code = protocol.CodeOwnerForeign
			}

			o.Counted(code)

			if from, _ := spiffeid.TrustDomainFromString(effect.Held.From); o.Refusals.Lines.Allow(code, from) {
				o.Cfg.Logger.Warn("refused a record", "origin", o.Domain.Name(), "h", effect.Held.H.String(), "err",
					effect.Refused)
			}
		case effect.LeftOut, !effect.Renewed && effect.Held != nil && effect.Held.Record == store.RecordOverQuota:
			o.Counted(protocol.CodeQuota)
		}
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
	originBurst = 200_000
)

var (
	errRate   = errors.New("the origin announces faster than its rate")
	errEpoch  = errors.New("epoch is over")
	errFuture = errors.New("issued in the future; check the clocks")

	ErrUnlisted   = errors.New("the origin does not export to this domain")
	ErrPeeringEnd = errors.New("the peering has ended")
	ErrDistrusted = errors.New("other nodes of the domain contradict the node that signed it")
)

// ownerShare is the divisor of a quota that gives the share of one owner. The import policy
// of the peering may set another.
const ownerShare = 16

// LeastShare is the share of a small quota that one owner may always use. It corresponds to
// the shipped limits on one identity's registrations in its own domain.
var LeastShare = store.Quota{Records: 10_000, Bytes: 32 << 20}

// Quota returns the bound of all records of the origin.
func (o *Origin) Quota() store.Quota {
	rules := &o.Peering.Load().Import

	limit := store.Quota{Records: o.Cfg.Records, Bytes: o.Cfg.Bytes}
	if rules.Records > 0 {
		limit.Records = rules.Records
	}

	if rules.Bytes > 0 {
		limit.Bytes = rules.Bytes
	}

	return limit
}

// OwnerQuota returns the bound of the records of each owner.
func (o *Origin) OwnerQuota() store.Quota {
	parts := uint64(o.Peering.Load().Import.OwnerShare)
	if parts == 0 {
		parts = ownerShare
	}

	of := func(whole, least uint64) uint64 {
		if whole == 0 || parts == 1 {
			return whole
		}

		return max(whole/parts, min(whole, least))
	}
	all := o.Quota()

	return store.Quota{Records: of(all.Records, LeastShare.Records), Bytes: of(all.Bytes, LeastShare.Bytes)}
}

// beside returns the stream of the other audience that counts together with st, noStream for
// none. A new epoch that is gathered beside an old one is counted by itself (rule P3).
func (o *Origin) beside(st *Stream) *Stream {
	feed := o.FeedOf(st.Id.Audience)

	other := o.other(feed)
	switch {
	case st == feed.next && other.next != nil:
		return other.next
	case other.Cur != nil:
		return other.Cur
	}

	return noStream
}

// missingShare is the divisor of a quota of records that gives the number of missing records, and
// leastMissing is the number that a small quota allows. A peer may announce records that it never
// delivers, each of which takes memory and is requested again and again (rule S17).
const (
	missingShare = 16
	leastMissing = 4096
)

// room returns the room of a stream. The caller holds change or mu.
func (o *Origin) room(st *Stream) store.Room {
	all, other := o.Quota(), o.beside(st)
	records := cmp.Or(all.Records, uint64(o.Cfg.Entries))

	return store.Room{
		All: all, Each: o.OwnerQuota(),
		Used: st.Used.Plus(other.Used), Owners: [2]store.Owners{st.Owners, other.Owners},
		MostMissing: int64(max(leastMissing, records/missingShare)),
		MostEntries: o.mostEntries(st, all.Records),
	}
}

// mostEntries returns how many entries a stream may have at a quota of records; 0 for any. Only the disk bounds the
// entries of an origin without such a quota.
func (o *Origin) mostEntries(st *Stream, records uint64) uint64 {
	if records == 0 {
		return 0
	}

	most := max(2*records, uint64(o.Cfg.Entries))

	// Entries that the origin no longer announces stay until the end of a repeated pull.
	if st.RepullSince > 0 {
		most *= 2
	}

	return most
}

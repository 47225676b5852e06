package replica

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
)

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
		o.Announced.AllowN(time.Now(), len(page.Digests)) // Admit checked the rate before
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

	feed, stream, err := o.streamFor(page)
	if err != nil {
		return "", err
	}

	if code := stream.classify(page); code != protocol.CodeApplied {
		return code, nil
	}

	// The quota is checked inside the transaction: a page is taken whole or not at all.
	changes, err := o.writePage(ctx, stream, page, records)
	if err != nil {
		return "", err
	}

	_, step := span.Start(ctx, span.Index)
	o.Apply(feed, stream, changes, page)
	step.End()

	if page.To == page.At {
		err = o.atTip(feed, stream)
	}

	return protocol.CodeApplied, err
}

// streamFor returns the stream of a page, and begins it if necessary. The stream is nil if
// its epoch is over.
func (o *Origin) streamFor(page *Page) (*Feed, *Stream, error) {
	if o.HasEnded() {
		return nil, nil, ErrPeeringEnd
	}

	feed := o.FeedOf(page.Audience)
	if o.unlisted && feed == &o.Mesh {
		return nil, nil, &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: page.Issuer, Err: ErrUnlisted}
	}

	stream, err := o.streamOf(feed, page.Epoch)

	return feed, stream, err
}

// streamOf returns the result of feed.stream. If a newer epoch replaces a stream that hasn't
// reached its tip, that stream is first deleted from disk. Otherwise no quota would count
// it, and records that the origin withdraws would stay there. The caller holds change.
func (o *Origin) streamOf(feed *Feed, epoch uint64) (*Stream, error) {
	over := feed.next
	if over != nil && over.Id.Epoch < epoch {
		if err := o.Store.Discard(over.Id); err != nil {
			return nil, err
		}
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if over != nil && over.Id.Epoch < epoch {
		feed.next = nil
	}

	return feed.stream(store.StreamID{Origin: o.Domain, Audience: feed.Aud, Epoch: epoch}), nil
}

// classify returns CodeApplied for a page that continues the stream, and otherwise the
// reason why it can't be applied. The stream is nil if a newer epoch has begun.
func (st *Stream) classify(page *Page) protocol.Code {
	switch {
	case st == nil:
		return protocol.CodeEpochOld
	case page.To <= st.State.Watermark, page.At < st.RepullSince:
		return protocol.CodeOld
	case page.From > st.State.Watermark:
		return protocol.CodeGap
	}

	return protocol.CodeApplied
}

// Apply repeats the effects of a disk transaction in memory. If page isn't nil, the feed's
// progress becomes visible to readers at the same moment. A stream that isn't shown yet
// changes no index. The caller holds change.
func (o *Origin) Apply(feed *Feed, st *Stream, done Changes, page *Page) {
	var twice alternatives
	if st == feed.Cur {
		twice = o.alternativesTo(feed, done.effects)
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	o.account(st, done)

	for _, effect := range done.effects {
		if effect.missing {
			st.Missing.add(effect.digest)
		} else {
			st.Missing.remove(effect.digest.RID)
		}
	}

	if page != nil {
		o.progress(feed, st, page)
	}

	if st == feed.Cur {
		o.Shown.apply(done.effects, twice)
	}
}

// account adds the changes of a transaction to its stream's totals. The caller holds
// change and mu.
func (o *Origin) account(st *Stream, done Changes) {
	wasFull := o.missingRoom(st, store.Usage{}) <= 0
	st.State = done.State
	st.Used = st.Used.Plus(done.Delta)
	st.Owners.Absorb(done.owners)
	o.reached.Store(nil)

	if done.Delta.Records < 0 || done.Delta.Bytes < 0 || wasFull && o.missingRoom(st, store.Usage{}) > 0 {
		o.Room.Store(true)
	}
}

// progress notes an applied page: the tip and the level of its feed, and that the origin was
// heard. The caller holds mu.
func (o *Origin) progress(feed *Feed, st *Stream, page *Page) {
	o.pageIs = later(o.pageIs, time.Unix(page.IssuedAt, 0)) // a relay's may be older than the newest
	o.heard = time.Now()
	o.lastErr = ""
	o.unread.page = nil

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

// atTip completes a change of epoch or a repeated pull after a stream has reached its tip.
// The caller holds change.
func (o *Origin) atTip(feed *Feed, st *Stream) error {
	if st == feed.next {
		return o.swap(feed)
	}

	return o.endRepull(feed, st)
}

// alternativesTo reads the alternatives to effects on a feed. If they can't be read, the
// entries are shown later. The caller holds change.
func (o *Origin) alternativesTo(f *Feed, effects []effect) alternatives {
	found, err := o.readAlternatives(f, effects)
	if err != nil {
		if !errors.Is(err, store.ErrStalled) {
			o.Cfg.Logger.Error("reading a peer's stored records failed", "origin", o.Domain.Name(), "err", err)
		}

		o.showLater()
	}

	return found
}

package replica

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
)

// AcceptPage is rule G3: it applies a verified page to its stream, on disk and then in the
// index, and returns CodeApplied, CodeOld or CodeGap. records are those that were fetched
// for the page; the others are asked for later. It returns store.ErrStalled if the page
// can't be written now: it is pulled again once the disk answers.
func (o *Origin) AcceptPage(ctx context.Context, page *Page,
	records map[directory.RID]recordgate.Opened) (code protocol.Code, err error) {
	defer Wake(o.Streams.Kick)

	err = o.Cfg.Panics.Run(contain.Page, func() (err error) {
		code, err = o.applyPage(ctx, page, records)
		return err
	})
	if err != nil {
		return "", o.Refusals.Refused(Sender{}, page.Text, err)
	}

	if code == protocol.CodeApplied {
		o.Moved()
	}

	return o.Streams.Writer.Counted(code), nil
}

// applyPage applies a page: one transaction on disk, then the index. Pages that are old
// or leave a gap change nothing.
func (o *Origin) applyPage(ctx context.Context, page *Page,
	records map[directory.RID]recordgate.Opened) (protocol.Code, error) {
	if err := o.Streams.Change.Lock(o.Store); err != nil {
		return "", err
	}

	defer o.Streams.Change.Unlock()

	feed, stream, err := o.streamFor(page)
	if err != nil {
		return "", err
	}

	if code := stream.classify(page); code != protocol.CodeApplied {
		return code, nil
	}

	// The quota is checked inside the transaction: a page is taken whole or not at all.
	_, step := span.Start(ctx, span.Store)
	changes, err := o.Streams.Writer.writePage(stream, page, records, o.Saved)
	step.Done(err)

	if err != nil {
		return "", err
	}

	o.Announced.AllowN(time.Now(), len(page.Digests)) // Admit checked the rate before

	_, step = span.Start(ctx, span.Index)
	o.Streams.Apply(feed, stream, changes, page)
	step.End()

	o.heardPage(page)

	if page.To == page.At {
		err = o.atTip(feed, stream)
	}

	return protocol.CodeApplied, err
}

// streamFor returns the stream of a page, and begins it if necessary. The stream is nil if
// its epoch is over.
func (o *Origin) streamFor(page *Page) (*Feed, *Stream, error) {
	if o.Streams.HasEnded() {
		return nil, nil, ErrPeeringEnd
	}

	feed := o.Streams.Pair.FeedOf(page.Audience)
	if o.Unlisted && feed == &o.Streams.Pair.Mesh {
		return nil, nil, &protocol.Refusal{Code: protocol.CodeOriginUnknown, Origin: page.Issuer, Err: ErrUnlisted}
	}

	id := store.StreamID{Origin: page.Issuer, Audience: page.Audience, Epoch: page.Epoch}
	stream, err := o.Streams.streamOf(feed, id)

	return feed, stream, err
}

// streamOf returns the result of feed.stream. If a newer epoch replaces a stream that hasn't
// reached its tip, that stream is first deleted from disk. Otherwise no quota would count
// it, and records that the origin withdraws would stay there. The caller holds Change.
func (ss *streams) streamOf(feed *Feed, id store.StreamID) (*Stream, error) {
	over := feed.next
	if over != nil && over.Id.Epoch < id.Epoch {
		if err := ss.Store.Discard(over.Id); err != nil {
			return nil, err
		}
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	if over != nil && over.Id.Epoch < id.Epoch {
		feed.next = nil
	}

	return feed.stream(id), nil
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

// atTip completes a change of epoch or a repeated pull after a stream has reached its tip.
// The caller holds Change.
func (o *Origin) atTip(feed *Feed, st *Stream) error {
	if st == feed.next {
		return o.Streams.swap(feed, o.Saved(o.Streams.Shown.Index.Clock.Now()))
	}

	return o.Streams.endRepull(feed, st, o.Keys.revokedKeys())
}

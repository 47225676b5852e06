package federation

import (
	"context"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// A pulled page is one that passed the gate, and what came of its records.
type pulled struct {
	*verifiedPage
	origin  *origin
	records map[protocol.RecordName]fetched
	err     error
}

// ahead is how far a stream will be once what is on its way was applied; zero where
// nothing is.
type ahead struct{ epoch, watermark uint64 }

// take is the whole way of a page: the gate, its records, the stream.
func (rc *receiver) take(ctx context.Context, from sender, giver protocol.Node, text string) (*verifiedPage, protocol.Code, error) {
	p := rc.look(ctx, from, giver, text, ahead{})
	if p.err != nil {
		return nil, "", p.err
	}
	code, err := p.origin.accept(p.verifiedPage, rc.records.openRecords(p.origin.domain, p.Page, p.records))
	return p.verifiedPage, code, err
}

// look takes a page through the gate and asks for its records.
func (rc *receiver) look(ctx context.Context, from sender, giver protocol.Node, text string, done ahead) (p pulled) {
	err := rc.cfg.Panics.Run(contain.Page, func() error {
		p = rc.lookAt(ctx, from, giver, text, done)
		return nil
	})
	if err != nil {
		return pulled{err: rc.refuse(from, text, &protocol.Refusal{Code: protocol.CodeFormat, Err: err})}
	}

	return p
}

func (rc *receiver) lookAt(ctx context.Context, from sender, giver protocol.Node, text string, done ahead) (p pulled) {
	var page *verifiedPage
	o, err := rc.withKeys(ctx, from, giver, func() (o *origin, err error) {
		o, page, err = rc.gate.openPage(from, text)
		return o, err
	})
	if err == nil {
		err = rc.compare(o, page)
	}
	if err != nil {
		return pulled{err: rc.refuse(from, text, err)}
	}
	p = pulled{verifiedPage: page, origin: o}
	p.records, p.err = rc.prefetch(ctx, o, page, giver, done)
	return p
}

// fit reports whether a page will be applicable once what is on its way was applied,
// which stream it goes on, and whether there is room for what it adds.
func (ss *streams) fit(p *verifiedPage, done ahead) (id store.StreamID, full, apt bool) {
	id = store.StreamID{Origin: p.Issuer, Audience: p.Audience, Epoch: p.Epoch}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	f := ss.pair.feedOf(p.Audience)
	st := f.existing(p.Epoch)
	if st == nil {
		if p.Epoch < f.newest().id.Epoch {
			return id, false, false
		}
		st = newStream(id) // which the page begins
	}

	mark := st.state.Watermark
	apt = mark < p.To && (p.From <= mark || p.Epoch == done.epoch && p.From <= done.watermark)

	return id, apt && ss.quotas.full(st, store.Usage{}), apt
}

// prefetch gets the records that an applicable page names and that aren't here.
func (rc *receiver) prefetch(ctx context.Context, o *origin, p *verifiedPage, giver protocol.Node, done ahead) (map[protocol.RecordName]fetched, error) {
	id, full, apt := o.streams.fit(p, done)
	if !apt {
		return nil, nil
	}

	var names []protocol.RecordName
	for _, d := range p.Digests {
		if d.Live() && !freed(d.Deadline, o.streams.shown.index.Clock.Now()) {
			names = append(names, protocol.NameOf(d))
		}
	}
	err := rc.store.Read(id, func(t *store.Tx) (err error) {
		if names, err = t.Missing(p.Digests, names); full && err == nil {
			names, err = t.Replacing(p.Digests, names)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.PrefetchTime)
	defer cancel()
	return rc.fetch(ctx, o.domain, names, []protocol.Node{giver}), nil
}

// pullAll pulls page by page until a node has no more, or its stint ends.
func (pl *puller) pullAll(ctx context.Context, o *origin, f *feed, n protocol.Node, s *stint) error {
	for stuck := 0; ; {
		since := o.streams.since(f)
		if done, err := pl.pullOn(ctx, o, f, n, s, since); done || err != nil {
			return err
		}
		if o.streams.since(f) == since {
			// A new epoch's first page says so once; a node that goes on so has no chain from 0.
			if stuck++; stuck > 1 {
				return errGap
			}
		}
	}
}

// pullOn pulls from since on until the node has no more, and reports so, or until a
// page brings the stream no further. Up to three pages are on their way: while one is
// written to disk, the records of the next are judged, and the node is asked for those
// of the one behind it. So all processors of both ends have something to do.
func (pl *puller) pullOn(ctx context.Context, o *origin, f *feed, n protocol.Node, s *stint, since uint64) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	all, end := pl.bring(ctx, o, f, n, s, since)
	defer end()
	defer cancel()
	for p := range all {
		if p.err != nil {
			return false, p.err
		}
		code, err := p.origin.accept(p.verifiedPage, p.opened)
		if err != nil || code != protocol.CodeApplied {
			return false, err
		}
		s.bring(len(p.Digests))
		if p.last(n) {
			return true, nil
		}
	}
	return end(), ctx.Err()
}

// A judged page is one whose records passed their gate, or didn't.
type judged struct {
	pulled
	opened map[directory.RID]openedRecord
}

// bring starts the first two stages, and returns the pages that are ready to be written
// and what waits for the stages' end, which reports whether the node has no more. Two
// pages wait at most to be taken, one in each stage.
func (pl *puller) bring(ctx context.Context, o *origin, f *feed, n protocol.Node, s *stint, since uint64) (_ <-chan judged, end func() bool) {
	asked, all := make(chan pulled), make(chan judged)
	var stages sync.WaitGroup
	whole := false // of the first stage until that has ended
	stages.Go(func() {
		defer close(asked)
		whole = pl.askOn(ctx, o, f, n, s, since, asked)
	})
	stages.Go(func() {
		defer close(all)
		for p := range asked {
			j := judged{pulled: p}
			if p.err == nil {
				j.opened = pl.records.openRecords(p.origin.domain, p.Page, p.records)
			}
			if !hand(ctx, all, j) {
				return
			}
		}
	})
	return all, func() bool {
		stages.Wait() // the second ends before the first where ctx does
		return whole
	}
}

// last reports whether the node has no page behind p. A link of a relay's chain says
// only that it was the tip once.
func (p *verifiedPage) last(n protocol.Node) bool { return p.To == p.At && n.Domain == p.Issuer }

// askOn asks for page after page, each with its records, and hands them on. It reports
// whether the node has no more.
func (pl *puller) askOn(ctx context.Context, o *origin, f *feed, n protocol.Node, s *stint, since uint64, to chan<- pulled) bool {
	for done := (ahead{}); ; {
		var p pulled
		text, err := pl.client.Page(s.asking, n, o.domain, f.aud, since)
		if err != nil {
			p.err = err
		} else if text != "" {
			p = pl.receiver.look(s.asking, sender{domain: n.Domain}, n, text, done)
		} else {
			return true
		}
		if !hand(ctx, to, p) || p.err != nil || p.last(n) {
			return false
		}
		if p.From > since || p.To <= since || done.epoch != 0 && p.Epoch != done.epoch {
			return false // it brings the stream no further: whoever writes it begins anew
		}
		since, done = p.To, ahead{p.Epoch, p.To}
	}
}

// hand gives v to the next stage; false where ctx ends first.
func hand[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

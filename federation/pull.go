package federation

import (
	"context"
	"errors"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

var (
	errGap    = errors.New("gap between the received pages and the watermark")
	errNoNews = errors.New("the node returned nothing new")
	errNoNode = errors.New("the peering has no address")
)

// A puller asks nodes for page after page.
type puller struct {
	cfg      *Config
	store    *store.Store
	client   *protocol.Client
	receiver *receiver
	gate     *gate
	records  *replica.RecordGate
}

// pullInTurn is pullAll, one of this node's loops after the other.
func (pl *puller) pullInTurn(ctx context.Context, o *replica.Origin, f *replica.Feed, n protocol.Node, s *fetchBudget) error {
	select {
	case f.Busy <- struct{}{}:
		defer func() { <-f.Busy }()
		return pl.pullAll(ctx, o, f, n, s)
	case <-s.asking.Done():
		return context.Cause(s.asking)
	}
}

// pullAll pulls page by page until a node has no more, or its fetchBudget ends.
func (pl *puller) pullAll(ctx context.Context, o *replica.Origin, f *replica.Feed, n protocol.Node, s *fetchBudget) error {
	for stuck := 0; ; {
		since := o.Streams.Since(f)
		if done, err := pl.pullOn(ctx, o, f, n, s, since); done || err != nil {
			return err
		}
		if o.Streams.Since(f) == since {
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
func (pl *puller) pullOn(ctx context.Context, o *replica.Origin, f *replica.Feed, n protocol.Node, s *fetchBudget, since uint64) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	all, end := pl.bring(ctx, o, f, n, s, since)
	defer end()
	defer cancel()
	for p := range all {
		if p.err != nil {
			return false, p.err
		}
		code, err := p.origin.AcceptPage(p.Page, p.opened)
		if err != nil || code != protocol.CodeApplied {
			return false, err
		}
		s.bring(len(p.Digests))
		if p.Last(n) {
			return true, nil
		}
	}
	return end(), ctx.Err()
}

// A judged page is one whose records passed their gate, or didn't.
type judged struct {
	receivedPage
	opened map[directory.RID]replica.OpenedRecord
}

// bring starts the first two stages, and returns the pages that are ready to be written
// and what waits for the stages' end, which reports whether the node has no more. Two
// pages wait at most to be taken, one in each stage.
func (pl *puller) bring(ctx context.Context, o *replica.Origin, f *replica.Feed, n protocol.Node, s *fetchBudget, since uint64) (_ <-chan judged, end func() bool) {
	asked, all := make(chan receivedPage), make(chan judged)
	var stages sync.WaitGroup
	whole := false // of the first stage until that has ended
	stages.Go(func() {
		defer close(asked)
		whole = pl.askOn(ctx, o, f, n, s, since, asked)
	})
	stages.Go(func() {
		defer close(all)
		for p := range asked {
			j := judged{receivedPage: p}
			if p.err == nil {
				j.opened = pl.records.OpenRecords(p.origin.Domain, p.Page.Page, p.records)
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

// askOn asks for page after page, each with its records, and hands them on. It reports
// whether the node has no more.
func (pl *puller) askOn(ctx context.Context, o *replica.Origin, f *replica.Feed, n protocol.Node, s *fetchBudget, since uint64, to chan<- receivedPage) bool {
	for done := (replica.Ahead{}); ; {
		var p receivedPage
		text, err := pl.client.Page(s.asking, n, o.Domain, f.Aud, since)
		if err != nil {
			p.err = err
		} else if text != "" {
			p = pl.receiver.receive(s.asking, replica.Sender{Domain: n.Domain}, n, text, done)
		} else {
			return true
		}
		if !hand(ctx, to, p) || p.err != nil || p.Last(n) {
			return false
		}
		if p.From > since || p.To <= since || done.Epoch != 0 && p.Epoch != done.Epoch {
			return false // it brings the stream no further: whoever writes it begins anew
		}
		since, done = p.To, replica.Ahead{Epoch: p.Epoch, Watermark: p.To}
	}
}

// pullBehind pulls from the node whose head came last, if that says that something is
// missing.
func (pl *puller) pullBehind(ctx context.Context, o *replica.Origin) {
	n, ok := o.Contacts.LastHeadFrom()
	if !ok || !o.Streams.Behind() {
		return
	}
	select {
	case o.Streams.Pair.Mesh.Busy <- struct{}{}:
		defer func() { <-o.Streams.Pair.Mesh.Busy }()
	default:
		return // another loop is at it
	}
	if err := pl.pullAll(ctx, o, &o.Streams.Pair.Mesh, n, unlimited(ctx)); err != nil {
		pl.cfg.Logger.Debug("pulling pages failed", "origin", o.Domain.Name(), "node", n.Base, "err", err)
	}
}

// pullPrivate brings what the origin announces to this domain alone up to the
// origin's present: an empty page says that nothing is new (rule G5).
func (pl *puller) pullPrivate(ctx context.Context, o *replica.Origin) {
	n, ok := o.Contacts.Node(&o.Streams.Pair.Private)
	if !ok {
		return
	}
	select {
	case o.Streams.Pair.Private.Busy <- struct{}{}:
		defer func() { <-o.Streams.Pair.Private.Busy }()
	default:
		return // another loop is at it
	}
	if err := pl.pullAll(ctx, o, &o.Streams.Pair.Private, n, unlimited(ctx)); errors.Is(err, store.ErrStalled) {
		o.Complain(err)
	} else if err != nil && ctx.Err() == nil {
		o.Failed(&o.Streams.Pair.Private, err)
		pl.cfg.Logger.Debug("pulling the private stream failed", "origin", o.Domain.Name(), "node", n.Base, "err", err)
	}
}

// pullFromAnother pulls from a node that isn't the origin's. It reports whether that has
// more, and only its time has ended.
func (pl *puller) pullFromAnother(ctx context.Context, o *replica.Origin, f *replica.Feed, n protocol.Node) (more bool) {
	s := newFetchBudget(ctx, o)
	defer s.end()
	err := error(nil)
	if f == &o.Streams.Pair.Mesh {
		err = pl.receiver.askHead(s.asking, o, n)
	}
	if err == nil {
		err = pl.pullInTurn(ctx, o, f, n, s)
	}
	if err != nil {
		pl.cfg.Logger.Debug("pulling from another node failed", "origin", o.Domain.Name(), "audience", f.Aud.String(), "node", n.Base, "digests", s.brought, "err", err)
	}
	return s.over() && s.brought > 0
}

const compactSlack = 4096

var errLonger = errors.New("the fresh chain would be longer than the one it replaces")

// compact pulls an origin's chain anew from 0 where it weighs more than twice what
// is alive (federation.md, "Pages"): fresh pages are gathered beside the chain and
// take its place once they reach as far.
func (pl *puller) compact(ctx context.Context, o *replica.Origin, f *replica.Feed) {
	st, state, gathering := o.Streams.ChainOf(f)
	n, ok := o.Contacts.Node(f)
	if st == nil || gathering || !ok {
		return
	}
	weighs := state.Listed
	err := pl.store.Read(st.Id, func(t *store.Tx) error {
		weighs += linkWeight * t.Links()
		return nil
	})
	if err != nil {
		if !errors.Is(err, store.ErrStalled) {
			pl.cfg.Logger.Error("reading a chain failed", "origin", o.Domain.Name(), "err", err)
		}
		return
	}

	if weighs <= 2*state.Live+compactSlack {
		return
	}
	select {
	case f.Busy <- struct{}{}:
		defer func() { <-f.Busy }()
	default:
		return
	}
	if err := pl.repull(ctx, o, f, st, n, weighs+compactSlack); err != nil {
		pl.cfg.Logger.Debug("renewing a chain failed", "origin", o.Domain.Name(), "node", n.Base, "err", err)
	}
}

// repull gathers a fresh chain. An origin that goes on for ever fills no disk: most
// is what the chain may weigh.
func (pl *puller) repull(ctx context.Context, o *replica.Origin, f *replica.Feed, st *replica.Stream, n protocol.Node, most uint64) error {
	if _, err := pl.store.Change(st.Id, func(t *store.Tx) error { return t.BeginFreshChain() }); err != nil {
		return err
	}
	for since, weighs := uint64(0), uint64(0); ; {
		text, err := pl.client.Page(ctx, n, o.Domain, f.Aud, since)
		if err != nil {
			return err
		}
		if text == "" {
			return errGap
		}
		var p *replica.Page
		err = pl.cfg.Panics.Run(contain.Page, func() (err error) {
			_, p, err = pl.gate.openPage(replica.Sender{Domain: n.Domain}, text)
			return err
		})
		if err != nil {
			return pl.receiver.refuse(replica.Sender{Domain: n.Domain}, text, err)
		}
		if p.From != since || p.Audience != f.Aud || p.Epoch != st.Id.Epoch {
			return errGap
		}
		if p.To > o.Streams.Since(f) { // new to the stream as well
			if _, _, err := pl.receiver.take(ctx, replica.Sender{Domain: n.Domain}, n, text); err != nil {
				return err
			}
		}
		if weighs += linkWeight + store.Weight(p.Page); weighs > most {
			return errLonger
		}
		since = p.To
		done, err := o.Streams.Link(f, st, p)
		if done || err != nil {
			return err
		}
	}
}

// linkWeight is how many digests a link of a chain weighs beside those that it lists.
const linkWeight = 16

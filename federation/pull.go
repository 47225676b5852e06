package federation

import (
	"context"
	"errors"
	"sync"

	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

var (
	errGap    = errors.New("gap between the received pages and the watermark")
	errNoNews = errors.New("the node returned nothing new")
	errNoNode = errors.New("the peering has no address")
	errMoved  = errors.New("the peering no longer has this address")
)

// pullInTurn calls pullAll once no other loop of this node pulls the same stream.
func (fl *follower) pullInTurn(ctx context.Context, origin *replica.Origin, feed *replica.Feed, node protocol.Node,
	budget *fetchBudget) error {
	if !feed.Begin(budget.asking) {
		return context.Cause(budget.asking)
	}

	defer feed.End()

	return fl.pullAll(ctx, origin, feed, node, budget)
}

// pullAll pulls page by page until a node has no more, or its fetchBudget ends.
func (fl *follower) pullAll(ctx context.Context, origin *replica.Origin, feed *replica.Feed, node protocol.Node,
	budget *fetchBudget) error {
	for stuck := 0; ; {
		since := origin.Since(feed)

		run := pullRun{origin, feed, node, budget, since}
		if done, err := fl.pullOn(ctx, run); err != nil {
			return err
		} else if done && since == 0 && node.Domain == origin.Domain {
			// A relay without pages may lack them. Only a node of the origin can state that the stream is
			// empty.
			return origin.Emptied(feed)
		} else if done {
			return nil
		}

		if origin.Since(feed) == since {
			// The first page of a new epoch may leave the watermark once. A second time means
			// that the node has no chain from 0.
			if stuck++; stuck > 1 {
				return errGap
			}
		}
	}
}

// A pullRun pulls the pages of one stream from one node, those after the revision since.
type pullRun struct {
	origin *replica.Origin
	feed   *replica.Feed
	node   protocol.Node
	budget *fetchBudget
	since  uint64
}

// pullOn pulls pages until the node has no more, or until a page does not advance
// the stream; done is true in the first case. Up to four pages are in the pipeline: one is
// written to disk, the records of the next are judged, those of the third are fetched, and the
// fourth is asked for. This uses the processors of both ends.
func (fl *follower) pullOn(ctx context.Context, run pullRun) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)

	// cancel is deferred last and runs first: end waits for stages that may still wait to hand on a page.
	all, end := fl.bring(ctx, run)
	defer end()
	defer cancel()

	for page := range all {
		code := page.accept(page.span.In(ctx))
		page.span.Done(page.err)

		if page.err != nil || code != protocol.CodeApplied {
			return false, page.err
		}

		run.budget.bring(len(page.Digests))

		if page.Last(run.node) {
			return true, nil
		}
	}

	return end(), ctx.Err()
}

// bring starts the first three stages of the pipeline. It returns the channel of pages ready to
// be written, and a function that waits for the stages and reports whether the node has no
// more pages. At most three pages wait, one in each stage.
func (fl *follower) bring(ctx context.Context, run pullRun) (_ <-chan receivedPage, end func() bool) {
	asked, fetched, opened := make(chan receivedPage), make(chan receivedPage), make(chan receivedPage)

	var stages sync.WaitGroup
	whole := false // written by the first stage until that has ended
	stages.Go(func() {
		defer close(asked)
		whole = fl.askOn(ctx, run, asked)
	})
	// A page that came before the budget ended is still accepted, with its records.
	stages.Go(func() { pass(ctx, asked, fetched, fl.receiver.prefetch) })
	stages.Go(func() { pass(ctx, fetched, opened, fl.receiver.open) })

	return opened, func() bool {
		stages.Wait() // if ctx ends, the later stages end before the first
		return whole
	}
}

// pass takes one step with each page, and hands it to the next stage.
func pass(ctx context.Context, from <-chan receivedPage, to chan<- receivedPage,
	step func(context.Context, *receivedPage)) {
	defer close(to)

	for page := range from {
		step(page.span.In(ctx), &page)

		if !page.hand(ctx, to) {
			return
		}
	}
}

// hand passes a page to the next stage. It ends the page's way, and returns false, if ctx ends first.
func (rp *receivedPage) hand(ctx context.Context, to chan<- receivedPage) bool {
	select {
	case to <- *rp:
		return true
	case <-ctx.Done():
		rp.span.Done(ctx.Err())
		return false
	}
}

// askOn pulls pages and passes them to the next stage. It reports whether the node has no more.
func (fl *follower) askOn(ctx context.Context, run pullRun, to chan<- receivedPage) bool {
	// A request ends with the pipeline: the node may hold it for long.
	asking, stop := context.WithCancel(run.budget.asking)
	defer stop()
	defer context.AfterFunc(ctx, stop)()

	since, done := run.since, replica.Ahead{}

	for {
		// Pages on their way take memory too.
		if fl.cfg.isShort() && !wait(ctx, nil, shortPause) {
			return false
		}

		received, none := fl.askFor(asking, run, since, done)
		if none {
			return true
		}

		if !received.hand(ctx, to) {
			return false
		}

		if received.err != nil || received.Last(run.node) {
			return false
		}

		if received.From > since || received.To <= since || done.Epoch != 0 && received.Epoch != done.Epoch {
			return false // it does not advance the stream; pullAll starts again from the watermark
		}

		since, done = received.To, replica.Ahead{Epoch: received.Epoch, Watermark: received.To}
	}
}

// askFor pulls the page from since on. none is true if the node has no such page. The span of a
// received page is ended once the page is applied.
func (fl *follower) askFor(asking context.Context, run pullRun, since uint64, done replica.Ahead) (
	received receivedPage, none bool) {
	// The budget ends requests only. A page that came before its end is still applied.
	ctx, whole := fl.cfg.Tracer.Start(asking, span.PeerPage)
	inside, step := span.Start(ctx, span.Ask)
	text, err := fl.client.Page(inside, run.node, run.origin.Domain, run.feed.Aud, since)
	step.Done(err)

	if err == nil && text != "" {
		received = fl.receiver.receive(ctx, replica.Sender{Domain: run.node.Domain}, run.node, text, done)
		err = received.err
	}

	if err != nil || text == "" {
		whole.Done(err)
		received.err = err

		return received, err == nil
	}

	whole.Items(len(received.Digests))
	received.span = whole

	return received, false
}

// pullBehind pulls from the node that sent the last head, if pages are missing by that head.
func (fl *follower) pullBehind(ctx context.Context, origin *replica.Origin) {
	node, ok := origin.Contacts.LastHeadFrom()
	if !ok || !origin.Behind() {
		return
	}

	if !origin.Mesh.TryBegin() {
		return // another loop is at it
	}

	defer origin.Mesh.End()

	if err := fl.pullAll(ctx, origin, &origin.Mesh, node, unlimited(ctx)); err != nil {
		fl.cfg.Logger.Debug("pulling pages failed", "origin", origin.Domain.Name(), "node", node.Base, "err", err)
	}
}

// pullPrivate pulls the private stream up to the origin's current revision: an empty page
// means that there is nothing new (rule G5).
func (fl *follower) pullPrivate(ctx context.Context, origin *replica.Origin) {
	// A node that withholds the stream is not noticed, because no head names its tip. The node that gave the last
	// head is another one each time; a domain that doesn't list this one gives no heads.
	node, ok := origin.Contacts.LastHeadFrom()
	if !ok || origin.IsUnlisted() {
		node, ok = origin.Contacts.Node(&origin.Private)
	}

	if !ok {
		return
	}

	if !origin.Private.TryBegin() {
		return // another loop is at it
	}

	defer origin.Private.End()

	if err := fl.pullAll(ctx, origin, &origin.Private, node, unlimited(ctx)); errors.Is(err,
		store.ErrStalled) {
		origin.Complain(err)
	} else if err != nil && ctx.Err() == nil {
		origin.Failed(&origin.Private, node, err)
		fl.cfg.Logger.Debug("pulling the private stream failed", "origin", origin.Domain.Name(), "node", node.Base,
			"err", err)
	}
}

// pullFromAnother pulls from a node of another domain or a sibling. It reports whether the
// node delivered digests and its fetchBudget ended, so that it may have more.
func (fl *follower) pullFromAnother(ctx context.Context, origin *replica.Origin, feed *replica.Feed,
	node protocol.Node) (more bool) {
	budget := newFetchBudget(ctx, origin)
	defer budget.end()

	err := error(nil)
	if feed == &origin.Mesh {
		// The head comes first, because it names the epoch. The private stream has no head of its own.
		err = fl.receiver.askHead(budget.asking, origin, node)
	}

	if err == nil {
		err = fl.pullInTurn(ctx, origin, feed, node, budget)
	}

	if err != nil {
		fl.cfg.Logger.Debug("pulling from another node failed", "origin", origin.Domain.Name(), "audience",
			feed.Aud.String(), "node", node.Base, "digests", budget.brought, "err", err)
	}

	return budget.over() && budget.brought > 0
}

const compactSlack = 4096

var errLonger = errors.New("the fresh chain would be longer than the one it replaces")

// compact pulls an origin's chain again from 0 if it weighs more than twice the live entries
// (federation.md, "Pages"). Fresh pages are stored beside the chain, and replace it once they
// reach the same revision.
func (fl *follower) compact(ctx context.Context, origin *replica.Origin, feed *replica.Feed) {
	st, state, gathering := origin.ChainOf(feed)

	node, ok := origin.Contacts.Node(feed)
	if st == nil || gathering || !ok {
		return
	}

	weighs := state.Listed

	err := fl.store.Read(st.Id, func(t *store.Tx) error {
		weighs += linkWeight * t.Links()
		return nil
	})
	if err != nil {
		if !errors.Is(err, store.ErrStalled) {
			fl.cfg.Logger.Error("reading a chain failed", "origin", origin.Domain.Name(), "err", err)
		}

		return
	}

	if weighs <= 2*state.Live+compactSlack {
		return
	}

	if !feed.TryBegin() {
		return // another loop is at it
	}

	defer feed.End()

	// A failure leaves the chain in use as it is. The next try begins another fresh one.
	if err := fl.repull(ctx, origin, feed, st, node, weighs+compactSlack); err != nil {
		fl.cfg.Logger.Debug("renewing a chain failed", "origin", origin.Domain.Name(), "node", node.Base, "err", err)
	}
}

// repull pulls a fresh chain of at most the weight most, so that an origin with endless pages
// can't fill the disk.
func (fl *follower) repull(ctx context.Context, origin *replica.Origin, feed *replica.Feed, st *replica.Stream,
	node protocol.Node, most uint64) error {
	if _, err := fl.store.Change(st.Id, func(t *store.Tx) error { return t.BeginFreshChain() }); err != nil {
		return err
	}

	for since, weighs := uint64(0), uint64(0); ; {
		text, err := fl.client.Page(ctx, node, origin.Domain, feed.Aud, since)
		if err != nil {
			return err
		}

		if text == "" {
			return errGap
		}

		received := fl.receiver.receive(ctx, replica.Sender{Domain: node.Domain}, node, text, replica.Ahead{})
		if received.err != nil {
			return received.err
		}

		if received.From != since || received.Audience != feed.Aud || received.Epoch != st.Id.Epoch {
			return errGap
		}

		if received.To > origin.Since(feed) { // new to the stream as well
			if fl.receiver.finish(ctx, &received); received.err != nil {
				return received.err
			}
		}

		if weighs += linkWeight + store.Weight(received.Page.Page); weighs > most {
			return errLonger
		}

		since = received.To

		done, err := origin.Link(st, received.Page)
		if done || err != nil {
			return err
		}
	}
}

// linkWeight is the weight of a link of a chain in digests, in addition to those it lists.
const linkWeight = 16

package federation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A follower runs the loops that follow an origin.
type follower struct {
	cfg        *Config
	store      *store.Store
	client     *protocol.Client
	origins    *replica.Set
	access     *access
	neighbours *neighbours
	receiver   *receiver
	puller     *puller
	gossip     relay
}

// A relay passes verified messages on.
type relay interface {
	passOn(origin spiffeid.TrustDomain, msg string)
}

// follow holds one subscription to a stream. A node that fails gives way to the
// next; when all of them failed, others are asked.
func (fl *follower) follow(ctx context.Context, origin *replica.Origin, feed *replica.Feed) {
	b := newBackoff()
	for fails := 0; wait(ctx, fl.store.Disk.Answers(), 0); {
		node, ok := origin.Contacts.Node(feed)

		err := errNoNode
		if ok {
			err = fl.subscribe(ctx, origin, feed, node, func() { fails = 0; b.Reset() })
		}

		if ctx.Err() != nil {
			return
		}

		if errors.Is(err, store.ErrStalled) {
			origin.Complain(err) // of which no node of the origin's is guilty
			continue
		}

		origin.Failed(feed, err)
		fl.cfg.Logger.Debug("a subscription ended", "origin", origin.Domain.Name(), "audience", feed.Aud.String(),
			"node", node.Base, "err", err)
		// whoever is asked has the same, until this node is upgraded
		if protocol.CodeOf(err) == protocol.CodeUnsupported {
			wait(ctx, nil, fl.cfg.headPause())
			continue
		}

		if fails++; fails >= len(origin.Contacts.Nodes()) && fl.pullFromOthers(ctx, origin, feed) {
			b.Reset()
		}

		wait(ctx, nil, fl.cfg.Stretch.of(b.NextBackOff()))
	}
}

// pullFromOthers gets what others hold of an origin that can't be reached: a sibling,
// which may have heard it while this node was away, and other peers, but for what is for
// this domain alone. Signatures decide, channels never do. It reports whether one of
// them has more.
func (fl *follower) pullFromOthers(ctx context.Context, origin *replica.Origin, feed *replica.Feed) (more bool) {
	all := fl.neighbours.siblings(askSiblings)
	if feed == &origin.Streams.Pair.Mesh {
		others := fl.neighbours.others(origin.Domain)
		all = append(all, others[:min(askOthers, len(others))]...)
	}

	for _, n := range all {
		if fl.puller.pullFromAnother(ctx, origin, feed, n) {
			more = true
		}
	}

	return more
}

// tend does for an origin all but what pulls page by page: heads, gossiped messages
// and missing records.
func (fl *follower) tend(ctx context.Context, origin *replica.Origin) {
	heads := newAlarm(fl.cfg.headPause())
	defer heads.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-origin.Mailbox.Queue:
			fl.open(ctx, origin, msg)

			if origin.Contacts.PutOff() || len(origin.Mailbox.Late) > 0 {
				heads.sooner(replica.KeysEvery)
			}
		case <-origin.Streams.Kick:
			retry.Reset(fl.backlog(ctx, origin))
		case <-retry.C:
			retry.Reset(fl.backlog(ctx, origin))
		case <-origin.Ask:
			fl.askNextHead(ctx, origin)
		case <-heads.C:
			fl.openLate(ctx, origin)
			origin.ResumeRepull()

			for _, f := range origin.Streams.Pair.Feeds() {
				fl.puller.compact(ctx, origin, f)
			}

			heads.set(fl.cfg.headPause())
		}
	}
}

// askNextHead asks another node of the origin than the last time, so that a
// subscription to one that lags is noticed, and has what is missing pulled.
func (fl *follower) askNextHead(ctx context.Context, origin *replica.Origin) {
	if n, ok := origin.Contacts.HeadNode(); ok && fl.receiver.askHead(ctx, origin, n) == nil {
		origin.Contacts.HeadFrom(n)
	}

	replica.Wake(origin.Pull)
}

// catchUp pulls what heads say there is, and what is for this domain alone. It is a
// loop of its own: a first sync takes minutes, and heads and gossip are heard meanwhile.
func (fl *follower) catchUp(ctx context.Context, origin *replica.Origin) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-origin.Pull:
			fl.puller.pullBehind(ctx, origin)
			fl.puller.pullPrivate(ctx, origin)
		}
	}
}

// backlog asks for missing records: siblings first, then the origin, then others
// (federation.md, "Records on demand"). It returns when to try again.
func (fl *follower) backlog(ctx context.Context, origin *replica.Origin) time.Duration {
	for ctx.Err() == nil && fl.store.Disk.StalledFor() == 0 {
		st, wanted, next := origin.Streams.Backlog.Due(wantBatch)
		if len(wanted) == 0 {
			return next
		}

		names := make([]protocol.RecordName, len(wanted))
		for i, d := range wanted {
			names[i] = protocol.NameOf(d)
		}

		timed, cancel := context.WithTimeout(ctx, protocol.RecordsTime)
		got := fl.receiver.fetch(timed, origin.Domain, names, fl.neighbours.holders(origin, st.Id.Audience))
		cancel()

		if err := origin.Streams.AcceptRecords(st, wanted, got); errors.Is(err, store.ErrStalled) {
			break // its end wakes this loop
		} else if err != nil {
			fl.cfg.Logger.Error("storing records failed", "origin", origin.Domain.Name(), "err", err)
			return replica.MissingPauseMost
		}

		origin.Streams.Backlog.Postpone(st, wanted)
		fl.origins.Notify()

		if len(got) == 0 {
			return replica.MissingPause // nobody is there: the rest would be asked for in vain
		}
	}

	return replica.MissingPauseMost
}

// putAside keeps a message that is to be judged later, which tend sees to. One for which
// there is no room is refused now.
func (fl *follower) putAside(origin *replica.Origin, message replica.Pushed) {
	if len(origin.Mailbox.Late) == lateMost {
		_ = fl.receiver.refuse(message.From, message.Msg,
			&protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: origin.Domain, Err: errLate})

		return
	}

	message.From.Again = true
	origin.Mailbox.Late = append(origin.Mailbox.Late, message)
}

// openLate asks another node of the origin than before for its head, and with that for
// its key document, and judges what waited for it.
func (fl *follower) openLate(ctx context.Context, origin *replica.Origin) {
	fl.askNextHead(ctx, origin)
	late := origin.Mailbox.Late

	origin.Mailbox.Late = nil
	for _, p := range late {
		fl.open(ctx, origin, p)
	}
}

// open takes a gossiped message. What is newer than all that was passed on before
// is passed on, and nothing that wasn't verified.
func (fl *follower) open(ctx context.Context, origin *replica.Origin, message replica.Pushed) {
	giver, ok := origin.Contacts.Node(&origin.Streams.Pair.Mesh)
	if !ok {
		return
	}

	switch text := message.Msg[1:]; message.Msg[0] {
	case protocol.GossipHead:
		if origin.Holds(text) { // siblings tell the last head again and again, also when its key is listed no longer
			origin.Streams.Writer.Counted(protocol.CodeOld)
			return
		}

		switch err := fl.receiver.takeHead(ctx, message.From, giver, text); {
		case errors.Is(err, errLate):
			fl.putAside(origin, message)
		case err == nil && origin.Streams.Behind():
			replica.Wake(origin.Ask)
		}
	case protocol.GossipPage:
		if fl.store.Disk.StalledFor() > 0 {
			return // it is pulled once the disk answers
		}

		page, code, err := fl.receiver.take(ctx, message.From, giver, text)
		switch {
		case errors.Is(err, errLate):
			fl.putAside(origin, message)
		case err != nil: // counted and written down by the gate
		case code == protocol.CodeGap:
			replica.Wake(origin.Ask)
		case origin.Furthest(page):
			fl.gossip.passOn(origin.Domain, message.Msg)
		}

	default: // of a later release, which tells all that counts by pulls as well
		origin.Streams.Writer.Counted(protocol.CodeUnsupported)
	}
}

// seed takes from the domain's other nodes what they have of an origin that this
// node has nothing of, before it takes anything from anybody else: a node that lost
// its disk could else be told what is long over (federation.md, "Epochs"). The head
// that a sibling has names the epoch, and its chain brings the watermark. A node
// whose siblings have nothing, or don't answer, begins at 0; what a sibling didn't
// have is pulled from the origin afterwards.
func (fl *follower) seed(ctx context.Context, origin *replica.Origin) {
	var wg sync.WaitGroup
	defer wg.Wait()

	for _, f := range origin.Streams.Pair.Feeds() {
		if origin.Streams.Blank(f) {
			wg.Go(func() { fl.seedFeed(ctx, origin, f) })
		}
	}
}

func (fl *follower) seedFeed(ctx context.Context, o *replica.Origin, f *replica.Feed) {
	for _, n := range fl.neighbours.siblings(seedSiblings) {
		fl.puller.pullFromAnother(ctx, o, f, n)
	}
}

// The pace of asking again for records that nobody gave.
const (
	wantBatch = 500
)

const lateMost = 8 // messages of an origin that wait for its key document

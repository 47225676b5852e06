package federation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// A follower runs the loops that follow origins.
type follower struct {
	cfg      *Config
	store    *store.Store
	client   *protocol.Client
	peers    peers
	receiver *receiver
	gossip   *gossipFeed
}

// follow keeps one subscription to a stream until ctx ends. After a failure it tries the
// origin's next node; when all have failed, it pulls from other domains and siblings.
func (fl *follower) follow(ctx context.Context, origin *replica.Origin, feed *replica.Feed) {
	b := newBackoff()

	// Each round waits for the disk first, because no page can be accepted while it stalls.
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
			origin.Complain(err) // a local failure: the origin's node stays the contact
			continue
		}

		origin.Failed(feed, node, err)
		fl.cfg.Logger.Debug("a subscription ended", "origin", origin.Domain.Name(), "audience", feed.Aud.String(),
			"node", node.Base, "err", err)
		// Every node has the same pages; they stay unsupported until this node is upgraded.
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

// pullFromOthers pulls the pages of an unreachable origin from a sibling, which may have
// received them while this node was down, and for the mesh stream from other peers too.
// Signatures decide on acceptance, never the sender. It reports whether any of them has
// newer pages.
func (fl *follower) pullFromOthers(ctx context.Context, origin *replica.Origin, feed *replica.Feed) (more bool) {
	all := fl.peers.siblings(askSiblings)
	if feed == &origin.Mesh {
		others := fl.peers.others(origin.Domain)
		all = append(all, others[:min(askOthers, len(others))]...)
	}

	for _, n := range all {
		if fl.pullFromAnother(ctx, origin, feed, n) {
			more = true
		}
	}

	return more
}

// tend handles an origin's heads, gossiped messages and missing records. It does not pull
// pages; catchUp does.
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

			// Late messages and a postponed pull need the key document, which comes with the next head.
			if origin.Contacts.PutOff() || len(origin.Mailbox.Late) > 0 {
				heads.sooner(replica.KeysEvery)
			}
		case <-origin.Kick:
			retry.Reset(fl.backlog(ctx, origin))
		case <-retry.C:
			retry.Reset(fl.backlog(ctx, origin))
		case <-origin.Ask:
			fl.askNextHead(ctx, origin)
		case <-heads.C:
			fl.openLate(ctx, origin)
			origin.ResumeRepull()

			for _, f := range origin.Feeds() {
				fl.compact(ctx, origin, f)
			}

			heads.set(fl.cfg.headPause())
		}
	}
}

// askNextHead requests the head from a different node of the origin each time, so that a
// subscription to a lagging node is noticed, and of the one after it if that node is distrusted. It then
// wakes catchUp.
func (fl *follower) askNextHead(ctx context.Context, origin *replica.Origin) {
	for range origin.Contacts.Nodes() {
		node, ok := origin.Contacts.HeadNode()
		if !ok {
			break
		}

		err := fl.receiver.askHead(ctx, origin, node)
		if err == nil {
			origin.Contacts.HeadFrom(node)
		}

		if protocol.CodeOf(err) != protocol.CodeDistrusted {
			break
		}
	}

	replica.Wake(origin.Pull)
}

// catchUp pulls the pages that heads announce, and the private stream. It is a separate
// loop because a first sync takes minutes, while heads and gossip need to be handled.
func (fl *follower) catchUp(ctx context.Context, origin *replica.Origin) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-origin.Pull:
			fl.pullBehind(ctx, origin)
			fl.pullPrivate(ctx, origin)
		}
	}
}

// backlog requests missing records: from siblings first, then from the origin, then from
// others (federation.md, "Records on demand"). It returns the time to wait before the next
// try.
func (fl *follower) backlog(ctx context.Context, origin *replica.Origin) time.Duration {
	for ctx.Err() == nil && fl.store.Disk.StalledFor() == 0 {
		st, wanted, next := origin.Due(wantBatch)
		if len(wanted) == 0 {
			return next
		}

		names := make([]protocol.RecordName, len(wanted))
		for i, d := range wanted {
			names[i] = protocol.NameOf(d)
		}

		timed, cancel := context.WithTimeout(ctx, protocol.RecordsTime)
		got := fl.receiver.fetch(timed, origin.Domain, names, fl.peers.holders(origin, st.Id.Audience), maxAnswers)
		cancel()

		if err := origin.AcceptRecords(ctx, st, wanted, got); errors.Is(err, store.ErrStalled) {
			break // its end wakes this loop
		} else if err != nil {
			fl.cfg.Logger.Error("storing records failed", "origin", origin.Domain.Name(), "err", err)
			return replica.MissingPauseMost
		}

		// Records that came are no longer missing, so only the others are postponed.
		origin.Postpone(st, wanted)
		fl.peers.origins.Notify()

		if len(got) == 0 {
			return replica.MissingPause // no holder answered, so further requests would fail too
		}
	}

	return replica.MissingPauseMost
}

// putAside keeps a message until the origin's key document was requested; openLate then
// takes it. If lateMost messages are waiting, it refuses the message.
func (fl *follower) putAside(origin *replica.Origin, message replica.Pushed) {
	if len(origin.Mailbox.Late) == lateMost {
		_ = fl.receiver.refuse(message.From, message.Msg,
			&protocol.Refusal{Code: protocol.CodeKeyUnknown, Origin: origin.Domain, Err: errLate})

		return
	}

	message.From.Again = true
	origin.Mailbox.Late = append(origin.Mailbox.Late, message)
}

// openLate requests the origin's head, and with it the key document, from another node than
// before. It then takes the messages that waited for that key document.
func (fl *follower) openLate(ctx context.Context, origin *replica.Origin) {
	fl.askNextHead(ctx, origin)
	late := origin.Mailbox.Late

	origin.Mailbox.Late = nil
	for _, p := range late {
		fl.open(ctx, origin, p)
	}
}

// open takes a gossiped message. It passes on a verified page that is newer than all pages
// passed on before, and nothing else.
func (fl *follower) open(ctx context.Context, origin *replica.Origin, message replica.Pushed) {
	giver, ok := origin.Contacts.Node(&origin.Mesh)
	if !ok {
		return
	}

	switch text := message.Msg[1:]; message.Msg[0] {
	case protocol.GossipHead:
		// Siblings repeat the last head, even when its key is no longer listed.
		if origin.NewestHead() == text {
			origin.Counted(protocol.CodeOld)
			return
		}

		switch err := fl.receiver.takeHead(ctx, message.From, giver, text); {
		case errors.Is(err, errLate):
			fl.putAside(origin, message)
		case err == nil && origin.Behind():
			replica.Wake(origin.Ask)
		}
	case protocol.GossipPage:
		if fl.store.Disk.StalledFor() > 0 {
			return // it is pulled once the disk answers
		}

		traced, whole := fl.cfg.Tracer.Start(ctx, span.PeerPage)
		page, code, err := fl.receiver.take(traced, message.From, giver, text)
		whole.Done(err)

		switch {
		case errors.Is(err, errLate):
			fl.putAside(origin, message)
		case err != nil: // counted and logged by the gate
		case code == protocol.CodeGap:
			replica.Wake(origin.Ask)
		case origin.Furthest(page):
			fl.gossip.passOn(origin.Domain, message.Msg)
		}

	default: // of a later release, which serves all important data by pulls as well
		origin.Counted(protocol.CodeUnsupported)
	}
}

// seed pulls an origin's streams from siblings if this node has nothing of them, before it
// accepts anything from other senders. Otherwise a node that lost its disk could be given
// an old epoch (federation.md, "Epochs"). A sibling's head names the epoch, and its chain
// brings the watermark. If siblings have nothing or don't answer, the node begins at 0.
// Later pages are pulled from the origin afterwards.
func (fl *follower) seed(ctx context.Context, origin *replica.Origin) {
	var wg sync.WaitGroup
	defer wg.Wait()

	for _, f := range origin.Feeds() {
		if origin.Blank(f) {
			wg.Go(func() { fl.seedFeed(ctx, origin, f) })
		}
	}
}

func (fl *follower) seedFeed(ctx context.Context, o *replica.Origin, f *replica.Feed) {
	for _, n := range fl.peers.siblings(seedSiblings) {
		fl.pullFromAnother(ctx, o, f, n)
	}
}

// The bounds of requests for missing records.
const (
	wantBatch = 500
)

const lateMost = 8 // messages of an origin that wait for its key document

package federation

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

var (
	errGap    = errors.New("the pages don't connect to what is here")
	errNoNews = errors.New("the node answers what is known already")
	errNoNode = errors.New("the peering names no address")
)

// A forked error says that an origin issued two key documents of one epoch and
// seq, and has both (evidence E3).
type forked interface {
	error
	Forked() (held, other string)
}

// refreshKeys pulls an origin's key document from a node that has it. A document
// that doesn't hold changes nothing.
func (rc *receiver) refreshKeys(ctx context.Context, o *origin, n protocol.Node) error {
	ctx, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()
	text, err := rc.client.Get(ctx, n, protocol.PathKeys, url.Values{"origin": {o.domain.Name()}}, protocol.MaxKeys)
	if err != nil {
		return err
	}
	err = rc.cfg.Panics.Run(contain.Keys, func() error { return o.adopt(text, n.Domain == o.domain) })
	var two forked
	if errors.As(err, &two) {
		held, other := two.Forked()
		rc.evidence.accuse(o, nil, []string{held, other})
	}
	if err != nil {
		return fmt.Errorf("key document of %s: %w", o.domain.Name(), err)
	}
	rc.evidence.recall(o)
	return nil
}

// obey drops what an origin told the mesh, where its key document lists this domain
// no longer: it isn't to be had here any more (MESH-025). The origin's time and its
// key document stay, and what it told this domain alone. o.change is held.
func (o *origin) obey() error {
	doc, _, ok := o.cfg.Keys.Keys(o.domain)

	o.mu.Lock()
	o.unlisted = ok && !slices.Contains(doc.Mesh, o.cfg.Domain)
	o.mu.Unlock()

	if !o.unlisted || o.streams.pair.mesh.cur == nil && o.streams.pair.mesh.next == nil {
		return nil
	}

	if err := o.store.DropStreams(o.domain, directory.Mesh); err != nil {
		return err
	}

	o.streams.replace(&o.streams.pair.mesh, nil)
	o.forgetHead()

	o.cfg.Logger.Warn("an origin lists this domain no longer; what it told is dropped", "origin", o.domain.Name())
	o.moved()
	o.streams.hide(&o.streams.pair.mesh, func(*directory.Entry) bool { return true })

	return nil
}

// askHead asks a node for an origin's head, and for the key document where the
// head names another one than is known.
func (rc *receiver) askHead(ctx context.Context, o *origin, n protocol.Node) error {
	timed, cancel := context.WithTimeout(ctx, protocol.AnswerTime)
	defer cancel()
	text, err := rc.client.Get(timed, n, protocol.PathHeads, url.Values{"origin": {o.domain.Name()}}, gossip.MaxHead)
	if errors.Is(err, protocol.ErrDenied) && n.Domain == o.domain {
		if failed := rc.refreshKeys(ctx, o, n); failed != nil { // which says whether this domain is still listed
			return failed
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.unlisted {
			return errUnlisted
		}
		return err
	}
	if err != nil {
		return err
	}
	return rc.takeHead(ctx, sender{domain: n.Domain}, n, text)
}

func (rc *receiver) takeHead(ctx context.Context, from sender, giver protocol.Node, text string) error {
	return rc.cfg.Panics.Run(contain.Head, func() error { return rc.judgeHead(ctx, from, giver, text) })
}

func (rc *receiver) judgeHead(ctx context.Context, from sender, giver protocol.Node, text string) error {
	var h *signed.Head
	o, err := rc.withKeys(ctx, from, giver, func() (o *origin, err error) {
		o, h, err = rc.gate.openHead(from, text)
		return o, err
	})
	if err != nil {
		return rc.refuse(from, text, err)
	}
	if err := o.acceptHead(h, text); err != nil {
		return err
	}
	if doc, _, ok := rc.cfg.Keys.Keys(o.domain); (!ok || directory.HashOf(doc.Payload()) != h.Keys) && o.contacts.mayRefresh(from) {
		if err := rc.refreshKeys(ctx, o, giver); err != nil { // pages may be by keys that are known, as the head is
			o.complain(err)
		}
	}
	return nil
}

// acceptHead keeps a newer head. A lower one is ignored and counted: being behind
// is no crime. While the disk doesn't answer, what a head says is known all the same,
// unless it begins an epoch: it tells how far this node is behind.
func (o *origin) acceptHead(h *signed.Head, text string) error {
	if err := o.streams.change.lock(o.store); err != nil {
		o.knowHead(h, text)
		return err
	}
	defer o.streams.change.unlock()

	if o.streams.hasEnded() {
		return errPeeringEnd
	}
	if o.hasNewer(h) {
		o.streams.writer.counted(protocol.CodeOld)
		return nil
	}

	o.hear()
	if err := o.beginEpoch(h); err != nil {
		return err
	}

	o.knowHead(h, text)
	if err := o.store.SaveOrigin(o.domain, o.saved(o.streams.shown.index.Clock.Now())); err != nil {
		return err
	}

	if st := o.streams.pair.mesh.newest(); st.id.Epoch == h.Epoch && st.state.Watermark >= h.Tip && h.At >= st.anew { // an origin that announces nothing, yet or any more
		if err := o.atTip(&o.streams.pair.mesh, st); err != nil {
			return err
		}
	}
	o.moved()

	return nil
}

// hasNewer reports whether a head says nothing that isn't known.
func (o *origin) hasNewer(h *signed.Head) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.head != nil && !newerHead(h, o.head)
}

func newerHead(h, last *signed.Head) bool {
	switch {
	case h.Epoch != last.Epoch:
		return h.Epoch > last.Epoch
	case h.At != last.At:
		return h.At > last.At
	}

	return h.IssuedAt > last.IssuedAt
}

// beginEpoch begins streams of the epoch that a head names, if it is a new one. o.change
// is held.
func (o *origin) beginEpoch(h *signed.Head) error {
	if f := &o.streams.pair.private; f.cur != nil { // a new epoch is one of all streams
		if _, err := o.streams.streamOf(f, store.StreamID{Origin: h.Issuer, Audience: f.aud, Epoch: h.Epoch}); err != nil {
			return err
		}
	}

	_, err := o.streams.streamOf(&o.streams.pair.mesh, store.StreamID{Origin: h.Issuer, Audience: directory.Mesh, Epoch: h.Epoch})
	return err
}

// knowHead notes what a newer head of an epoch that has begun here says.
func (o *origin) knowHead(h *signed.Head, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.head != nil && !newerHead(h, o.head) {
		return
	}
	if !o.streams.noteHead(h, o.head != nil && h.Epoch > o.head.Epoch) {
		return
	}

	o.head = h
	o.headText = text
	o.headIs = time.Unix(h.IssuedAt, 0)
	o.heard = time.Now()
	o.lastErr = ""
	o.unread.head = nil
}

// behind reports whether the origin is known to have announced more than is here.
func (ss *streams) behind() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.pair.mesh.newest().state.Watermark < ss.pair.mesh.tip
}

// pullInTurn is pullAll, one of this node's loops after the other.
func (pl *puller) pullInTurn(ctx context.Context, o *origin, f *feed, n protocol.Node, s *stint) error {
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
		return pl.pullAll(ctx, o, f, n, s)
	case <-s.asking.Done():
		return context.Cause(s.asking)
	}
}

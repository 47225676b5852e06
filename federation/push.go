package federation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A gossiper sends messages to the mesh's pool; nothing depends on it.
type gossiper interface {
	Publish(stream string, msg []byte, may gossip.Audience) // the latest of a stream wins
	Members() []gossip.MemberStatus
	Close() error
}

// A pushed message came unasked.
type pushed struct {
	from sender
	msg  string
}

// pushQueue bounds the messages that wait to be looked at.
const pushQueue = 256

// A gossipQueue holds what came by gossip until gossipIn takes it (gossip.Mesh).
type gossipQueue struct {
	feed    *gossipFeed
	waiting chan pushed
}

var _ gossip.Mesh = (*gossipQueue)(nil)

// Deliver implements gossip.Mesh.
func (q *gossipQueue) Deliver(from spiffeid.ID, msg []byte) {
	p := pushed{sender{domain: from.TrustDomain(), pushed: true}, string(msg)}
	for _, lost := range enqueue(q.waiting, p) {
		q.feed.refusals.bySender.add(lost.from.domain, protocol.CodeRate)
	}
}

// Heads implements gossip.Mesh.
func (q *gossipQueue) Heads(to spiffeid.TrustDomain) [][]byte { return q.feed.heads(to) }

// MergeHeads implements gossip.Mesh.
func (q *gossipQueue) MergeHeads(from spiffeid.ID, heads [][]byte) {
	for _, head := range heads {
		q.Deliver(from, append([]byte{protocol.GossipHead}, head...))
	}
}

// startGossip joins the pool and runs what lives on it.
func (gf *gossipFeed) start(ctx context.Context, wg *sync.WaitGroup) error {
	in := make(chan pushed, pushQueue)
	cfg := *gf.cfg.Gossip
	cfg.Traffic = gf.gossiped.Add
	cfg.Panics = gf.cfg.Panics
	cfg.Stretch = gf.cfg.Stretch.of

	g, err := gossip.Start(&cfg, &gossipQueue{feed: gf, waiting: in})
	if err != nil {
		return err
	}
	gf.setGossip(g)
	wg.Go(func() { gf.gossipOut(ctx, g) })
	wg.Go(func() {
		gf.gossipIn(ctx, in)
		gf.setGossip(nil)
		if err := g.Close(); err != nil {
			gf.cfg.Logger.Warn("can't leave the pool", "error", err)
		}
	})
	return nil
}

func (gf *gossipFeed) setGossip(g gossiper) {
	gf.mu.Lock()
	defer gf.mu.Unlock()
	gf.pool = g
}

// enqueue puts p into a queue, where it is full in the place of the oldest: of more than
// one where others put something into it meanwhile. It returns those.
func enqueue(c chan pushed, p pushed) (lost []pushed) {
	for {
		select {
		case c <- p:
			return lost
		default:
		}
		select {
		case oldest := <-c:
			lost = append(lost, oldest)
		default:
		}
	}
}

func (gf *gossipFeed) gossipIn(ctx context.Context, in <-chan pushed) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-in:
			gf.cfg.Panics.Do(contain.Gossip, func() { gf.route(p) })
		}
	}
}

// route hands a gossiped message to the loop of the origin that it claims to be
// of; the gate is that loop's.
func (gf *gossipFeed) route(p pushed) {
	if len(p.msg) < 2 || len(p.msg) > gossip.MaxMessage {
		_ = gf.receiver.refuse(p.from, p.msg, &protocol.Refusal{Code: protocol.CodeFormat, Err: errTooLarge})
		return
	}
	if !gf.senders.allow(p.from.domain) { // before anything of it is parsed (rule G6)
		_ = gf.receiver.refuse(p.from, p.msg, &protocol.Refusal{Code: protocol.CodeRate, Err: errSender})
		return
	}
	issuer := peek(p.msg[1:])
	if !issuer.IsZero() && issuer == gf.cfg.Domain {
		gf.hearOwn(p)
		return
	}
	if o := gf.origins.get(issuer); o != nil && o.accepts() {
		for _, lost := range enqueue(o.mailbox.queue, p) {
			gf.refusals.byOrigin.add(o.domain, protocol.CodeRate)
			gf.refusals.bySender.add(lost.from.domain, protocol.CodeRate)
		}
		return
	}
	if _, _, err := gf.gate.openPage(p.from, p.msg[1:]); err != nil {
		_ = gf.receiver.refuse(p.from, p.msg, err)
	}
}

// peek reads what a message says that it is of, without believing it.
func peek(text string) (issuer spiffeid.TrustDomain) {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return issuer
	}
	var c struct {
		Iss string `json:"iss"`
	}
	if json.Unmarshal(parts.Payload, &c) != nil {
		return issuer
	}
	issuer, _ = spiffeid.TrustDomainFromString(c.Iss)
	return issuer
}

// hearOwn notes how far the own domain has spoken to the mesh in its epoch. A peer may
// echo what it alone was told, or pulled before it was gossiped: so this silences
// nobody but a member that speaks in the leader's place. By a key that this domain has
// none but its members sign.
func (gf *gossipFeed) hearOwn(p pushed) {
	if p.msg[0] != protocol.GossipPage {
		return
	}
	payload, _, err := gf.cfg.Keys.Verify(gf.cfg.Domain, signed.TypePage, p.msg[1:])
	if err != nil {
		if keyCode(err) == protocol.CodeSignature {
			_ = gf.receiver.refuse(p.from, p.msg, &protocol.Refusal{Code: protocol.CodeSignature, Err: err})
		}
		return
	}
	page, err := gf.cfg.Dialect.ParsePage(payload)
	if err == nil && page.Audience == directory.Mesh && page.Epoch == gf.cfg.Source.Position().Epoch && page.To > gf.ownHeard.Load() {
		gf.ownHeard.Store(page.To)
	}
}

// open takes a gossiped message. What is newer than all that was passed on before
// is passed on, and nothing that wasn't verified.
func (fl *follower) open(ctx context.Context, o *origin, p pushed) {
	giver, ok := o.contacts.node(&o.streams.pair.mesh)
	if !ok {
		return
	}
	switch text := p.msg[1:]; p.msg[0] {
	case protocol.GossipHead:
		if o.holds(text) { // siblings tell the last head again and again, also when its key is listed no longer
			o.streams.writer.counted(protocol.CodeOld)
			return
		}
		switch err := fl.receiver.takeHead(ctx, p.from, giver, text); {
		case errors.Is(err, errLate):
			fl.putAside(o, p)
		case err == nil && o.streams.behind():
			nudge(o.ask)
		}
	case protocol.GossipPage:
		if fl.store.Disk.StalledFor() > 0 {
			return // it is pulled once the disk answers
		}

		page, code, err := fl.receiver.take(ctx, p.from, giver, text)
		switch {
		case errors.Is(err, errLate):
			fl.putAside(o, p)
		case err != nil: // counted and written down by the gate
		case code == protocol.CodeGap:
			nudge(o.ask)
		case o.furthest(page):
			fl.gossip.passOn(o.domain, p.msg)
		}
	default: // of a later release, which tells all that counts by pulls as well
		o.streams.writer.counted(protocol.CodeUnsupported)
	}
}

// furthest reports whether a page goes further than all that was passed on, as it is then.
func (o *origin) furthest(p *verifiedPage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := directory.Position{Epoch: p.Epoch, Revision: p.To}
	if !o.passedOn.Before(to) {
		return false
	}
	o.passedOn = to
	return true
}

// holds reports whether a head is the one that is held, byte for byte.
func (o *origin) holds(head string) bool { return o.newestHead() == head }

func (gf *gossipFeed) passOn(origin spiffeid.TrustDomain, msg string) {
	g := gf.joined()
	if g != nil {
		g.Publish(origin.Name(), []byte(msg), gf.audience(origin))
	}
}

// joined returns the pool; nil while gossip is off.
func (gf *gossipFeed) joined() gossiper {
	gf.mu.Lock()
	defer gf.mu.Unlock()

	return gf.pool
}

// audience is who may have what an origin says on its mesh stream, pages and
// heads: the domains that its newest key document lists (federation.md, "Pages").
// A head is of no use without the stream whose tip it names, and would tell
// others how much goes on in it.
func (gf *gossipFeed) audience(origin spiffeid.TrustDomain) gossip.Audience {
	return func(td spiffeid.TrustDomain) bool { return gf.access.lists(origin, td) }
}

// heads returns the newest verified head of each origin and the own domain's, of
// those that a domain may have.
func (gf *gossipFeed) heads(to spiffeid.TrustDomain) [][]byte {
	var all [][]byte
	if gf.access.lists(gf.cfg.Domain, to) {
		if own, err := gf.publisher.Head(); err == nil {
			all = append(all, []byte(own))
		}
	}
	for _, o := range gf.origins.all() {
		if !gf.access.lists(o.domain, to) {
			continue
		}
		o.mu.Lock()
		if o.headText != "" && !o.streams.hasEnded() {
			all = append(all, []byte(o.headText))
		}
		o.mu.Unlock()
	}
	return all
}

// The pace of gossip.
const (
	gossipEvery   = time.Second     // at most one page
	leaderSilence = 2 * time.Second // after which another member speaks
)

// gossipOut publishes what is new: the leader at once, another member after the
// leader's silence (federation.md, "Pages"), at most one page a second.
func (gf *gossipFeed) gossipOut(ctx context.Context, g gossiper) {
	t := &publish.GossipCursor{From: gf.cfg.Source.Tip(directory.Mesh)}
	told := t.From
	var keys directory.Position
	for ctx.Err() == nil {
		changed := gf.cfg.Source.Changed()
		again := time.Duration(0)
		if doc := gf.cfg.Source.KeyDocument(); doc != nil && protocol.Issue(doc) != keys {
			if head, err := gf.publisher.Head(); err == nil {
				keys = protocol.Issue(doc)
				g.Publish("head", append([]byte{protocol.GossipHead}, head...), gf.audience(gf.cfg.Domain))
			} else {
				again = gossipEvery // this node takes up the key that the document has for it in a moment
			}
		}
		if gf.cfg.Source.Tip(directory.Mesh) <= told {
			wait(ctx, changed, again)
			continue
		}
		if !gf.cfg.Source.IsLeader() {
			wait(ctx, nil, leaderSilence)
			told = max(told, gf.ownHeard.Load())
		}
		told = gf.gossipPage(g, t, told)
		wait(ctx, nil, gossipEvery)
	}
}

// gossipPage publishes a page of what lies above told, and returns how far the
// pool is told now.
func (gf *gossipFeed) gossipPage(g gossiper, t *publish.GossipCursor, told uint64) uint64 {
	tip := gf.cfg.Source.Tip(directory.Mesh)
	if tip <= told {
		return told
	}
	page, err := t.Page(gf.publisher)
	switch {
	case err != nil:
		gf.cfg.Logger.Warn("can't gossip", "error", err)
	case page != nil && len(page.Text) < gossip.MaxMessage:
		g.Publish(directory.Mesh.String(), append([]byte{protocol.GossipPage}, page.Text...), gf.audience(gf.cfg.Domain))
	}
	return tip
}

// Members returns the mesh's pool as this node sees it; nil while gossip is off.
// Membership is a hint: it changes only whom a node asks.
func (m *Mesh) Members() []gossip.MemberStatus {
	pool := m.gossip.joined()
	if pool == nil {
		return nil
	}

	return pool.Members()
}

// wait returns false when ctx ends first. A nil channel or a zero time is for
// ever.
func wait(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-c:
	case <-after:
	}
	return true
}

package federation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// A gossipFeed is what this node tells the mesh's pool, and what it hears from there.
type gossipFeed struct {
	cfg         *Config
	publisher   *publish.Publisher
	origins     *replica.Set
	access      *access
	gate        *gate
	receiver    *receiver
	refusals    *replica.RefusalLog
	senders     senders
	gossiped    protocol.Traffic
	ownGossiped atomic.Uint64 // how far another member gossiped the own stream

	mu   sync.Mutex // guards what follows
	pool gossiper   // nil while gossip is off
}

// A gossiper sends messages to the mesh's pool; nothing depends on it.
type gossiper interface {
	Publish(stream string, msg []byte, may gossip.Audience) // the latest of a stream wins
	Members() []gossip.MemberStatus
	Close() error
}

// A gossipQueue holds what came by gossip until gossipIn takes it (gossip.Mesh).
type gossipQueue struct {
	feed    *gossipFeed
	waiting chan replica.Pushed
}

var _ gossip.Mesh = (*gossipQueue)(nil)

// Deliver implements gossip.Mesh.
func (q *gossipQueue) Deliver(from spiffeid.ID, msg []byte) {
	p := replica.Pushed{From: replica.Sender{Domain: from.TrustDomain(), Pushed: true}, Msg: string(msg)}
	for _, lost := range enqueue(q.waiting, p) {
		q.feed.refusals.BySender.Add(lost.From.Domain, protocol.CodeRate)
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

// start joins the pool and runs what lives on it.
func (gf *gossipFeed) start(ctx context.Context, wg *sync.WaitGroup) error {
	in := make(chan replica.Pushed, pushQueue)
	cfg := *gf.cfg.Gossip
	cfg.Traffic = gf.gossiped.Add
	cfg.Panics = gf.cfg.Panics
	cfg.Stretch = gf.cfg.Stretch.of

	gossiper, err := gossip.Start(&cfg, &gossipQueue{feed: gf, waiting: in})
	if err != nil {
		return err
	}

	gf.setGossip(gossiper)
	wg.Go(func() { gf.gossipOut(ctx, gossiper) })
	wg.Go(func() {
		gf.gossipIn(ctx, in)
		gf.setGossip(nil)

		if err := gossiper.Close(); err != nil {
			gf.cfg.Logger.Warn("leaving the gossip pool failed", "err", err)
		}
	})

	return nil
}

func (gf *gossipFeed) setGossip(gossiper gossiper) {
	gf.mu.Lock()
	defer gf.mu.Unlock()
	gf.pool = gossiper
}

// enqueue puts p into a queue, if it is full in the place of the oldest: of more than
// one where others put something into it meanwhile. It returns those.
func enqueue(c chan replica.Pushed, message replica.Pushed) (lost []replica.Pushed) {
	for {
		select {
		case c <- message:
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

func (gf *gossipFeed) gossipIn(ctx context.Context, in <-chan replica.Pushed) {
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
func (gf *gossipFeed) route(message replica.Pushed) {
	if len(message.Msg) < 2 || len(message.Msg) > gossip.MaxMessage {
		_ = gf.receiver.refuse(message.From, message.Msg,
			&protocol.Refusal{Code: protocol.CodeFormat, Err: errTooLarge})

		return
	}

	if !gf.senders.allow(message.From.Domain) { // before anything of it is parsed (rule G6)
		_ = gf.receiver.refuse(message.From, message.Msg, &protocol.Refusal{Code: protocol.CodeRate, Err: errSender})
		return
	}

	issuer := peek(message.Msg[1:])
	if !issuer.IsZero() && issuer == gf.cfg.Domain {
		gf.noteOwnPage(message)
		return
	}

	if o := gf.origins.Get(issuer); o != nil && o.Accepts() {
		for _, lost := range enqueue(o.Mailbox.Queue, message) {
			gf.refusals.ByOrigin.Add(o.Domain, protocol.CodeRate)
			gf.refusals.BySender.Add(lost.From.Domain, protocol.CodeRate)
		}

		return
	}

	if _, _, err := gf.gate.openPage(message.From, message.Msg[1:]); err != nil {
		_ = gf.receiver.refuse(message.From, message.Msg, err)
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

// noteOwnPage notes how far the own domain has spoken to the mesh in its epoch. A peer may
// echo what it alone was told, or pulled before it was gossiped: so this silences
// nobody but a member that speaks in the leader's place. By a key that this domain has
// none but its members sign.
func (gf *gossipFeed) noteOwnPage(message replica.Pushed) {
	if message.Msg[0] != protocol.GossipPage {
		return
	}

	payload, _, err := gf.cfg.Keys.Verify(gf.cfg.Domain, signed.TypePage, message.Msg[1:])
	if err != nil {
		if keyCode(err) == protocol.CodeSignature {
			_ = gf.receiver.refuse(message.From, message.Msg, &protocol.Refusal{Code: protocol.CodeSignature, Err: err})
		}

		return
	}

	page, err := gf.cfg.Dialect.ParsePage(payload)
	if err == nil && page.Audience == directory.Mesh && page.Epoch == gf.cfg.Source.Position().Epoch &&
		page.To > gf.ownGossiped.Load() {
		gf.ownGossiped.Store(page.To)
	}
}

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

	for _, origin := range gf.origins.All() {
		if !gf.access.lists(origin.Domain, to) {
			continue
		}

		origin.Mu.Lock()
		if origin.HeadText != "" && !origin.Streams.HasEnded() {
			all = append(all, []byte(origin.HeadText))
		}

		origin.Mu.Unlock()
	}

	return all
}

// gossipOut publishes what is new: the leader at once, another member after the
// leader's silence (federation.md, "Pages"), at most one page a second.
func (gf *gossipFeed) gossipOut(ctx context.Context, gossiper gossiper) {
	t := &publish.GossipCursor{From: gf.cfg.Source.Tip(directory.Mesh)}
	told := t.From

	var keys directory.Position
	for ctx.Err() == nil {
		changed := gf.cfg.Source.Changed()

		again := time.Duration(0)
		if doc := gf.cfg.Source.KeyDocument(); doc != nil && protocol.Issue(doc) != keys {
			if head, err := gf.publisher.Head(); err == nil {
				keys = protocol.Issue(doc)
				gossiper.Publish("head", append([]byte{protocol.GossipHead}, head...), gf.audience(gf.cfg.Domain))
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
			told = max(told, gf.ownGossiped.Load())
		}

		told = gf.gossipPage(gossiper, t, told)
		wait(ctx, nil, gossipEvery)
	}
}

// gossipPage publishes a page of what lies above told, and returns how far the
// pool is told now.
func (gf *gossipFeed) gossipPage(gossiper gossiper, t *publish.GossipCursor, told uint64) uint64 {
	tip := gf.cfg.Source.Tip(directory.Mesh)
	if tip <= told {
		return told
	}

	page, err := t.Page(gf.publisher)
	switch {
	case err != nil:
		gf.cfg.Logger.Warn("making a gossip page failed", "err", err)
	case page != nil && len(page.Text) < gossip.MaxMessage:
		gossiper.Publish(directory.Mesh.String(), append([]byte{protocol.GossipPage}, page.Text...),
			gf.audience(gf.cfg.Domain))
	}

	return tip
}

// pushQueue bounds the messages that wait to be looked at.
const pushQueue = 256

// The pace of gossip.
const (
	gossipEvery   = time.Second     // at most one page
	leaderSilence = 2 * time.Second // after which another member speaks
)

// senders paces what peers push, one by one. Only peers reach it, so it has as
// many members as there are peerings.
type senders struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]*rate.Limiter
}

func (s *senders) allow(td spiffeid.TrustDomain) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	l := s.all[td]
	if l == nil {
		if s.all == nil {
			s.all = map[spiffeid.TrustDomain]*rate.Limiter{}
		}

		l = rate.NewLimiter(senderRate, senderBurst)
		s.all[td] = l
	}

	return l.Allow()
}

// What one peer may make this node look at by gossip (rule G6).
const (
	senderRate  = 200 // messages a second
	senderBurst = 1000
)

var errSender = errors.New("sender exceeds its message rate")

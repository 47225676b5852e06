package federation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A gossipFeed sends messages to the mesh's gossip pool and receives messages from it.
type gossipFeed struct {
	cfg         *Config
	publisher   *publish.Publisher
	origins     *replica.Set
	peers       peers
	receiver    *receiver
	refusals    *replica.RefusalLog
	senders     *limit.Rates[spiffeid.TrustDomain]
	gossiped    protocol.Traffic
	ownGossiped atomic.Uint64 // revision up to which another member gossiped the own stream

	mu   sync.Mutex // guards the field below
	pool gossiper   // nil while gossip is off
}

// A gossiper sends messages to the mesh's pool. Delivery is best effort: pulls bring the same
// data.
type gossiper interface {
	Publish(stream string, msg []byte, may gossip.Audience) // the latest of a stream wins
	Members() []gossip.MemberStatus
	Close() error
}

var _ gossip.Mesh = (*gossipFeed)(nil)

// Deliver implements gossip.Mesh.
func (gf *gossipFeed) Deliver(from spiffeid.ID, msg []byte) {
	gf.route(replica.Pushed{From: replica.Sender{Domain: from.TrustDomain(), Pushed: true}, Msg: string(msg)})
}

// MergeHeads implements gossip.Mesh.
func (gf *gossipFeed) MergeHeads(from spiffeid.ID, heads [][]byte) {
	for _, head := range heads {
		gf.Deliver(from, append([]byte{protocol.GossipHead}, head...))
	}
}

// Dropped implements gossip.Mesh.
func (gf *gossipFeed) Dropped(from spiffeid.ID) {
	gf.refusals.BySender.Add(from.TrustDomain(), protocol.CodeRate)
}

// start joins the pool and starts the loop that sends to it.
func (gf *gossipFeed) start(ctx context.Context, wg *sync.WaitGroup) error {
	cfg := *gf.cfg.Gossip
	cfg.Traffic = gf.gossiped.Add
	cfg.Panics = gf.cfg.Panics
	cfg.Stretch = gf.cfg.Stretch.of

	gossiper, err := gossip.Start(&cfg, gf)
	if err != nil {
		return err
	}

	gf.setGossip(gossiper)
	wg.Go(func() { gf.gossipOut(ctx, gossiper) })
	wg.Go(func() {
		<-ctx.Done()
		gf.setGossip(nil)

		if err := gossiper.Close(); err != nil {
			gf.cfg.Logger.Info("left the gossip pool without an answer; the others notice it by themselves", "err", err)
		}
	})

	return nil
}

func (gf *gossipFeed) setGossip(gossiper gossiper) {
	gf.mu.Lock()
	defer gf.mu.Unlock()
	gf.pool = gossiper
}

// enqueue adds a message to a queue. If the queue is full, it removes the oldest message, or
// several if other senders fill the queue meanwhile. It returns the removed messages.
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

// route passes a gossiped message to the loop of the origin that it claims as issuer. That
// loop verifies it.
func (gf *gossipFeed) route(message replica.Pushed) {
	if len(message.Msg) < 2 || len(message.Msg) > gossip.MaxMessage {
		_ = gf.receiver.refuse(message.From, message.Msg,
			&protocol.Refusal{Code: protocol.CodeFormat, Err: errTooLarge})

		return
	}

	// Before anything of it is parsed (rule G6).
	if _, _, ok := gf.senders.Take(message.From.Domain, senderRate, time.Now(), 1); !ok {
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

	if err := gf.refusalOf(message); err != nil {
		_ = gf.receiver.refuse(message.From, message.Msg, err)
	}
}

// refusalOf returns the gate's refusal of a message that no origin accepts. Each kind of message has
// its own header: a head that arrives before the peering is known here is no fault of its sender.
func (gf *gossipFeed) refusalOf(message replica.Pushed) (err error) {
	switch text := message.Msg[1:]; message.Msg[0] {
	case protocol.GossipHead:
		_, err = gf.receiver.verify(message.From, signed.TypeHead, text)
	case protocol.GossipPage:
		_, err = gf.receiver.verify(message.From, signed.TypePage, text)
	default: // of a later release
		err = &protocol.Refusal{Code: protocol.CodeOriginUnknown, Err: errOrigin}
	}

	return err
}

// peek returns the issuer that a message claims, without verifying it.
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

// noteOwnPage records the revision up to which the own domain's mesh stream was gossiped in
// this epoch. Only members of this domain hold its signing keys. A peer may still send a
// page that it pulled before the page was gossiped. Therefore the revision suppresses only
// the gossip of a member that stands in for the leader.
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

// audience returns the audience of an origin's mesh stream, pages and heads: the domains
// that its newest key document lists (federation.md, "Pages"). A head is useless without its
// stream, and would disclose the stream's activity to other domains.
func (gf *gossipFeed) audience(origin spiffeid.TrustDomain) gossip.Audience {
	return func(td spiffeid.TrustDomain) bool { return gf.peers.lists(origin, td) }
}

// Heads implements gossip.Mesh: it returns the own domain's head and the newest verified head of each origin, if
// the domain to may have it.
func (gf *gossipFeed) Heads(to spiffeid.TrustDomain) [][]byte {
	var all [][]byte
	if gf.peers.lists(gf.cfg.Domain, to) {
		if own, err := gf.publisher.Head(); err == nil {
			all = append(all, []byte(own))
		}
	}

	for _, origin := range gf.origins.All() {
		if !gf.peers.lists(origin.Domain, to) {
			continue
		}

		if head := origin.NewestHead(); head != "" && !origin.HasEnded() {
			all = append(all, []byte(head))
		}
	}

	return all
}

// gossipOut publishes the domain's new key documents, by its head, and new pages. The leader
// publishes a page at once, another member after leaderSilence (federation.md, "Pages"). At
// most one page is published each second.
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
				again = gossipEvery // this node adopts its key from the document shortly
			}
		}

		if gf.cfg.Source.Tip(directory.Mesh) <= told {
			wait(ctx, changed, again)
			continue
		}

		if !gf.cfg.Source.IsLeader() {
			// The leader goes first. This member stands in for a leader that stays silent.
			wait(ctx, nil, leaderSilence)
			told = max(told, gf.ownGossiped.Load())
		}

		told = gf.gossipPage(gossiper, t, told)
		wait(ctx, nil, gossipEvery)
	}
}

// gossipPage publishes a page of the changes above told, and returns the revision up to
// which the pool is informed.
func (gf *gossipFeed) gossipPage(gossiper gossiper, t *publish.GossipCursor, told uint64) uint64 {
	tip := gf.cfg.Source.Tip(directory.Mesh)
	if tip <= told {
		return told
	}

	page, err := gf.publisher.GossipPage(t)
	switch {
	case err != nil:
		gf.cfg.Logger.Warn("making a gossip page failed", "err", err)
	case page != nil && len(page.Text) < gossip.MaxMessage:
		gossiper.Publish(directory.Mesh.String(), append([]byte{protocol.GossipPage}, page.Text...),
			gf.audience(gf.cfg.Domain))
	}

	// After a failure too: peers get the changes by their pulls.
	return tip
}

// The pace of gossip.
const (
	gossipEvery   = time.Second     // at most one page
	leaderSilence = 2 * time.Second // after which another member publishes
)

// senderBurst is how many messages a peer may send at once.
const senderBurst = 1000

// senderRate limits one peer's gossiped messages (rule G6).
var senderRate = limit.Rate{PerSecond: 200, Burst: senderBurst}

// maxSenders bounds the domains whose rates are known. Only peers send, and a domain has fewer of
// them.
const maxSenders = 4096

var errSender = errors.New("sender exceeds its message rate")

package federation

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/gossip/gossiptest"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A gossipNet is what gossiping nodes share: a network and certificates.
type gossipNet struct {
	t           *testing.T
	wire        *gossiptest.Network
	authorities gossiptest.Authorities
}

func newGossipNet(t *testing.T) *gossipNet {
	// Memberlist's probes don't end with their pool, and a bubble ends only with all that runs in it.
	t.Cleanup(func() { time.Sleep(time.Minute) })

	return &gossipNet{t: t, wire: gossiptest.NewNetwork()}
}

// tls returns both configurations of a node that has a certificate for id.
func (n *gossipNet) tls(id spiffeid.ID) (server, client *tls.Config) {
	return n.authorities.TLS(n.t, id)
}

// gossips gives a node a place in the pool.
func (s *site) gossips(t *testing.T, n *gossipNet, address string, seeds ...string) {
	t.Helper()
	server, client := n.tls(s.cfg.Node)
	s.cfg.Gossip = &gossip.Config{
		Node: s.cfg.Node, Listener: n.wire.Listen(address), Dial: n.wire.DialFrom(address),
		ServerTLS: server, ClientTLS: client,
		Advertise: address, Seeds: func() []string { return seeds },
		Logger: s.cfg.Logger, Bound: func(*http.Server) {},
		Allow: func(id spiffeid.ID) bool { return s.Admits(id) },
	}
	s.reopen(t)
}

// With every subscription stuck, gossip alone brings pages, and the records that
// they name are pulled.
//
// Requirement: MESH-006
func TestGossipBringsPagesThatPullsDoNot(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		g := b.addGamma(t)
		b.beta.reopenWith(t, active(alpha, 1), active(gamma, 1))
		net := newGossipNet(t)
		b.alpha.gossips(t, net, "10.1.0.1:7946", "10.1.0.2:7946")
		b.beta.gossips(t, net, "10.1.0.2:7946", "10.1.0.1:7946")
		g.gossips(t, net, "10.1.0.3:7946", "10.1.0.1:7946")

		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				select {
				case <-time.After(time.Hour):
				case <-r.Context().Done():
				}
			}

			return body
		}
		for _, s := range []*site{b.alpha, b.beta, g} {
			defer s.run(t)()
		}

		eventually(t, 30*time.Second, "a pool of three", func() bool {
			return len(b.alpha.Members()) == 3 && len(b.beta.Members()) == 3 && len(g.Members()) == 3
		})

		var rid directory.RID
		for i := range 3 {
			rid = b.origin.register(fmt.Sprint("agent-", i), 600)
			for _, s := range []*site{b.beta, g} {
				eventually(t, 10*time.Second, "a registration by gossip", func() bool {
					return s.shown(alpha)[rid] != nil
				})
			}
		}

		b.origin.remove(rid)

		for _, s := range []*site{b.beta, g} {
			eventually(t, 10*time.Second, "a removal by gossip", func() bool { return len(s.shown(alpha)) == 2 })
		}

		for _, p := range b.beta.Peers() {
			if p.GossipIn == 0 || p.GossipOut == 0 {
				t.Errorf("%s: %d bytes came by gossip and %d went", p.Domain, p.GossipIn, p.GossipOut)
			}
		}
	})
}

// A node that a peer's newest key document no longer lists is in no pool, whatever certificate it has.
//
// Requirement: SEC-011
func TestANodeThatItsDomainRemovedLeavesThePool(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		former := b.world.open(t, t.TempDir(), 2, b.origin, active(beta, 1))
		b.origin.listKeys(nil, b.alpha.keys, former.keys)

		net := newGossipNet(t)
		b.alpha.gossips(t, net, "10.1.0.1:7946", "10.1.0.2:7946")
		b.beta.gossips(t, net, "10.1.0.2:7946", "10.1.0.1:7946", "10.1.0.3:7946")
		former.gossips(t, net, "10.1.0.3:7946", "10.1.0.2:7946")

		for _, s := range []*site{b.alpha, b.beta, former} {
			defer s.run(t)()
		}

		eventually(t, 30*time.Second, "a pool of three", func() bool { return len(b.beta.Members()) == 3 })

		b.origin.listKeys(nil, b.alpha.keys)
		eventually(t, time.Minute, "it leaves the pool", func() bool { return len(b.beta.Members()) == 2 })

		rid := b.origin.register("agent", 600)
		eventually(t, 10*time.Second, "a page", func() bool { return b.beta.shown(alpha)[rid] != nil })

		if b.beta.Admits(former.cfg.Node) || !b.beta.Admits(b.alpha.cfg.Node) {
			t.Error("the removed node is admitted, or the other isn't")
		}
	})
}

// Who is flooded forgets the oldest, and blocks nobody.
func TestAFullQueueForgetsTheOldest(t *testing.T) {
	c := make(chan replica.Pushed, 2)
	for i := range 5 {
		lost := enqueue(c, replica.Pushed{Msg: fmt.Sprint(i)})
		if i < 2 && len(lost) > 0 || i >= 2 && (len(lost) != 1 || lost[0].Msg != fmt.Sprint(i-2)) {
			t.Errorf("%d: lost %v", i, lost)
		}
	}

	if a, b := <-c, <-c; a.Msg != "3" || b.Msg != "4" {
		t.Errorf("%q %q", a.Msg, b.Msg)
	}
}

// What the pool says is judged like anything else.
//
// Requirement: MESH-017
func TestWhatIsGossipedIsJudged(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		from := replica.Sender{Domain: gamma, Pushed: true}
		good, _ := b.alpha.keys.Sign(signed.TypePage, b.page(nil))
		forged, _ := newKeyring(alpha, "forger", b.origin).Sign(signed.TypePage, b.page(nil))
		stranger, _ := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) { p.Issuer = delta }))

		o := b.beta.origins.Get(alpha)
		for _, msg := range []string{"", "p", "x" + good, "p" + forged, "h" + forged, "p" + stranger,
			"p" + flipped(good), "h" + good} {
			b.beta.gossip.route(replica.Pushed{From: from, Msg: msg})

			select {
			case p := <-o.Mailbox.Queue:
				b.beta.follower.open(t.Context(), o, p)
			default:
			}
		}

		for _, p := range o.Mailbox.Late {
			b.beta.follower.open(t.Context(), o, p)
		}

		if len(b.beta.shown(alpha)) != 0 {
			t.Fatal("something was believed")
		}

		counted := uint64(0)
		for _, n := range b.beta.refusals.BySender.Of(gamma) {
			counted += n
		}

		if b.beta.refusals.ByOrigin.Of(alpha)[protocol.CodeUnsupported] != 1 {
			t.Errorf("a kind of message that only a later release has is counted as %v",
				b.beta.refusals.ByOrigin.Of(alpha))
		}

		if counted != 7 || len(b.beta.refusals.BySender.Of(alpha)) != 0 {
			t.Fatalf("%v by who sent it, %v by whom it names", b.beta.refusals.BySender.Of(gamma),
				b.beta.refusals.BySender.Of(alpha))
		}

		b.beta.gossip.route(replica.Pushed{From: from, Msg: "p" + good})
		b.beta.follower.open(t.Context(), o, <-o.Mailbox.Queue)

		if len(b.beta.shown(alpha)) != 1 {
			t.Fatal("the truth was not believed")
		}
	})
}

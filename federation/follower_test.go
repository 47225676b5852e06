package federation

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A domain without pages of an origin empties no stream of it: it may lack what the origin has. The origin's own word
// does.
func TestARelayEmptiesNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		th.origin.register("agent", 3600)
		th.says(func(p *signed.Page) { *p = *pageOf(th.page(nil)) })
		th.revoke()

		th.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				return nil
			}

			return body
		}

		o := th.beta.origins.Get(alpha)

		for _, node := range []protocol.Node{{Domain: gamma, Base: th.alpha.base}, th.giver()} {
			must(t, th.beta.follower.pullAll(t.Context(), o, &o.Mesh, node, unlimited(t.Context())))

			if ended := o.Mesh.Cur.RepullSince == 0; ended != (node.Domain == alpha) {
				t.Errorf("an empty answer of %s ends the pull: %t", node.Domain, ended)
			}
		}
	})
}

func pageOf(payload []byte) *signed.Page {
	page, err := signed.ParsePage(payload)
	if err != nil {
		panic(err)
	}

	return page
}

// A listener keeps what is passed on.
type listener struct{ msgs []string }

func (l *listener) Publish(_ string, msg []byte, _ gossip.Audience) {
	l.msgs = append(l.msgs, string(msg))
}
func (l *listener) Members() []gossip.MemberStatus { return nil }
func (l *listener) Close() error                   { return nil }

// A gossiped page is passed on once, by who was brought further by it: otherwise two pages would go round for ever. One
// that leaves a gap has the origin asked.
//
// Requirement: MESH-006
func TestAPageIsPassedOnOnce(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		must(t, b.beta.receiver.refreshKeys(t.Context(), b.beta.origins.Get(alpha), b.giver()))

		pool, o := &listener{}, b.beta.origins.Get(alpha)
		b.beta.gossip.pool = pool

		message := func(change func(*signed.Page)) string {
			b.origin.register("agent", 600)

			text, err := b.alpha.keys.Sign(signed.TypePage, b.page(change))
			must(t, err)

			return string([]byte{protocol.GossipPage}) + text
		}
		open := func(msg string) {
			b.beta.follower.open(t.Context(), o, replica.Pushed{From: replica.Sender{Domain: gamma, Pushed: true},
				Msg: msg})
		}

		older, newer := message(nil), message(nil)
		for _, msg := range []string{newer, older, newer} {
			open(msg)
		}

		if !slices.Equal(pool.msgs, []string{newer}) || len(o.Ask) != 0 {
			t.Errorf("%d are passed on, and the origin is asked: %d", len(pool.msgs), len(o.Ask))
		}

		open(message(func(p *signed.Page) { p.From, p.Digests = p.To-1, nil }))
		b.origin.register("agent", 600)
		open(message(func(p *signed.Page) { p.From, p.Digests = p.To-1, nil }))

		if len(o.Ask) != 1 {
			t.Error("a gap asks nobody")
		}
	})
}

// A node that doesn't answer is not one that gave a head.
func TestAFailureIsNoHead(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.beta.origins.Get(alpha)

		for _, cut := range []bool{true, false} {
			b.world.cut = func(string, string) bool { return cut }
			b.beta.follower.askNextHead(t.Context(), o)

			if _, ok := o.Contacts.LastHeadFrom(); ok == cut {
				t.Errorf("cut off: %t, a head was given: %t", cut, ok)
			}
		}
	})
}

// Other domains are asked for a mesh stream alone: that there is a private one is for its two domains to know.
//
// Requirement: MESH-003
func TestOtherDomainsAreAskedForTheMeshAlone(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		g, o := b.addGamma(t), b.beta.origins.Get(alpha)
		asked := 0
		b.world.tap = func(to string, _ *http.Request, body []byte) []byte {
			if to == g.base {
				asked++
			}

			return body
		}

		if b.beta.follower.pullFromOthers(t.Context(), o, &o.Private); asked != 0 {
			t.Errorf("gamma was asked %d times for beta's stream", asked)
		}

		if b.beta.follower.pullFromOthers(t.Context(), o, &o.Mesh); asked == 0 {
			t.Error("gamma was not asked for the mesh's stream")
		}
	})
}

package federation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// loopback serves every node of a world on a real socket and sends requests there.
func (w *world) loopback(t *testing.T) {
	t.Helper()

	addresses := map[string]string{}
	for base, s := range w.sites {
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			s.http.ServeHTTP(rw, r)
		}))
		t.Cleanup(srv.Close)
		t.Cleanup(func() { _ = s.Close() }) // long polls end before the server waits for them
		addresses[strings.TrimPrefix(base, "https://")+":80"] = srv.Listener.Addr().String()
	}

	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addresses[addr])
	}}
	t.Cleanup(transport.CloseIdleConnections)
	w.carry = roundTripper(func(r *http.Request) (*http.Response, error) {
		r.URL.Scheme = "http"
		return transport.RoundTrip(r)
	})
}

// Over sockets, with a first pull of many pages and gzip on the way.
//
// Requirement: MESH-001, MESH-005
func TestAPeerIsFollowedOverHTTP(t *testing.T) {
	b := newBench(t, nil)
	b.origin.registers(1100, 600)

	b.world.loopback(t)
	defer b.beta.run(t)()
	soon := func(what string, ok func() bool) {
		t.Helper()

		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, b.beta.Peers()[0])
			}
		}
	}
	soon("the first pull", func() bool { return b.beta.view.Origin(alpha).Len() == 1100 })
	rid := b.origin.register("one-more", 600)
	soon("a change by subscription", func() bool { _, ok := b.beta.view.Get(alpha, rid); return ok })
	b.origin.remove(rid)
	soon("a removal by subscription", func() bool { _, ok := b.beta.view.Get(alpha, rid); return !ok })
	soon("an honest state", func() bool {
		p := b.beta.Peers()[0]
		return p.State == "active" && p.LagRevisions == 0 && p.Entries == 1100 && p.Pending == 0 && p.LastError == ""
	})
}

// What a node was told it answers again before it has spoken to anyone, and not
// beyond the deadlines.
//
// Requirement: MESH-007, MESH-009, MESH-018
func TestARestartedNodeAnswersFromDisk(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		short := b.origin.register("short", 60)
		long := b.origin.register("long", 600)
		b.pull()
		was := b.beta.shown(alpha)
		b.world.cut = func(string, string) bool { return true }
		time.Sleep(30 * time.Second)
		b.beta.reopen(t)

		is := b.beta.shown(alpha)
		for _, rid := range []directory.RID{short, long} {
			if is[rid] == nil || is[rid].ExpiresAt != was[rid].ExpiresAt || *is[rid].Received != *was[rid].Received {
				t.Fatalf("was %+v, is %+v", was[rid], is[rid])
			}
		}

		defer b.beta.run(t)()
		time.Sleep(30*time.Second - time.Millisecond)

		if len(b.beta.shown(alpha)) != 2 {
			t.Fatal("dropped before its deadline")
		}

		time.Sleep(time.Millisecond)

		if is := b.beta.shown(alpha); len(is) != 1 || is[long] == nil {
			t.Fatalf("shown at a deadline: %v", is)
		}

		if n := b.beta.view.Origin(alpha).Len(); n != 2 {
			t.Fatalf("%d kept", n)
		}

		time.Sleep(directory.Skew + time.Second)

		if n := b.beta.view.Origin(alpha).Len(); n != 1 {
			t.Fatalf("%d kept a minute after a deadline", n)
		}
	})
}

// What the disk has damaged is not shown: here when it was stated.
//
// Requirement: MESH-018
func TestADamagedRecordIsNotShown(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("one", 600)
		sound := b.origin.register("two", 600)
		b.pull()

		_, err := b.beta.store.Change(b.beta.origins.Get(alpha).Mesh.Cur.Id, func(t *store.Tx) error {
			h, err := t.Get(rid)
			if err != nil {
				return err
			}

			r, err := t.Record(h)
			if err != nil {
				return err
			}

			r.Payload = bytes.Replace(r.Payload, []byte(`"iat":9`), []byte(`"iat":8`), 1)
			if r.Is(h.Name()) {
				return errors.New("nothing is damaged")
			}

			return t.Rewrite(h, r.Stored(h.Name()))
		})
		must(t, err)

		b.beta.reopen(t)

		if is := b.beta.shown(alpha); len(is) != 1 || is[sound] == nil {
			t.Errorf("shown: %v", is)
		}
	})
}

// An origin whose clock is ahead says so with each page; a node that heard it
// believes it across a restart as well, and shows nothing that is past its
// deadline by that word.
//
// Requirement: MESH-009
func TestTheOriginsWordOnTheTimeIsKept(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.alpha.self.start = func() time.Time { return time.Now().Add(50 * time.Second) }
		b.origin.register("agent", 60)

		text, _ := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) { p.IssuedAt += 50 }))
		b.applies(text)

		time.Sleep(30 * time.Second)
		b.beta.reopen(t)

		if len(b.beta.shown(alpha)) != 1 {
			t.Fatal("not shown 80 seconds after 50 of 110")
		}

		time.Sleep(30 * time.Second)

		if len(b.beta.shown(alpha)) != 0 {
			t.Fatal("shown at its deadline by the origin's clock")
		}
	})
}

// A holder that gives other bytes than were asked for is passed over.
func TestABadRecordIsRefusedAndAnotherHolderAsked(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		g := b.addGamma(t)

		rid := b.origin.register("agent", 600)
		must(t, g.pulls(g.origins.Get(alpha), &g.origins.Get(alpha).Mesh, b.giver()))

		bad := 0
		b.world.tap = func(to string, r *http.Request, body []byte) []byte {
			if to != b.alpha.base || r.URL.Path != protocol.PathRecords {
				return body
			}

			bad++
			at := strings.LastIndex(string(body), "~") - 20 // within the last disclosure

			c := byte('A')
			if body[at] == c {
				c = 'B'
			}

			body[at] = c

			return body
		}
		b.pull()

		if e := b.beta.shown(alpha)[rid]; e != nil || bad == 0 {
			t.Fatalf("shown by a bad record: %+v", e)
		}

		p := b.beta.Peers()[0]
		if p.Pending != 1 || p.Watermark != b.origin.rev || p.Received[protocol.CodeRecord] == 0 ||
			b.beta.refusals.BySender.Of(alpha)[protocol.CodeRecord] == 0 {
			t.Fatalf("the page was held up, or nothing counted: %+v", p)
		}

		if at, _ := b.beta.Position(alpha); at.Revision >= b.origin.regs[rid].announced.Revision {
			t.Fatalf("readers are promised what is pending: %v", at)
		}

		b.beta.follower.backlog(t.Context(), b.beta.origins.Get(alpha))

		e := b.beta.shown(alpha)[rid]
		if e == nil || e.Received.From != gamma {
			t.Fatalf("%+v", e)
		}

		if at, _ := b.beta.Position(alpha); at.Revision != b.origin.rev {
			t.Fatalf("position %v", at)
		}
	})
}

// reopenWith starts a node again with other peerings.
func (s *site) reopenWith(t *testing.T, peers ...directory.Peering) {
	t.Helper()
	s.cfg.Peerings = func() []directory.Peering { return peers }
	s.reopen(t)
}

// A record of the right name that contradicts its page is the origin's own fault:
// nobody has another one.
func TestARecordThatContradictsItsPageIsNotShown(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		first := b.origin.register("first", 600)
		second := b.origin.register("second", 600)
		o := b.origin
		o.do(func(int64) { // announces first's record under second's rid
			d := o.regs[first].announced
			o.rev++
			o.announce(second, o.regs[second], signed.Digest{Op: signed.OpPut, H: d.H, M: d.M, Deadline: d.Deadline,
				Lifetime: d.Lifetime})
			o.named[protocol.NameOf(d)] = o.regs[first]
		})
		b.pull()

		if shown := b.beta.shown(alpha); len(shown) != 1 || shown[first] == nil {
			t.Fatalf("%v", shown)
		}

		if p := b.beta.Peers()[0]; p.Pending != 0 || p.Received[protocol.CodeRecord] != 1 || p.Records != 1 {
			t.Fatalf("%+v", p)
		}
	})
}

// A document of a kind that this release doesn't know is kept, and shown by the
// one that does.
func TestAnUnknownKindIsKeptAndNotShown(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.origin
		rid := o.register("agent", 600)
		o.with(rid, func(r *registration, at int64) {
			r.document = directory.LoadDocument("newer", []byte(`{"anything":1}`))
			o.put(rid, r, at)
		})
		b.pull()

		p := b.beta.Peers()[0]
		if len(b.beta.shown(alpha)) != 0 || p.Entries != 1 || p.Pending != 0 || p.Received[protocol.CodeRecord] != 0 {
			t.Fatalf("%+v", p)
		}

		if _, err := b.beta.Record(t.Context(), alpha, rid); err != nil {
			t.Fatalf("not passed on: %v", err)
		}

		b.beta.reopen(t)

		if len(b.beta.shown(alpha)) != 0 {
			t.Fatal("shown after a restart")
		}
	})
}

// Requirement: MESH-025
func TestWhatIsTakenBackIsGoneFromAnswersAndDisk(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("agent", 600)
		other := b.origin.register("other", 600)
		b.pull()
		full := b.origin.regs[rid].announced
		b.origin.regs[rid].document = document(1)
		b.origin.narrow(rid)
		b.pull()

		narrow := b.origin.regs[rid].announced
		if full.H != narrow.H || full.M == narrow.M {
			t.Fatal("the model didn't narrow")
		}

		e := b.beta.shown(alpha)[rid]
		if e == nil || !e.Redacted || !e.Owner.IsZero() || e.Received.M != narrow.M {
			t.Fatalf("%+v", e)
		}

		gone := func(d signed.Digest) {
			t.Helper()

			if text, ok, err := b.beta.recordOf(alpha, beta, protocol.NameOf(d)); ok || err != nil {
				t.Fatalf("on disk: %s %v", text, err)
			}
		}
		gone(full)
		b.origin.export(rid, false)
		b.pull()
		gone(narrow)

		if shown := b.beta.shown(alpha); len(shown) != 1 || shown[other] == nil {
			t.Fatalf("%v", shown)
		}

		if p := b.beta.Peers()[0]; p.Entries != 1 {
			t.Fatalf("%+v", p)
		}
	})
}

// A peer whose nodes have moved is followed where its peering says that they are, by the
// loops that run.
func TestAPeerThatMovedIsFound(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)

		var peering atomic.Pointer[directory.Peering]
		there, elsewhere := active(alpha, 1), active(alpha, 1)
		elsewhere.Addresses = []string{"https://elsewhere.test"}
		peering.Store(&elsewhere)
		b.beta.cfg.Peerings = func() []directory.Peering { return []directory.Peering{*peering.Load()} }
		b.beta.reopen(t)
		defer b.beta.run(t)()
		time.Sleep(time.Minute)

		if s := b.beta.Peers()[0]; len(b.beta.shown(alpha)) != 0 || s.LastError == "" {
			t.Fatalf("found elsewhere: %+v", s)
		}

		peering.Store(&there)
		b.beta.reconcile()
		eventually(t, time.Minute, "followed where it is", func() bool { return len(b.beta.shown(alpha)) == 1 })
	})
}

// Requirement: MESH-025
func TestATerminatedPeerIsForgotten(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		peering := active(alpha, 1)
		b.beta.cfg.Peerings = func() []directory.Peering { return []directory.Peering{peering} }
		b.beta.reopen(t)
		stop := b.beta.run(t)
		eventually(t, time.Second, "followed", func() bool { return len(b.beta.shown(alpha)) == 1 })

		for _, state := range []directory.PeeringState{directory.PeeringFrozen, directory.PeeringTerminated} {
			stop()
			peering.State = state
			stop = b.beta.run(t)
			synctest.Wait()

			if n := len(b.beta.shown(alpha)); n != map[directory.PeeringState]int{directory.PeeringFrozen: 1}[state] {
				t.Fatalf("%s: %d shown", state, n)
			}

			b.origin.register("later", 600)
			time.Sleep(time.Minute)

			if n := len(b.beta.shown(alpha)); n > 1 {
				t.Fatalf("%s: %d shown", state, n)
			}
		}

		stop()
		streams, err := b.beta.store.Streams(alpha)

		origins, err2 := b.beta.store.Origins()
		if counted := len(b.beta.refusals.ByOrigin.Of(alpha)) + len(b.beta.refusals.BySender.Of(alpha)); counted != 0 {
			t.Errorf("%d counts are left", counted)
		}

		if len(streams)+len(origins)+len(b.beta.Peers()) != 0 || err != nil || err2 != nil {
			t.Fatalf("left: %v %v %v %v %v", streams, origins, b.beta.Peers(), err, err2)
		}

		text, _ := b.alpha.keys.Sign(signed.TypePage, b.page(nil))
		if _, err := b.take(alpha, text); protocol.CodeOf(err) != protocol.CodeOriginUnknown {
			t.Fatalf("heard: %v", err)
		}
	})
}

// Requirement: MESH-027
func TestTwoOriginsMayUseOneRIDAndOneName(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		g := newModel(gamma, beta)
		sg := b.world.open(t, t.TempDir(), 1, g, active(beta, 1))
		g.listKeys(nil, sg.keys)
		rid := b.origin.register("translator", 600)
		g.do(func(at int64) {
			g.rev++
			r := &registration{agent: "translator", document: document(7), since: at, lifetime: 300, alive: true,
				told: told{exported: true}}
			g.regs[rid] = r
			g.put(rid, r, at)
		})
		b.pull()

		from := b.beta.origins.Get(gamma)
		must(t, b.beta.pulls(from, &from.Mesh, protocol.Node{Domain: gamma, Base: sg.base}))

		for _, td := range []spiffeid.TrustDomain{alpha, gamma} {
			if e, ok := b.beta.view.Get(td, rid); !ok || e.Origin != td || e.Agent != "translator" {
				t.Fatalf("%s: %+v", td, e)
			}
		}

		g.remove(rid)

		must(t, b.beta.pulls(from, &from.Mesh, protocol.Node{Domain: gamma, Base: sg.base}))

		if _, ok := b.beta.view.Get(alpha, rid); !ok {
			t.Fatal("one origin's removal took another's away")
		}
	})
}

// A restored origin begins a new epoch: its stream is gathered beside the old one
// and takes its place whole.
//
// Requirement: MESH-019
func TestANewEpochTakesTheOldOnesPlaceAtItsTip(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		var kept directory.RID
		for i := range 6 {
			kept = b.origin.register(fmt.Sprint("agent-", i), 600)
		}

		b.pull()
		time.Sleep(10 * time.Second)
		old := b.origin.epoch

		b.origin.epoch += 10
		for _, rid := range []directory.RID{kept} {
			b.origin.replace(rid, 600)
		}

		for rid, r := range b.origin.regs { // the rest is restored, unconfirmed and not announced
			if rid != kept {
				r.announced = signed.Digest{}
				r.exported = false
			}
		}

		more := b.origin.register("more", 600)
		b.origin.listKeys(nil, b.alpha.keys)

		text := func(limit int, since uint64) string {
			made, err := b.alpha.publisher.Page(directory.Mesh, since, limit, true)
			if err != nil || made == nil {
				t.Fatal(made, err)
			}

			return made.Text
		}

		o := b.beta.origins.Get(alpha)
		if code, err := b.take(alpha, text(1, o.Since(&o.Mesh))); err != nil || code != protocol.CodeGap {
			t.Fatalf("the new epoch's page behind the old watermark: %s %v", code, err)
		}

		b.applies(text(1, 0))

		if len(b.beta.shown(alpha)) != 6 {
			t.Fatalf("%d shown before the tip", len(b.beta.shown(alpha)))
		}

		b.beta.reopen(t)

		if len(b.beta.shown(alpha)) != 6 {
			t.Fatalf("%d shown after a restart before the tip", len(b.beta.shown(alpha)))
		}

		b.pull()

		shown := b.beta.shown(alpha)
		if len(shown) != 2 || shown[kept] == nil || shown[more] == nil ||
			shown[kept].Revision != b.origin.regs[kept].announced.Revision {
			t.Fatalf("%v", shown)
		}

		if p, _ := b.beta.Position(alpha); p.Epoch != b.origin.epoch {
			t.Fatalf("%v", p)
		}

		page := &signed.Page{Issuer: alpha, Epoch: old, Audience: directory.Mesh, From: 0, To: 50, At: 50,
			IssuedAt: time.Now().Unix()}

		late, _ := b.alpha.keys.Sign(signed.TypePage, page.Payload())
		if _, err := b.take(alpha, late); protocol.CodeOf(err) != protocol.CodeEpochOld {
			t.Fatalf("the old epoch speaks again: %v", err)
		}
	})
}

package federation

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// A node that was subscribed to one that lags finds out by another's head.
func TestASubscriptionToANodeThatLagsIsNoticed(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.world.open(t, t.TempDir(), 2, b.origin, active(beta, 1))
		b.beta.reopenWith(t, active(alpha, 1, 2))
		b.origin.listKeys(nil, b.alpha.keys, b.world.sites["https://alpha.test-2.test"].keys)
		defer b.beta.run(t)()
		eventually(t, time.Second, "heard", func() bool { return !b.beta.Peers()[0].LastHeard.IsZero() })
		at, _ := b.beta.origins.Get(alpha).Contacts.Node(&b.beta.origins.Get(alpha).Mesh)
		b.world.mu.Lock()
		b.world.tap = func(to string, r *http.Request, body []byte) []byte {
			if to == at.Base && r.URL.Path == protocol.PathPages {
				wait(r.Context(), nil, time.Hour) // it never hears of anything
			}

			return body
		}
		b.world.mu.Unlock()
		time.Sleep(31 * time.Second)
		b.origin.register("agent", 600)
		eventually(t, 3*time.Minute, "shown", func() bool { return len(b.beta.shown(alpha)) == 1 })
	})
}

// While a first sync goes on, the origin's heads are asked for, and its lag is told.
//
// Requirement: MESH-024
func TestAPeerIsNotCalledFailingWhileItIsPulled(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(3*protocol.MaxDigests, 3600)

		b.beta.cfg.HeadEvery = 2 * time.Second
		b.beta.reopen(t)
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages && r.URL.Query().Get("aud") == directory.Mesh.String() {
				time.Sleep(protocol.AnswerTime - time.Second)
			}

			return body
		}
		began, o := time.Now(), b.beta.origins.Get(alpha)
		ctx, cancel := context.WithCancel(t.Context())

		var loops sync.WaitGroup // without the subscription, which would pull as well
		o.Answers.Begin()
		loops.Go(func() { b.beta.follower.tend(ctx, o) })
		loops.Go(func() { b.beta.follower.catchUp(ctx, o) })
		loops.Go(func() { b.beta.follower.watch(ctx, o) })
		defer loops.Wait()
		defer cancel()
		eventually(t, 5*time.Second, "its head is known", func() bool { return b.beta.Peers()[0].HeadAge > 0 })

		for s := b.beta.Peers()[0]; s.Entries < 3*protocol.MaxDigests; s = b.beta.Peers()[0] {
			if s.State != "behind" || s.HeadAge > 10*time.Second {
				t.Fatalf("%v after the start: %+v", time.Since(began), s)
			}

			if told := time.Duration(s.LagSeconds * float64(time.Second)); told > time.Since(began) ||
				told < time.Since(began)-time.Second {
				t.Fatalf("%v after the start it is %v behind", time.Since(began), told)
			}

			time.Sleep(time.Second)
		}

		if took := time.Since(began); took < 2*protocol.AnswerTime {
			t.Errorf("it took %v, which shows nothing", took)
		}
	})
}

// Requirement: MESH-015
func TestAnOriginThatIsOutOfReachIsFollowedThroughOthers(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		g := b.addGamma(t)
		b.beta.reopenWith(t, active(alpha, 1), active(gamma, 1))
		b.world.cut = func(from, to string) bool { return from == g.base && to == b.alpha.base }
		defer b.beta.run(t)()
		defer g.run(t)()
		rid := b.origin.register("agent", 600)
		eventually(t, time.Minute, "alpha's agent at gamma, by beta", func() bool { return g.shown(alpha)[rid] != nil })

		if e := g.shown(alpha)[rid]; e.Received.From != beta || e.Received.Key != signed.KeyID(b.alpha.keys.public()) {
			t.Fatalf("%+v", e.Received)
		}

		b.origin.remove(rid)
		eventually(t, time.Minute, "its removal at gamma, by beta", func() bool { return g.shown(alpha)[rid] == nil })
	})
}

// Readers of a write wait for it here, also where it changed nothing here.
func TestAwaitAsksForTheOriginsWord(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("agent", 600)
		defer b.beta.run(t)()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()

		if err := b.beta.Await(ctx, alpha, b.origin.Position()); err != nil || len(b.beta.shown(alpha)) != 1 {
			t.Fatal(err)
		}

		time.Sleep(100 * time.Millisecond)
		b.origin.refresh(rid, 600) // announces nothing

		if err := b.beta.Await(ctx, alpha, b.origin.Position()); err != nil {
			t.Fatalf("a refresh: %v, at %v", err, b.origin.Position())
		}

		b.origin.register("another", 600)

		if err := b.beta.Await(ctx, alpha, b.origin.Position()); err != nil || len(b.beta.shown(alpha)) != 2 {
			t.Fatal(err)
		}

		if err := b.beta.Await(ctx, alpha, directory.Position{Epoch: b.origin.epoch, Revision: 1000}); err == nil {
			t.Fatal("reached what is not there")
		}
	})
}

// A chain that was made change by change is pulled anew, so that whoever gets it from
// here gets few pages.
//
// Requirement: MESH-014
func TestAChainOfManyLinksIsPulledAnew(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		const agents = 5
		for i := range agents {
			b.origin.register(fmt.Sprint("agent-", i), 6000)
			b.pull()
		}

		o := b.beta.origins.Get(alpha)
		links := func() (n uint64) {
			must(t, b.beta.store.Read(o.Mesh.Cur.Id, func(tx *store.Tx) error {
				n = tx.Chain().Sequence()
				return nil
			}))

			return n
		}
		b.beta.follower.compact(t.Context(), o, &o.Mesh)

		if n := links(); n < agents {
			t.Fatalf("%d links of %d changes", n, agents)
		}

		_, err := b.beta.store.Change(o.Mesh.Cur.Id, func(tx *store.Tx) error {
			// as if there had been hundreds more
			return tx.Chain().SetSequence(tx.Chain().Sequence() + compactSlack/linkWeight)
		})
		must(t, err)

		for range 2 {
			b.beta.follower.compact(t.Context(), o, &o.Mesh)

			if n := links(); n != 1 || o.Mesh.Cur.State.Listed != agents {
				t.Fatalf("%d links that list %d", n, o.Mesh.Cur.State.Listed)
			}
		}
	})
}

// A page of a chain that is pulled anew is compared with what was accepted, as any other.
//
// Requirement: MESH-022
func TestAChainThatIsPulledAnewIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		court := new(bailiff)
		b := newBench(t, func(c *Config) { c.Verifier = court })
		b.origin.registers(3, 6000)
		b.pull()

		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path != protocol.PathPages {
				return body
			}

			text, err := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) { p.Digests[1].Deadline++ }))
			must(t, err)

			return []byte(text)
		}

		o := b.beta.origins.Get(alpha)
		must(t, b.beta.follower.repull(t.Context(), o, &o.Mesh, o.Mesh.Cur, b.giver(), 1<<20))

		if len(court.accused) != 1 {
			t.Errorf("%d accusations", len(court.accused))
		}
	})
}

// A chain is renewed by pages of its own epoch alone: those of another are of another stream.
//
// Requirement: MESH-019
func TestAChainIsNotRenewedByAnotherEpoch(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		for i := range 5 {
			b.origin.register(fmt.Sprint("agent-", i), 6000)
			b.pull()
		}

		o := b.beta.origins.Get(alpha)

		_, err := b.beta.store.Change(o.Mesh.Cur.Id, func(tx *store.Tx) error {
			return tx.Chain().SetSequence(compactSlack) // as if there had been thousands more
		})
		must(t, err)

		b.origin.epoch += 60

		b.beta.follower.compact(t.Context(), o, &o.Mesh)
		must(t, b.beta.store.Read(o.Mesh.Cur.Id, func(tx *store.Tx) error {
			if n := tx.Links(); n != compactSlack {
				t.Errorf("the chain has %d links, of another epoch", n)
			}

			return nil
		}))

		b.origin.epoch -= 60

		b.beta.follower.compact(t.Context(), o, &o.Mesh)
		must(t, b.beta.store.Read(o.Mesh.Cur.Id, func(tx *store.Tx) error {
			if n := tx.Links(); n != 1 {
				t.Errorf("the chain has %d links, and was not renewed", n)
			}

			return nil
		}))
	})
}

// A chain that lists much that is dead is pulled anew.
func TestALongChainIsPulledAnew(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		for i := range 30 {
			rid := b.origin.register(fmt.Sprint("agent-", i), 60)
			b.pull()

			if i%10 > 0 {
				b.origin.remove(rid)
			}

			b.pull()
		}

		time.Sleep(3 * time.Minute)
		b.origin.sweep() // ends what has expired …
		b.origin.sweep() // … and frees it
		last := b.origin.register("last", 600)
		b.pull()
		st := b.beta.origins.Get(alpha).Mesh.Cur

		links := func() (n int) {
			if err := b.beta.store.Read(st.Id, func(tx *store.Tx) error {
				n = tx.Chain().Stats().KeyN
				return nil
			}); err != nil {
				t.Fatal(err)
			}

			return n
		}
		if n := links(); n < 50 {
			t.Fatalf("%d links", n)
		}

		st.State.Listed += compactSlack // as if there had been thousands more
		b.beta.follower.compact(t.Context(), b.beta.origins.Get(alpha), &b.beta.origins.Get(alpha).Mesh)

		if n := links(); n != 1 || st.State.Listed != 1 {
			t.Fatalf("%d links that list %d", n, st.State.Listed)
		}

		b.beta.reopen(t)

		if shown := b.beta.shown(alpha); len(shown) != 1 || shown[last] == nil {
			t.Fatalf("%v", shown)
		}

		made, err := b.beta.holdings.pageOf(beta, protocol.PageQuery{Origin: alpha, Aud: directory.Mesh})
		if err != nil || made == "" {
			t.Fatal(made, err)
		}
	})
}

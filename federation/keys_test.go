package federation

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// revoke has alpha's key document revoke a key of another node, which announces nothing.
func (b *bench) revoke() (id string) {
	b.Helper()
	id = signed.KeyID(newKeyring(alpha, "stolen", b.origin).public())
	b.origin.listKeys([]string{id}, b.alpha.keys)

	return id
}

// follow has beta subscribe to both of alpha's streams, until the test ends.
func (b *bench) follow() {
	o := b.beta.origins.Get(alpha)
	for _, f := range o.Feeds() {
		go b.beta.follower.subscribe(b.Context(), o, f, b.giver(), func() {})
	}
}

// Who subscribes hears of a revocation at once, also where gossip never told him and
// nothing else is announced; it costs one pull for both subscriptions, and a relay's
// subscribers hear of it from the relay.
//
// Requirement: TRUST-010
func TestSubscriptionsTellOfKeyDocuments(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		asked := b.keysAsked()
		b.follow()
		relayed := make(chan string, 1)
		go func() {
			had := directory.FormatIndex(alpha, b.beta.peers.keysIssue(alpha))
			w := b.beta.ask(t.Context(), nodeID(beta, 2).String(), "GET",
				protocol.PathPages+"?origin=alpha.test&aud=mesh&wait=30s&since=9&keys="+had, "")
			relayed <- w.Header().Get(protocol.HeaderKeys)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		before := *asked
		id := b.revoke()
		time.Sleep(time.Millisecond)
		synctest.Wait()

		if doc, _, _ := b.beta.cfg.Keys.Keys(alpha); len(doc.Revoked) != 1 || doc.Revoked[0] != id {
			t.Errorf("%v are revoked", doc.Revoked)
		}

		if n := *asked - before; n != 1 {
			t.Errorf("the key document was asked for %d times", n)
		}

		select {
		case got := <-relayed:
			if want := directory.FormatIndex(alpha, protocol.Issue(b.origin.KeyDocument())); got != want {
				t.Errorf("the relay says %q and not %q", got, want)
			}
		default:
			t.Error("the relay's subscriber waits still")
		}
	})
}

// A node that tells of a key document which isn't to be had there is asked for it once a
// wait, and brings pages meanwhile.
//
// Requirement: MESH-026
func TestAKeyDocumentThatIsNotToBeHadHoldsNothingUp(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		_, old, _ := b.alpha.cfg.Keys.Keys(alpha)

		var (
			withheld atomic.Bool
			asked    atomic.Int32
		)
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if strings.HasSuffix(r.URL.Path, protocol.PathKeys) && withheld.Load() {
				asked.Add(1)
				return []byte(old)
			}

			return body
		}
		o := b.beta.origins.Get(alpha)
		go b.beta.follower.subscribe(t.Context(), o, &o.Mesh, b.giver(), func() {})
		time.Sleep(time.Second)
		withheld.Store(true)
		b.revoke()
		b.origin.register("another", 600)
		time.Sleep(time.Millisecond)

		if n := len(b.beta.shown(alpha)); n != 2 {
			t.Errorf("%d are shown", n)
		}

		const waits = 10
		time.Sleep(waits*longPoll - time.Second)

		if n := asked.Load(); n < waits/2 || n > waits {
			t.Errorf("it was asked for %d times", n)
		}

		withheld.Store(false)
		time.Sleep(2 * longPoll)

		if doc, _, _ := b.beta.cfg.Keys.Keys(alpha); len(doc.Revoked) != 1 {
			t.Error("it is never asked for again")
		}
	})
}

// A node that answers at once that there is nothing, again and again, is left for another.
//
// Requirement: MESH-026
func TestWhoDoesNotWaitIsLeft(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		asked := 0
		b.beta.cfg.Client = func(spiffeid.TrustDomain) *http.Client {
			return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, protocol.PathPages) && r.URL.Query().Has("wait") {
					asked++

					return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody,
						Header: http.Header{protocol.HeaderKeys: {"alpha.test=0.0"}}}, nil
				}

				return b.world.roundTrip(b.beta, r)
			})}
		}
		b.beta.reopen(t)
		b.pull()

		o := b.beta.origins.Get(alpha)
		if err := b.beta.follower.subscribe(t.Context(), o, &o.Mesh, b.giver(),
			func() {}); !errors.Is(err, errNoNews) {
			t.Error(err)
		}

		if asked > 5 {
			t.Errorf("it was asked %d times", asked)
		}
	})
}

// A lateRing has its own domain's key document later than the domain agrees on it, as a
// node's keyring does, which is given it in a moment.
type lateRing struct {
	*keyring
	mu    sync.Mutex
	has   *signed.KeyDocument
	looks int
	after int // looks, after which it has the newest
}

func (k *lateRing) catchUp(after int) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.looks, k.after = 0, after; after == 0 {
		k.has = k.source.KeyDocument()
	}
}

func (k *lateRing) Keys(td spiffeid.TrustDomain) (*signed.KeyDocument, string, bool) {
	if td != k.domain {
		return k.keyring.Keys(td)
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	doc := k.has
	if k.looks++; k.looks == k.after {
		k.has = k.source.KeyDocument()
	}

	text, _ := k.Sign(signed.TypeKeys, doc.Payload())

	return doc, text, true
}

// Whenever a node takes up what its domain has agreed on, before a waiting poll looks,
// after that or in between, whoever waits hears of it within a second or so.
//
// Requirement: TRUST-010
func TestANodeThatTakesUpItsKeyDocumentLate(t *testing.T) {
	for after := range 5 {
		inBench(t, func(t *testing.T, b *bench) {
			ring := &lateRing{keyring: b.alpha.keys, has: b.origin.KeyDocument()}
			b.alpha.Mesh.cfg.Keys = ring
			target := protocol.PathPages + "?origin=alpha.test&aud=mesh&wait=30s&since=9&keys=" +
				directory.FormatIndex(alpha, protocol.Issue(ring.has))
			told := make(chan string, 1)
			go func() {
				told <- b.alpha.ask(t.Context(), nodeID(beta, 1).String(), "GET", target, "").Header().
					Get(protocol.HeaderKeys)
			}()
			synctest.Wait()
			ring.catchUp(after)
			b.revoke()

			if synctest.Wait(); after == 0 {
				ring.catchUp(0)
			}

			time.Sleep(3 * replica.KeysEvery)

			select {
			case got := <-told:
				if want := directory.FormatIndex(alpha, protocol.Issue(b.origin.KeyDocument())); got != want {
					t.Errorf("after %d looks: told %q and not %q", after, got, want)
				}
			default:
				t.Errorf("after %d looks: it waits still", after)
			}
		})
	}
}

// intercept has a function answer what beta asks, unless that returns nil twice.
func (b *bench) intercept(f func(*http.Request) (*http.Response, error)) {
	b.beta.Mesh.client.HTTP = func(spiffeid.TrustDomain) *http.Client {
		return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if res, err := f(r); res != nil || err != nil {
				return res, err
			}

			return b.world.roundTrip(b.beta, r)
		})}
	}
}

// A node whose clock goes a little faster waits a little shorter, and is left by nobody.
//
// Requirement: MESH-005
func TestWhoseClockGoesFasterIsNotLeft(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		b.intercept(func(r *http.Request) (*http.Response, error) {
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "wait=30s", "wait=29.999s", 1)
			return nil, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()

		o := b.beta.origins.Get(alpha)
		if err := b.beta.follower.subscribe(ctx, o, &o.Mesh, b.giver(), func() {}); ctx.Err() == nil {
			t.Error(err)
		}
	})
}

// A key document that couldn't be had once is asked for again, also where pages come all
// the time; and another node of the origin is asked at once.
//
// Requirement: TRUST-010
func TestAKeyDocumentThatCouldNotBeHadOnceIsAskedForAgain(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()

		var fails atomic.Bool
		b.intercept(func(r *http.Request) (*http.Response, error) {
			if fails.Load() && strings.HasSuffix(r.URL.Path, protocol.PathKeys) {
				return nil, errCut
			}

			return nil, nil
		})
		o := b.beta.origins.Get(alpha)
		go b.beta.follower.subscribe(t.Context(), o, &o.Mesh, b.giver(), func() {})
		time.Sleep(time.Second)
		fails.Store(true)
		b.revoke()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		fails.Store(false)

		if len(o.Ask) != 1 || o.Status().LastError == "" {
			t.Error("no other node is asked, or the operator isn't told")
		}

		for range 10 {
			b.origin.register("another", 600)
			time.Sleep(longPoll / 4)
		}

		if doc, _, _ := b.beta.cfg.Keys.Keys(alpha); len(doc.Revoked) != 1 {
			t.Error("it is never asked for again")
		}
	})
}

// A key document that takes for ever holds each page up for no longer than records may,
// and one that isn't believed keeps nobody from subscribing.
//
// Requirement: MESH-026
func TestKeyDocumentsHoldPagesUpForAMoment(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"never": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"not believed": func(*http.Request) (*http.Response, error) { return nil, errCut },
	} {
		inBench(t, func(t *testing.T, b *bench) {
			b.origin.register("agent", 600)
			b.pull()
			b.intercept(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, protocol.PathKeys) {
					return answer(r)
				}

				return nil, nil
			})
			b.revoke()
			b.follow()
			time.Sleep(protocol.AnswerTime + protocol.PrefetchTime + time.Second)

			for range 20 {
				rid := b.origin.register("another", 600)
				time.Sleep(protocol.PrefetchTime + time.Second)

				if b.beta.shown(alpha)[rid] == nil {
					t.Fatalf("%s: a page is held up", name)
				}
			}
		})
	}
}

// Who issues key documents all the time is asked for one a second.
//
// Requirement: MESH-026
func TestKeyDocumentsAreFollowedAtAPace(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		asked := b.keysAsked()
		b.follow()
		time.Sleep(time.Second)
		synctest.Wait()
		before := *asked

		const seconds, each = 10, 100
		for range seconds * each {
			b.revoke()
			time.Sleep(time.Second / each)
		}

		time.Sleep(2 * replica.KeysEvery)
		synctest.Wait()

		if n := *asked - before; n > b.beta.origins.Get(alpha).Contacts.Issuing.Burst()+seconds+2 {
			t.Errorf("it was asked for %d times", n)
		}

		if b.beta.peers.keysIssue(alpha) != protocol.Issue(b.origin.KeyDocument()) {
			t.Error("the last one isn't here")
		}
	})
}

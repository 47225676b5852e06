package federation

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// revoke has alpha's key document revoke a key of another node, which announces nothing.
func (b *bench) revoke() (id string) {
	b.Helper()
	id = directory.KeyID(newKeyring(alpha, "stolen", b.origin).public())
	b.origin.listKeys([]string{id}, b.alpha.keys)
	return id
}

// Who subscribes hears of a revocation at once, also where gossip never told him and
// nothing else is announced; it costs one pull for both subscriptions, and a relay's
// subscribers hear of it from the relay.
//
// Requirement: TRUST-010
func TestSubscriptionsTellOfKeyDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.origin.register("agent", 600)
		b.pull()
		o := b.beta.origin(alpha)
		asked := b.keysAsked()
		for _, f := range o.feeds() {
			go b.beta.subscribe(t.Context(), o, f, b.giver(), func() {})
		}
		relayed := make(chan string, 1)
		go func() {
			had := directory.FormatIndex(alpha, b.beta.keysIssue(alpha))
			w := b.beta.ask(t.Context(), nodeID(beta, 2).String(), "GET", pathPages+"?origin=alpha.test&aud=mesh&wait=30s&since=9&keys="+had, "")
			relayed <- w.Header().Get(headerKeys)
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
			if want := directory.FormatIndex(alpha, issueOf(b.origin.KeyDocument())); got != want {
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
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.origin.register("agent", 600)
		b.pull()
		_, old, _ := b.alpha.cfg.Keys.Keys(alpha)
		var withheld atomic.Bool
		var asked atomic.Int32
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if strings.HasSuffix(r.URL.Path, pathKeys) && withheld.Load() {
				asked.Add(1)
				return []byte(old)
			}
			return body
		}
		o := b.beta.origin(alpha)
		go b.beta.subscribe(t.Context(), o, &o.feed, b.giver(), func() {})
		time.Sleep(time.Second)
		withheld.Store(true)
		b.revoke()
		b.origin.register("another", 600)
		time.Sleep(time.Millisecond)
		if n := len(b.beta.shown(alpha)); n != 2 {
			t.Errorf("%d are shown", n)
		}
		const waits = 10
		time.Sleep(waits*b.beta.Mesh.cfg.LongPoll - time.Second)
		if n := asked.Load(); n < waits/2 || n > waits {
			t.Errorf("it was asked for %d times", n)
		}
		withheld.Store(false)
		time.Sleep(2 * b.beta.Mesh.cfg.LongPoll)
		if doc, _, _ := b.beta.cfg.Keys.Keys(alpha); len(doc.Revoked) != 1 {
			t.Error("it is never asked for again")
		}
	})
}

// A node that answers at once that there is nothing, again and again, is left for another.
//
// Requirement: MESH-026
func TestWhoDoesNotWaitIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.origin.register("agent", 600)
		asked := 0
		b.beta.cfg.Client = func(spiffeid.TrustDomain) *http.Client {
			return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, pathPages) && r.URL.Query().Has("wait") {
					asked++
					return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Header: http.Header{headerKeys: {"alpha.test=0.0"}}}, nil
				}
				return b.world.roundTrip(b.beta, r)
			})}
		}
		b.beta.reopen(t)
		b.pull()
		o := b.beta.origin(alpha)
		if err := b.beta.subscribe(t.Context(), o, &o.feed, b.giver(), func() {}); !errors.Is(err, errNoNews) {
			t.Error(err)
		}
		if asked > 5 {
			t.Errorf("it was asked %d times", asked)
		}
	})
}

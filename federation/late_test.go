package federation

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// rotated gives alpha's node another key, beside which the one before stays listed, and
// returns a page by it, as gossip brings it.
func (b *bench) rotated(i int) replica.Pushed {
	b.Helper()
	fresh := newKeyring(alpha, fmt.Sprint("key ", i), b.origin)
	b.origin.listKeys(nil, fresh, &keyring{private: b.alpha.keys.private})
	b.alpha.keys.private = fresh.private
	b.origin.register(fmt.Sprint("agent-", i), 600)
	text, err := b.alpha.keys.Sign(signed.TypePage, b.page(nil))
	must(b.T, err)

	return replica.Pushed{From: replica.Sender{Domain: gamma, Pushed: true},
		Msg: string([]byte{protocol.GossipPage}) + text}
}

// keysAsked counts from now on how often alpha is asked for its key document.
func (b *bench) keysAsked() *int {
	n := new(int)
	b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
		if strings.HasSuffix(r.URL.Path, protocol.PathKeys) {
			*n++
		}

		return body
	}

	return n
}

// Who changes its key is refused nothing for that: a message by a key that is not known
// yet, and that is so soon after another that the key document can't be asked for again,
// waits until it was.
//
// Requirement: TRUST-010, MESH-017
func TestWhoRotatesIsRefusedNothing(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		time.Sleep(replica.KeysEvery)

		o := b.beta.origins.Get(alpha)
		for i := range 3 {
			b.beta.follower.open(t.Context(), o, b.rotated(i))
		}

		if len(o.Mailbox.Late) != 2 || len(b.beta.shown(alpha)) != 2 {
			t.Fatalf("%d wait and %d are shown", len(o.Mailbox.Late), len(b.beta.shown(alpha)))
		}

		asked := b.keysAsked()
		time.Sleep(replica.KeysEvery)
		b.beta.follower.openLate(t.Context(), o)

		if n := len(b.beta.shown(alpha)); n != 4 || *asked != 1 || len(o.Mailbox.Late) != 0 {
			t.Errorf("%d are shown, the key document was asked for %d times, %d wait", n, *asked, len(o.Mailbox.Late))
		}

		if got := b.beta.refusals.ByOrigin.Of(alpha); got[protocol.CodeKeyUnknown] != 0 {
			t.Errorf("%v", got)
		}
	})
}

// Who forges makes a node ask for a key document once a second and no oftener, has it
// keep a few messages for that long, and is refused each.
//
// Requirement: MESH-017, MESH-026
func TestForgeriesMakeNobodyAskOften(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		o := b.beta.origins.Get(alpha)
		go b.beta.follower.tend(t.Context(), o)
		synctest.Wait()
		asked := b.keysAsked()
		forged, err := newKeyring(alpha, "forger", b.origin).Sign(signed.TypePage, b.page(nil))
		must(t, err)

		const seconds, each = 20, 10
		for range seconds * each {
			b.beta.pushed(gamma, protocol.GossipPage, forged)
			time.Sleep(time.Second / each)
			synctest.Wait()

			if len(o.Mailbox.Late) > lateMost {
				t.Fatalf("%d are kept", len(o.Mailbox.Late))
			}
		}

		time.Sleep(2 * replica.KeysEvery)
		synctest.Wait()

		if got := b.beta.refusals.ByOrigin.Of(alpha)[protocol.CodeKeyUnknown]; got != seconds*each ||
			*asked > seconds+2 || *asked == 0 {
			t.Errorf("%d of %d were refused; the key document was asked for %d times", got, seconds*each, *asked)
		}

		if o.NewestHead() == "" {
			t.Error("while they came nobody asked for the head")
		}
	})
}

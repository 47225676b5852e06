package federation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// That an origin lists this domain no longer is known after a restart too, and
// obeyed there where the machine stopped before it was: a relay that goes on giving
// its pages is not believed.
//
// Requirement: MESH-025
func TestWhoIsListedNoLongerKnowsItAfterARestart(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 6000)
		b.pull()

		page, err := b.alpha.publisher.Page(directory.Mesh, 0, 10, false)
		must(t, err)

		b.origin.list(gamma)
		_, keys, _ := b.alpha.keys.Keys(alpha)
		o := b.beta.origins.Get(alpha)

		must(t, o.Change(func() error { return o.ReplaceKeys(replica.ParseKeys(keys), keys) })) // and the machine stops

		for range 2 { // also if there is nothing left to drop
			b.beta.reopen(t)

			if n := len(b.beta.shown(alpha)); n != 0 {
				t.Errorf("%d shown after the restart", n)
			}

			if code, err := b.take(gamma, page.Text); err == nil {
				t.Errorf("a relay's page was %s", code)
			}

			if p := b.beta.Peers()[0]; !p.NotExported {
				t.Errorf("%+v", p)
			}
		}
	})
}

// A relay that answers slowly, one digest at a time, keeps nobody for long from an
// origin that is there again.
//
// Requirement: MESH-026
func TestASlowRelayHoldsNobodyForLong(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		g := b.world.open(t, t.TempDir(), 1, newModel(gamma), active(alpha, 1), active(beta, 1))
		b.alpha.reopenWith(t, active(beta, 1), active(gamma, 1))
		b.origin.list(beta, gamma)

		for i := range 60 {
			b.origin.register(fmt.Sprint("agent-", i), 6000)

			must(t, g.pulls(g.origins.Get(alpha), &g.origins.Get(alpha).Mesh, b.giver()))
		}

		b.world.cut = func(from, to string) bool { return from == b.beta.base && to == b.alpha.base }

		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				time.Sleep(9 * time.Second) // less than it is waited for
			}

			return body
		}
		must(t, g.receiver.askHead(t.Context(), g.origins.Get(alpha), b.giver()))

		peering := active(gamma, 1)
		b.beta.know(gamma).Peering.Store(&peering)
		began := time.Now()
		b.beta.follower.pullFromOthers(t.Context(), b.beta.origins.Get(alpha),
			&b.beta.origins.Get(alpha).Mesh)

		if took := time.Since(began); took > relayTime+10*time.Second {
			t.Errorf("the relay was asked for %s", took)
		}

		if n := len(b.beta.shown(alpha)); n < 2 {
			t.Errorf("%d came of it", n)
		}
	})
}

// An origin that gives pages without end where its chain is to be renewed, or lets
// it be renewed never, fills no disk.
//
// Requirement: MESH-026
func TestChainsAreBounded(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 6000)
		b.pull()
		o := b.beta.origins.Get(alpha)
		st := o.Mesh.Cur
		st.State.Listed += 2 * compactSlack
		asked := 0
		b.world.carry = roundTripper(func(r *http.Request) (*http.Response, error) {
			if asked++; asked > 4*compactSlack {
				return nil, errCut
			}

			since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
			text, err := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) {
				p.From = since
				p.To = since + 1
				p.At = 1 << 40
				p.Digests = nil
			}))
			rec := httptest.NewRecorder()
			rec.WriteString(text)

			return rec.Result(), err
		})

		_, err := b.beta.store.Change(st.Id, func(t *store.Tx) error { // so that nothing is new to the stream
			st.State.Watermark, t.State.Watermark = 1<<30, 1<<30
			return nil
		})
		must(t, err)

		b.beta.follower.compact(t.Context(), o, &o.Mesh)

		if asked < 2*compactSlack/(linkWeight+1) || asked > 3*compactSlack/(linkWeight+1)+10 {
			t.Errorf("%d pages were asked for", asked)
		}
	})
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("first", 6000)
		b.pull()
		st := b.beta.origins.Get(alpha).Mesh.Cur

		_, err := b.beta.store.Change(st.Id, func(t *store.Tx) error { // as if it had never been renewed
			t.State.Listed += store.ChainMost + 10
			return nil
		})
		must(t, err)

		mark := st.State.Watermark
		b.origin.register("second", 6000)
		b.pull()

		if st.State.Listed != 1 {
			t.Errorf("the chain lists %d", st.State.Listed)
		}

		for since, want := range map[uint64]bool{0: false, mark: true} {
			text, err := b.beta.holdings.pageOf(beta,
				protocol.PageQuery{Origin: alpha, Aud: directory.Mesh, Since: since})
			if err != nil || (text != "") != want {
				t.Errorf("a page from %d: %.20q, %v", since, text, err)
			}
		}
	})
}

// A page that names one registration twice puts no record under a name that isn't
// its own.
func TestAPageThatNamesARegistrationTwice(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("agent", 6000)
		real, _ := b.origin.Current(rid, directory.Mesh)
		other := real
		other.Revision, other.H = real.Revision+1, directory.HashOf([]byte("of nothing"))

		text, err := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) {
			p.To = other.Revision
			p.At = other.Revision
			p.Digests = []signed.Digest{real, other}
		}))
		must(t, err)

		b.applies(text)

		if n := len(b.beta.shown(alpha)); n != 0 {
			t.Errorf("%d shown by another's record", n)
		}

		if _, ok, err := b.beta.recordOf(alpha, beta, protocol.NameOf(other)); ok || err != nil {
			t.Errorf("kept under a name that isn't its own: %v", err)
		}
	})
}

// onWarn calls f at each warning.
type onWarn struct {
	lines
	f func()
}

func (l *onWarn) Handle(context.Context, slog.Record) error {
	l.f()
	return nil
}

// While a stream is shown anew, whoever waits for the file's readers doesn't wait
// for all of it.
func TestShowingAStreamAnewHoldsUpNoChange(t *testing.T) {
	b, set := ruled(t)
	b.origin.registers(3, 6000)

	b.pull()
	set(directory.PeerRules{Names: []string{"none"}})
	// one can't be shown
	_, err := b.beta.store.Change(b.beta.origins.Get(alpha).Mesh.Cur.Id, func(t *store.Tx) error {
		records := t.Bucket.Bucket([]byte("records"))
		k, v := records.Cursor().First()
		n := len(protocol.RecordName{}.Bytes())

		return records.Put(k, append(bytes.Clone(v[:n]), store.Marshal(&store.Record{Payload: []byte("{}")})...))
	})
	must(t, err)

	warned := 0
	b.beta.Mesh.replica.Logger = slog.New(&onWarn{f: func() {
		warned++
		wiped := make(chan error, 1)
		go func() { wiped <- b.beta.store.Wipe(false, atOnce) }()

		select {
		case err := <-wiped:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("a reader was in the way")
		}
	}})
	set(directory.PeerRules{Records: 100})

	if warned == 0 {
		t.Error("nothing was read")
	}
}

// What a peer pushes beyond its rate is dropped before anything of it is parsed, and
// takes no other node's place in an origin's queue.
//
// Requirement: MESH-026
func TestAFloodTakesNobodyElsesPlace(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		good, _ := b.alpha.keys.Sign(signed.TypePage, b.page(nil))
		forged, _ := newKeyring(alpha, "forger", b.origin).Sign(signed.TypePage, b.page(nil))
		o := b.beta.origins.Get(alpha)
		flood := func(n int) {
			for range n {
				b.beta.pushed(gamma, protocol.GossipPage, forged)
			}
		}
		flood(senderBurst)
		b.beta.pushed(alpha, protocol.GossipPage, good)
		flood(senderBurst)

		for len(o.Mailbox.Queue) > 0 {
			b.beta.follower.open(t.Context(), o, <-o.Mailbox.Queue)
		}

		if len(b.beta.shown(alpha)) != 1 || b.beta.refusals.BySender.Of(gamma)[protocol.CodeRate] < senderBurst ||
			b.beta.refusals.BySender.Of(alpha)[protocol.CodeRate] != 0 {
			t.Errorf("%d shown; %v", len(b.beta.shown(alpha)), b.beta.refusals.BySender.Of(gamma))
		}
	})
}

// A peer that answers with compression and nothing in it is given up after as many
// bytes as an answer may have.
//
// Requirement: MESH-026
func TestEmptyFramesEnd(t *testing.T) {
	b := newBench(t, nil)
	n := protocol.NameOf(b.origin.regs[b.origin.register("agent", 600)].announced)
	z, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true))
	must(t, err)
	endless := &repeating{what: bytes.Repeat(z.EncodeAll(nil, nil), 1000)}

	b.world.carry = roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK,
			Header: http.Header{"Content-Encoding": {protocol.CodingZstd}}, Body: io.NopCloser(endless)}, nil
	})
	if got := b.beta.receiver.fetch(t.Context(), alpha, []protocol.RecordName{n},
		[]protocol.Node{b.giver()}, maxAnswers); len(got) != 0 || endless.read > protocol.MaxCoded+1<<20 {
		t.Errorf("%d records of %d bytes", len(got), endless.read)
	}
}

// A repeating reader gives the same without end.
type repeating struct {
	what []byte
	read int
}

func (r *repeating) Read(b []byte) (n int, err error) {
	for n < len(b) {
		k := copy(b[n:], r.what[(r.read+n)%len(r.what):])
		n += k
	}

	r.read += n

	return n, nil
}

// The head of a stream that was dropped, because the origin lists this domain no longer, does not come back with a
// restart, whether or not the private stream went on.
//
// Requirement: MESH-025
func TestTheHeadOfADroppedStreamStaysAway(t *testing.T) {
	for _, own := range []bool{true, false} {
		inBench(t, func(t *testing.T, b *bench) {
			o := b.beta.origins.Get(alpha)

			rid := b.origin.register("agent", 86400)
			b.pull()
			must(t, b.beta.receiver.askHead(t.Context(), o, b.giver()))

			b.origin.list(gamma)
			must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))

			if own {
				b.origin.grant(rid, directory.Only(beta), true)
				must(t, b.beta.pulls(o, &o.Private, b.giver()))
			}

			b.beta.reopen(t)

			if o := b.beta.origins.Get(alpha); o.NewestHead() != "" || o.Behind() {
				t.Errorf("with own entries %t: the head is %q, and it is behind %t", own, o.NewestHead(), o.Behind())
			}
		})
	}
}

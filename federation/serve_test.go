package federation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ask calls a node's routes as caller.
func (s *site) ask(ctx context.Context, caller, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if caller != "" {
		r.Header.Set(callerHeader, caller)
	}

	w := httptest.NewRecorder()
	s.http.ServeHTTP(w, r)

	return w
}

// Who may ask for what, and how much.
//
// Requirement: AD-033
func TestRoutesAreForNodesOfPeersAndBounded(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		frozen := active(spiffeid.RequireTrustDomainFromString("frozen.test"), 1)
		frozen.State = directory.PeeringFrozen
		// gamma is a peer that the key document doesn't list
		b.alpha.reopenWith(t, active(beta, 1), active(gamma, 1), frozen)
		b.origin.register("agent", 600)
		b.pull()
		node := func(td spiffeid.TrustDomain) string { return nodeID(td, 1).String() }
		pages := protocol.PathPages + "?origin=alpha.test&aud=mesh&since="

		many := strings.Repeat(`["`+directory.Hash{}.String()+`","`+directory.Hash{}.String()+`"],`, protocol.MaxNames)
		for _, c := range []struct {
			site                         *site
			caller, method, target, body string
			status                       int
		}{
			{b.alpha, "", "GET", pages + "0", "", 403},
			{b.alpha, "spiffe://beta.test/agent/ada", "GET", pages + "0", "", 403},
			{b.alpha, "spiffe://beta.test/roster/nodes/1", "GET", pages + "0", "", 403},
			{b.alpha, "spiffe://beta.test/roster/node", "GET", pages + "0", "", 403},
			{b.alpha, node(delta), "GET", pages + "0", "", 403},
			{b.alpha, node(frozen.Domain), "GET", protocol.PathKeys + "?origin=alpha.test", "", 403},
			{b.alpha, node(gamma), "GET", pages + "0", "", 403},
			{b.alpha, node(gamma), "GET", protocol.PathHeads + "?origin=alpha.test", "", 403},
			{b.alpha, node(gamma), "GET", protocol.PathKeys + "?origin=alpha.test", "", 200},
			{b.alpha, node(delta), "GET", protocol.PathCheckpoint + "?origin=beta.test", "", 403},
			{b.alpha, node(gamma), "GET", protocol.PathCheckpoint + "?origin=beta.test", "", 404}, // none was shown
			{b.alpha, node(gamma), "GET", protocol.PathCheckpoint + "?origin=delta.test", "", 404},
			{b.alpha, node(alpha), "GET", pages + "0", "", 200},
			{b.alpha, node(beta), "GET", pages + "0", "", 200},
			{b.alpha, node(beta), "GET", pages + "2", "", 204},
			{b.alpha, node(beta), "GET", pages + "-1", "", 400},
			{b.alpha, node(beta), "GET", pages + "0&limit=0", "", 400},
			{b.alpha, node(beta), "GET", pages + "0&limit=1001", "", 400},
			{b.alpha, node(beta), "GET", pages + "0&wait=61s", "", 400},
			{b.alpha, node(beta), "GET", pages + "0&wait=-1", "", 400},
			{b.alpha, node(beta), "GET", pages + "0&wait=60", "", 200},
			{b.alpha, node(beta), "GET", pages + "2&wait=60&keys=alpha.test=0.0", "", 204}, // there is a later one
			{b.alpha, node(beta), "GET", pages + "0&keys=1.1", "", 400},
			{b.alpha, node(beta), "GET", pages + "0&keys=beta.test=1.1", "", 400},
			{b.alpha, node(beta), "GET", protocol.PathPages + "?origin=alpha.test&aud=", "", 400},
			{b.alpha, node(beta), "GET", protocol.PathPages + "?origin=Alpha.test&aud=mesh", "", 400},
			{b.alpha, node(beta), "GET", protocol.PathPages + "?origin=alpha.test&aud=gamma.test", "", 403},
			// an empty page: up to here there is nothing
			{b.alpha, node(beta), "GET", protocol.PathPages + "?origin=alpha.test&aud=beta.test", "", 200},
			{b.alpha, node(beta), "GET", protocol.PathPages + "?origin=alpha.test&aud=beta.test&since=2", "", 204},
			// isn't listed: learns nothing
			{b.alpha, node(gamma), "GET", protocol.PathPages + "?origin=alpha.test&aud=gamma.test", "", 204},
			{b.alpha, node(alpha), "GET", protocol.PathPages + "?origin=alpha.test&aud=beta.test", "", 403},
			{b.alpha, node(beta), "GET", protocol.PathPages + "?origin=gamma.test&aud=mesh", "", 403},
			{b.alpha, node(beta), "POST", pages + "0", "", 405},
			{b.alpha, node(beta), "GET", protocol.PathHeads + "?origin=alpha.test", "", 200},
			{b.alpha, node(beta), "POST", protocol.PathRecords, `{"origin":"alpha.test","names":[]}`, 200},
			{b.alpha, node(beta), "POST", protocol.PathRecords, `{"origin":"alpha.test","names":[],"names":[]}`, 400},
			{b.alpha, node(beta), "POST", protocol.PathRecords, `{"origin":"alpha.test","names":[["x","y"]]}`, 400},
			{b.alpha, node(beta), "POST", protocol.PathRecords, `{"origin":"alpha.test","names":[` + many + `]}`, 400},
			{b.alpha, node(beta), "POST", protocol.PathRecords,
				`{"origin":"alpha.test","names":[` + many + many + `]}`, 413},
			{b.beta, node(gamma), "GET", pages + "0", "", 403}, // a relay asks the origin's key document
			{b.beta, node(beta), "GET", pages + "0", "", 200},
			// private streams go to no other node
			{b.beta, node(beta), "GET", protocol.PathPages + "?origin=alpha.test&aud=beta.test", "", 204},
			{b.beta, node(gamma), "GET", protocol.PathPages + "?origin=alpha.test&aud=beta.test", "", 403},
			{b.beta, node(gamma), "GET", protocol.PathPages + "?origin=alpha.test&aud=gamma.test", "", 403},
			{b.beta, node(alpha), "GET", protocol.PathPages + "?origin=alpha.test&aud=beta.test", "", 403},
			{b.beta, node(alpha), "GET", protocol.PathHeads + "?origin=delta.test", "", 403},
		} {
			w := b.askWithin(c.site, c.caller, c.method, c.target, c.body)
			if w.Code != c.status {
				t.Errorf("%s %s as %q: %d and not %d: %.200s", c.method, c.target, c.caller, w.Code, c.status, w.Body)
			}

			switch typ := w.Header().Get("Content-Type"); {
			case w.Code >= 400 && typ != "application/problem+json",
				w.Code == 200 && c.method == "GET" && typ != protocol.TypeJOSE, w.Code == 200 && c.method == "POST" &&
					typ != protocol.TypeNDJSON:
				t.Errorf("%s %s: %d as %s", c.method, c.target, w.Code, typ)
			}

			if w.Code >= 400 {
				wantWholeProblem(t, w)
			}
		}
	})
}

// wantWholeProblem fails if a refusal lacks a member that other listeners' have.
func wantWholeProblem(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()

	var body map[string]any
	must(t, json.Unmarshal(w.Body.Bytes(), &body))

	for _, member := range []string{"type", "title", "status", "detail", "instance", "code", "message",
		"correlation_id", "error"} {
		if body[member] == nil || body[member] == "" {
			t.Errorf("%d without %s: %s", w.Code, member, w.Body)
		}
	}

	if body["correlation_id"] != w.Header().Get("X-Request-Id") {
		t.Errorf("request %q is answered %s", w.Header().Get("X-Request-Id"), w.Body)
	}
}

// askWithin asks and fails where the answer takes any time.
func (b *bench) askWithin(s *site, caller, method, target, body string) *httptest.ResponseRecorder {
	b.Helper()
	start := time.Now()

	w := s.ask(b.Context(), caller, method, target, body)
	if time.Since(start) > 0 {
		b.Errorf("%s %s took %s", method, target, time.Since(start))
	}

	return w
}

// A subscription answers at once when something is announced, and says so when
// nothing was within its wait.
func TestALongPollEndsWithNewsWithItsWaitOrWithTheNode(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		caller := nodeID(beta, 1).String()
		target := protocol.PathPages + "?origin=alpha.test&aud=mesh&wait=30s&since="

		start := time.Now()
		if w := b.alpha.ask(t.Context(), caller, "GET", target+"0", ""); w.Code != http.StatusNoContent ||
			time.Since(start) != 30*time.Second {
			t.Fatalf("%d after %s", w.Code, time.Since(start))
		}

		answer := make(chan *httptest.ResponseRecorder, 1)
		poll := func(since uint64) {
			go func() { answer <- b.alpha.ask(t.Context(), caller, "GET", target+fmt.Sprint(since), "") }()
			time.Sleep(time.Second)
		}
		poll(0)
		b.origin.listKeys(nil, b.alpha.keys) // a revision that announces nothing
		synctest.Wait()

		if len(answer) != 0 {
			t.Fatal("an empty page was sent")
		}

		b.origin.register("agent", 600)
		synctest.Wait()

		if w := <-answer; w.Code != http.StatusOK {
			t.Fatalf("%d", w.Code)
		}

		poll(b.origin.rev)
		b.alpha.Drain()

		if w := <-answer; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Fatalf("%d", w.Code)
		}

		if w := b.askWithin(b.alpha, caller, "GET", target+fmt.Sprint(b.origin.rev),
			""); w.Code != http.StatusServiceUnavailable {
			t.Fatalf("%d after it was drained", w.Code)
		}
	})
}

// Who waits at a relay hears of what comes there at once, too.
func TestALongPollAtARelayEndsWithNews(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		answer := make(chan *httptest.ResponseRecorder, 1)
		target := protocol.PathPages + "?origin=alpha.test&aud=mesh&wait=30s&since=" + fmt.Sprint(b.origin.rev)
		go func() { answer <- b.beta.ask(t.Context(), nodeID(beta, 2).String(), "GET", target, "") }()
		time.Sleep(time.Second)
		b.origin.register("another", 600)
		start := time.Now()
		b.pull()

		if w := <-answer; w.Code != http.StatusOK || time.Since(start) > 0 {
			t.Errorf("%d after %s", w.Code, time.Since(start))
		}
	})
}

// A peer's node ends its own domain's peering and no other, and no other node any.
//
// Requirement: MESH-025
func TestWhoSaysFarewell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []spiffeid.TrustDomain

		b := newBench(t, func(c *Config) {
			c.Farewell = func(_ context.Context, td spiffeid.TrustDomain, _ *directory.OperatorRequest) error {
				ended = append(ended, td)
				return nil
			}
		})
		for caller, want := range map[string]int{
			nodeID(alpha, 1).String(): 204, nodeID(beta, 2).String(): 403, nodeID(delta, 1).String(): 403,
			"spiffe://alpha.test/agent/ada": 403,
		} {
			if w := b.askWithin(b.beta, caller, "POST", protocol.PathFarewell, ""); w.Code != want {
				t.Errorf("%s: %d", caller, w.Code)
			}
		}

		if len(ended) != 1 || ended[0] != alpha {
			t.Errorf("ended: %v", ended)
		}
	})
}

// Who asks for the key document that lists a key has the newest that does.
//
// Requirement: MESH-022
func TestAKeyDocumentIsAskedForByKey(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.beta.origins.Get(alpha)
		other := newKeyring(alpha, "another", b.origin)

		var texts []string
		for _, rings := range [][]*keyring{{b.alpha.keys, other}, {b.alpha.keys}} {
			b.origin.listKeys(nil, rings...)
			must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))
			texts = append(texts, o.Keys.NewestText())
		}

		for key, want := range map[string]string{"": texts[1], signed.KeyID(b.alpha.keys.public()): texts[1],
			signed.KeyID(other.public()): texts[0], "none": ""} {
			w := b.askWithin(b.beta, nodeID(gamma, 1).String(), "GET", protocol.PathKeys+"?origin=alpha.test&key="+key,
				"")
			if want == "" && w.Code != http.StatusNotFound || want != "" && w.Body.String() != want {
				t.Errorf("%q: %d", key, w.Code)
			}
		}
	})
}

// What was announced and is freed by now is told by an empty page, or its
// receivers would ask for ever (rule G5).
//
// Requirement: MESH-005
func TestAPullBelowTheTipIsAnsweredThoughNothingIsLeft(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("agent", 60)
		b.origin.remove(rid)
		time.Sleep(3 * time.Minute)
		b.origin.sweep()

		if len(b.origin.regs) != 0 {
			t.Fatal("not freed")
		}

		b.pull()

		must(t, b.beta.receiver.askHead(t.Context(), b.beta.origins.Get(alpha), b.giver()))

		if p := b.beta.Peers()[0]; p.Watermark < b.origin.tip || p.LagRevisions != 0 ||
			b.beta.origins.Get(alpha).Behind() {
			t.Fatalf("%+v, tip %d", p, b.origin.tip)
		}
	})
}

// The newest digests fit into a gossiped page, and go on from where a receiver is
// that heard the one before.
//
// Requirement: MESH-006
func TestTheTailFitsIntoAGossipedPage(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		tail := &publish.GossipCursor{}

		b.origin.registers(1050, 600)

		made, err := b.alpha.publisher.GossipPage(tail)
		if err != nil || len(made.Text) >= gossip.MaxMessage || len(made.Digests) != publish.GossipDigests ||
			made.To != b.origin.rev {
			t.Fatalf("%d bytes, %d digests, %v", len(made.Text), len(made.Digests), err)
		}

		if made.From >= made.Digests[0].Revision || made.From < made.Digests[0].Revision-1 {
			t.Fatalf("it claims (%d, %d] and lists from %d", made.From, made.To, made.Digests[0].Revision)
		}

		b.pull()

		for range 3 {
			for i := range 10 {
				b.origin.register(fmt.Sprint("more-", b.origin.rev, i), 600)
			}

			if made, err = b.alpha.publisher.GossipPage(tail); err != nil {
				t.Fatal(err)
			}

			if _, code, err := b.beta.receiver.take(t.Context(), replica.Sender{Domain: alpha, Pushed: true},
				b.giver(), made.Text); err != nil || code != protocol.CodeApplied {
				t.Fatal(code, err)
			}
		}

		if n := len(b.beta.shown(alpha)); n != 1080 {
			t.Fatalf("%d shown", n)
		}
	})
}

// What another node's refusal says comes to an operator as a sentence, and never as
// bytes that a terminal would take for its own.
func TestARefusalIsFitToBeRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"x","title":"Forbidden","detail":"no peer"}`: `"no peer"`,
		"\x1b[2Jgone":         `"\x1b[2Jgone"`,
		`{"detail":"\u001b"}`: `"\x1b"`,
	} {
		if got := protocol.Quote([]byte(body)); got != want {
			t.Errorf("of %q it says %s, want %s", body, got, want)
		}
	}

	if got := protocol.Status(&http.Response{StatusCode: 500,
		Status: "500 \x1b[2Jgone"}); got != "500 Internal Server Error" {
		t.Errorf("of its status it says %q", got)
	}
}

// A node of a peer that the peer's newest key document doesn't list, such as one that was removed or never
// admitted, gets key documents for a minute and nothing else: no stream, no end of a peering.
//
// Requirement: SEC-019
func TestANodeThatNoKeyDocumentListsGetsKeysAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0

		b := newBench(t, func(c *Config) {
			c.Farewell = func(context.Context, spiffeid.TrustDomain, *directory.OperatorRequest) error {
				ended++
				return nil
			}
		})
		b.origin.register("agent", 600)
		b.pull()

		stranger := nodeID(alpha, 99).String()
		keys := protocol.PathKeys + "?origin=beta.test"
		want := func(method, path string, status int) {
			t.Helper()

			if w := b.askWithin(b.beta, stranger, method, path, ""); w.Code != status {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, status)
			}
		}

		stated := httptest.NewRequestWithContext(t.Context(), "GET", keys, nil)
		stated.Header.Set(callerHeader, stranger)
		stated.Header.Set(protocol.HeaderAddress, "https://192.0.2.9:8400")

		w := httptest.NewRecorder()
		b.beta.http.ServeHTTP(w, stated)

		if at := b.beta.StatedAddresses(alpha); w.Code != 200 || len(at) > 0 {
			t.Errorf("%d, and it is asked at %v", w.Code, at)
		}

		want("GET", protocol.PathHeads+"?origin=beta.test", 403)
		want("GET", protocol.PathPages+"?origin=beta.test&aud=alpha.test&since=0", 403)
		want("POST", protocol.PathRecords, 403)
		want("POST", protocol.PathFarewell, 403)

		if ended > 0 {
			t.Error("it has ended the peering")
		}

		time.Sleep(greetTime)
		want("GET", keys, 403)
	})
}

// A peer that makes up nodes takes no other peer's room for new ones, and an hour later has its own again.
func TestNewcomersOfAPeerTakeNoRoomOfAnothers(t *testing.T) {
	var n newcomers

	now := time.Now()
	for i := range 2 * maxNewcomers {
		if is := n.isNew(nodeID(alpha, i), now); is != (i < maxNewcomers) {
			t.Fatalf("node %d is new: %v", i, is)
		}
	}

	if !n.isNew(nodeID(beta, 1), now) {
		t.Error("a node of another peer is not new")
	}

	if n.isNew(nodeID(alpha, 0), now.Add(greetTime)) {
		t.Error("a node stays new")
	}

	if !n.isNew(nodeID(alpha, 2*maxNewcomers), now.Add(greetedFor+1)) {
		t.Error("there is no room an hour later")
	}
}

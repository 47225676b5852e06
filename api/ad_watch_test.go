package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/admission"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// pipes is a listener without a network, so that time is the bubble's.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// A caller is a transport to a server in a bubble for one of alpha.test's callers.
type caller struct {
	id string
	tr *http.Transport
}

func (c caller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Test-Caller", c.id)

	return c.tr.RoundTrip(r)
}

// inBubble serves s within a bubble and returns what makes clients of it.
func inBubble(t *testing.T, s *Server, protocol ...func(*http.Protocols, bool)) func(id string) *apiclient.Client {
	t.Helper()

	protocols := &http.Protocols{}
	for _, use := range append(protocol, (*http.Protocols).SetHTTP1)[:1] {
		use(protocols, true)
	}

	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: s.Handler(), Protocols: protocols, WriteTimeout: 2 * time.Minute}
	tr := &http.Transport{DialContext: p.dial, Protocols: protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(p)
	}()
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = server.Close()
		<-done
		time.Sleep(time.Second) // for the handlers, which Close doesn't wait for
	})

	return func(id string) *apiclient.Client {
		return apiclient.NewDirect("http://alpha.test",
			&http.Client{Transport: caller{id, tr}, Timeout: 30 * time.Second})
	}
}

// readTime bounds the wait for events.
const readTime = time.Hour

// read reads events until there have been n.
func read(t *testing.T, w *apiclient.Watch, n int) (got []*apiclient.WatchEvent) {
	t.Helper()

	// Heartbeats would keep a stream without events going for ever.
	bound := time.AfterFunc(readTime, func() { _ = w.Close() })
	defer bound.Stop()

	for range n {
		e, err := w.Next()
		if err != nil {
			t.Fatalf("behind %d events: %v", len(got), err)
		}

		got = append(got, e)
	}

	return got
}

func watching(t *testing.T, c *apiclient.Client, opt apiclient.LookupOptions, lastID string) *apiclient.Watch {
	t.Helper()

	w, err := c.Watch(t.Context(), opt, lastID)
	must(t, err)

	t.Cleanup(func() { _ = w.Close() })

	return w
}

// told is what events say, in short.
func told(events []*apiclient.WatchEvent) string {
	var words []string
	for _, e := range events {
		word := e.Kind
		if e.Item != nil {
			word += " " + e.Item.Agent
		}

		if e.Removed != nil {
			word += " " + e.Removed.Agent
		}

		if e.Why != "" {
			word += " (" + e.Why + ")"
		}

		words = append(words, word)
	}

	return strings.Join(words, ", ")
}

func wantTold(t *testing.T, events []*apiclient.WatchEvent, want string) {
	t.Helper()

	if got := told(events); got != want {
		t.Errorf("told: %s\n want: %s", got, want)
	}
}

// revised returns e as a new statement says it.
func revised(e *directory.Entry, agent string, revision uint64) *directory.Entry {
	e2 := *e
	e2.Agent, e2.Statement, e2.Revision = agent, revision, revision

	return &e2
}

// A stream begins with the state, goes on with the changes, and goes on behind
// the last event of another one; what policy hides is in none of them, and goes
// where it is hidden from now on. Every item has its provenance.
//
// Requirement: AD-035, AD-054, MESH-001
func TestWatchStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, foreign := entry(t, alpha, rid(1), "one", 1, aDocument), entry(t, beta, rid(2), "two", 5, aDocument)
		s := newTestServer(t, nil, one, foreign, entry(t, alpha, rid(3), "secret", 2, aDocument),
			entry(t, alpha, rid(4), "none", 3, `{"base":"https://a.test","protocols":["a2a"]}`))
		view, ada := s.cfg.View, inBubble(t, s)("/agent/bob")
		w := watching(t, ada, apiclient.LookupOptions{Protocol: []string{"mcp"}}, "")
		events := read(t, w, 4)
		wantTold(t, events, "reset (new), added one, added two, current")

		for i, e := range events {
			if (e.ID != "") != (i == 3) {
				t.Errorf("%s has the id %q; only what is complete can be gone on from", e.Kind, e.ID)
			}
		}

		for _, e := range events[1:3] {
			if p := e.Item.Provenance; p.Authority == "" || p.Href == "" || p.Revision == 0 || p.ExpiresAt.IsZero() ||
				p.Verification.State == "" {
				t.Errorf("%s lacks provenance: %s", e.Item.Agent, e.Data)
			}

			l, err := ada.Lookup(t.Context(), apiclient.LookupOptions{Agent: e.Item.Agent})
			if err != nil || !strings.Contains(string(l.Body), string(e.Data)) {
				t.Errorf("it is not a lookup's item: %s, which are %s (%v)", e.Data, l.Body, err)
			}
		}

		if w.Header.Get("Content-Type") != "text/event-stream" || w.Header.Get("Roster-Index") == "" ||
			w.Header.Get("Cache-Control") != "private, no-cache" {
			t.Errorf("header %v", w.Header)
		}

		view.Own().Put(revised(one, "one", 7))
		events = read(t, w, 1)
		refreshed := revised(one, "one", 7)
		refreshed.ExpiresAt += 5000
		view.Own().Put(refreshed) // nothing to tell
		view.Own().Put(entry(t, alpha, rid(5), "secret too", 8, aDocument))
		view.Own().Put(revised(one, "secret now", 9))
		view.Own().Delete(refreshed.RID) // was hidden
		view.Drop(beta)
		events = append(events, read(t, w, 2)...)
		wantTold(t, events, "updated one, removed one (hidden), removed two (removed)")

		if r := events[2].Removed; r.Href != "/ad/r/beta.test/"+rid(2) || r.RID != rid(2) || r.Origin != "beta.test" {
			t.Errorf("removed: %+v", r)
		}

		view.Own().Put(entry(t, alpha, rid(6), "late", 10, aDocument))

		for i, want := range []string{"removed one (hidden), removed two (removed), added late",
			"removed two (removed), added late", "added late"} {
			again := watching(t, ada, apiclient.LookupOptions{Protocol: []string{"mcp"}}, events[i].ID)
			wantTold(t, read(t, again, 3-i), want)
		}

		id := events[2].ID
		for name, other := range map[string]*apiclient.Watch{
			"another caller": watching(t, inBubble(t, s)("/agent/eve"),
				apiclient.LookupOptions{Protocol: []string{"mcp"}}, id),
			"another filter": watching(t, ada, apiclient.LookupOptions{CapName: []string{"x"}}, id),
			"another form":   watching(t, ada, apiclient.LookupOptions{Protocol: []string{"mcp"}, Brief: true}, id),
			"another node": watching(t, inBubble(t, newTestServer(t, nil))("/agent/bob"),
				apiclient.LookupOptions{Protocol: []string{"mcp"}}, id),
			"nonsense": watching(t, ada, apiclient.LookupOptions{}, "yesterday"),
		} {
			if e := read(t, other, 1); told(e) != "reset (lost)" || other.ID() != "" {
				t.Errorf("%s: %s, and the client's id is %q", name, told(e), other.ID())
			}
		}
	})
}

// Quiet streams have a heartbeat each 15 s that carries the client's place on, and
// end at their moment with the reason: the certificate ends, the node stops, the
// leader was lost for too long.
func TestWatchEnds(t *testing.T) {
	for name, c := range map[string]struct {
		why   string
		after time.Duration
		query apiclient.LookupOptions
		over  func(*http.Protocols, bool)
	}{
		"credential": {ad.EndCredential, 100 * time.Second, apiclient.LookupOptions{}, (*http.Protocols).SetHTTP1},
		"stopping": {ad.EndStopping, 50 * time.Second, apiclient.LookupOptions{},
			(*http.Protocols).SetUnencryptedHTTP2},
		"stale": {ad.EndStale, 300 * time.Second, apiclient.LookupOptions{}, (*http.Protocols).SetHTTP1},
		"bears it": {ad.EndCredential, 1000 * time.Second,
			apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Consistency: "stale"}},
			(*http.Protocols).SetHTTP1},
		"over h2": {ad.EndCredential, 1000 * time.Second, apiclient.LookupOptions{},
			(*http.Protocols).SetUnencryptedHTTP2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()

				s := newTestServer(t, func(cfg *Config) {
					if c.why == ad.EndCredential {
						cfg.Identify = func(*http.Request) (request.Credential, error) {
							return request.Credential{Until: began.Add(c.after)}, nil
						}
					}

					if c.why == ad.EndStale || c.query.Consistency == "stale" {
						cfg.Registry, cfg.MaxStale = silent{began: began}, 299*time.Second
					}
				})
				if c.why == ad.EndStopping {
					time.AfterFunc(c.after, s.Drain)
				}

				w := watching(t, inBubble(t, s, c.over)("/agent/bob"), c.query, "")
				wantTold(t, read(t, w, 2), "reset (new), current")
				time.AfterFunc(20*time.Second, func() {
					s.cfg.View.Own().Put(entry(t, alpha, rid(1), "secret", 1, aDocument))
				})
				current := w.ID()
				wantTold(t, read(t, w, 1), "end ("+c.why+")")

				if took := time.Since(began); took < c.after || took > c.after+wire.Heartbeat {
					t.Errorf("ended after %v", took)
				}

				if w.ID() == current {
					t.Error("the heartbeats don't carry the client's place on")
				}

				if _, err := w.Next(); !errors.Is(err, io.EOF) {
					t.Errorf("the end is %v", err)
				}

				synctest.Wait()

				if n := s.Pools().Held(admission.WatchPool); n != 0 {
					t.Errorf("%d watches are left", n)
				}
			})
		})
	}
}

// silent is a registry whose leader fell silent when it began.
type silent struct {
	cutOff
	began time.Time
}

func (s silent) Heard() time.Duration { return time.Since(s.began) }

// Who reads too slowly is told so and dropped, and who reads nothing at all is
// dropped; neither holds the directory up.
func TestWatchDropsSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, nil)
		one := entry(t, alpha, rid(1), "one", 1, aDocument)
		burst := func() {
			for i := range uint64(20_000) {
				s.cfg.View.Own().Put(revised(one, "one", i+2))
			}
		}
		w := watching(t, inBubble(t, s)("/agent/bob"), apiclient.LookupOptions{}, "")
		read(t, w, 2)
		burst()
		time.Sleep(5 * time.Second)
		burst()

		n := 0
		for ; ; n++ {
			e, err := w.Next()
			must(t, err)

			if e.Kind == "end" {
				if e.Why != ad.EndSlow {
					t.Errorf("ended as %s", e.Why)
				}

				break
			}
		}

		if n > 20_000 {
			t.Errorf("told %d of 40000 changes", n)
		}

		w = watching(t, inBubble(t, s)("/agent/bob"), apiclient.LookupOptions{}, "")
		read(t, w, 3)
		burst()
		time.Sleep(response.WriteTime + time.Second)
		synctest.Wait()

		if n := s.Pools().Held(admission.WatchPool); n != 0 {
			t.Errorf("%d watches are left of clients who read nothing", n)
		}
	})
}

// There are only so many streams, at the node and of one caller; the refusals say
// which, and a stream that ends makes room.
//
// Requirement: AD-041
func TestWatchLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, func(cfg *Config) { cfg.Sizes.Watches = 8 }) // one of each caller
		client := inBubble(t, s)
		refused := func(id string, status int) {
			t.Helper()

			var e *apiclient.Error
			if _, err := client(id).Watch(t.Context(), apiclient.LookupOptions{}, ""); !errors.As(err, &e) ||
				e.Status != status || e.RetryAfter() == 0 {
				t.Errorf("%s: %v, want %d", id, err, status)
			}
		}
		first := watching(t, client("/agent/bob"), apiclient.LookupOptions{}, "")
		refused("/agent/bob", 429)

		for i := range 7 {
			watching(t, client(fmt.Sprint("/agent/", i)), apiclient.LookupOptions{}, "")
		}

		refused("/agent/eve", 503)
		_ = first.Close()
		synctest.Wait()
		watching(t, client("/agent/bob"), apiclient.LookupOptions{}, "")
	})
}

// Requirement: AD-078
func TestWatchHasNoHead(t *testing.T) {
	s := newTestServer(t, nil)

	resp := ask(t, s, "/agent/bob", "HEAD", "/ad/watch", "")
	if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, OPTIONS" {
		t.Errorf("HEAD: %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}

	wantStatus(t, ask(t, s, "/agent/bob", "GET", "/ad/watch?origin=Not%20One", ""), 400)
	wantStatus(t, ask(t, s, "/agent/bob", "GET", "/ad/watch?agent=a*b", ""), 400)
	wantStatus(t, ask(t, s, "/agent/bob", "GET", "/ad/watch?brief=perhaps", ""), 400)
	wantStatus(t, ask(t, s, "liar", "GET", "/ad/watch", ""), 401)
}

// A proof of possession opens one stream, which goes on for longer than the proof
// holds; lookups use up none.
//
// Requirement: TRUST-005
func TestAProofOpensOneStream(t *testing.T) {
	spent := map[directory.Hash]bool{}
	proof := directory.HashOf([]byte("a proof"))
	s := newTestServer(t, func(cfg *Config) {
		cfg.ConsumeProof = func(_ context.Context, p directory.Hash, until int64) error {
			if spent[p] || until != 7 {
				return directory.Refuse(directory.Replayed, "used")
			}

			spent[p] = true

			return nil
		}
		cfg.Identify = func(*http.Request) (request.Credential, error) {
			return request.Credential{Identity: identity("/agent/ada"), Token: true, Proof: proof, ProofUntil: 7}, nil
		}
	})
	wantStatus(t, ask(t, s, "", "GET", "/ad/l", ""), 200)
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	open := func() int {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ended, "GET",
			"https://ad.alpha.test:8400/ad/watch", nil)
		s.Handler().ServeHTTP(w, r)

		return w.Code
	}
	for i, want := range []int{200, 401, 401} {
		if got := open(); got != want {
			t.Errorf("stream %d: %d, want %d", i, got, want)
		}
	}
}

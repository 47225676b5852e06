package api

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit"
)

// confirming is the registry of a node that a majority confirms.
type confirming struct {
	cutOff
	asked *int
}

func (c confirming) Linearize(context.Context) error { *c.asked++; return nil }

// A read says which state it wants; every answer says which it got, a refusal
// too.
//
// Requirement: OPS-017
func TestConsistency(t *testing.T) {
	asked := 0
	for _, x := range []struct {
		registry Registry
		query    string
		status   int
	}{
		{cutOff{}, "", 200}, {cutOff{}, "consistency=default", 200}, {cutOff{}, "consistency=", 200},
		{cutOff{heard: time.Hour}, "consistency=default", 503}, {cutOff{heard: time.Hour}, "consistency=stale", 200},
		{cutOff{}, "consistency=linearizable", 503},
		{confirming{asked: &asked}, "consistency=linearizable", 200},
		{confirming{asked: &asked}, "consistency=stale", 200},
		{cutOff{}, "consistency=strong", 400}, {cutOff{}, "consistency=Stale", 400},
		{cutOff{}, "consistency=stale&consistency=stale", 400},
	} {
		s := newTestServer(t, func(cfg *Config) {
			cfg.Registry = x.registry
		}, entry(t, alpha, rid(1), "one", 1, aDocument))
		for _, path := range []string{"/ad/l", "/ad/r/one", "/ad/r/" + rid(1)} {
			resp := ask(t, s, "", "GET", path+"?"+x.query, "")
			wantStatus(t, resp, x.status)

			if resp.Header.Get("Roster-Index") == "" || resp.Header.Get("Roster-Stale") == "" {
				t.Errorf("%s?%s: the answer does not say how fresh it is", path, x.query)
			}

			if (resp.Header.Get("Retry-After") != "") != (x.status == 503) {
				t.Errorf("%s?%s: Retry-After is %q", path, x.query, resp.Header.Get("Retry-After"))
			}
		}
	}

	if asked != 3 {
		t.Errorf("a majority was asked %d times for 3 linearizable reads", asked)
	}
}

// A region is a node's state that goes on by itself.
type region struct {
	cutOff
	own func() directory.Position
}

func (r region) Position() directory.Position { return r.own() }
func (r region) Restored() uint64             { return 5 }

// at is a position of one epoch after a time, and the one before until then.
func at(began time.Time, after time.Duration, revision uint64) func() directory.Position {
	return func() directory.Position {
		p := directory.Position{Epoch: 7, Revision: revision}
		if time.Since(began) < after {
			p.Revision--
		}

		return p
	}
}

// A read with min waits, in whatever domain's node, until that has what min
// names; not for longer than wait, and then it says what it has.
// notes/users.md: "--min of a revision that was lost in a restore".
func TestReadYourWritesAnywhere(t *testing.T) {
	for _, x := range []struct {
		query  string
		status int
		took   time.Duration
		index  string
	}{
		{"", 200, 0, "alpha.test=7.9"},
		{"min=alpha.test=7.9", 200, 0, "alpha.test=7.9"},
		// Of an earlier epoch, what was restored is part of the history, and all else is lost.
		{"min=alpha.test=6.5", 200, 0, "alpha.test=7.9"},
		{"min=alpha.test=6.6", 503, 0, "alpha.test=7.9"},
		{"min=alpha.test=7.9&min=alpha.test=6.6", 503, 0, "alpha.test=7.9"},
		{"min=beta.test=6.5", 503, 0, "alpha.test=7.9, beta.test=7.19"},
		{"min=alpha.test=7.10", 200, 2 * time.Second, "alpha.test=7.10"},
		{"min=alpha.test=7.10&wait=1", 503, time.Second, "alpha.test=7.9"},
		{"min=alpha.test=7.10&wait=0", 503, 0, "alpha.test=7.9"},
		{"min=alpha.test=7.11", 503, 5 * time.Second, "alpha.test=7.10"},
		{"min=alpha.test=8.1&wait=60", 503, 60 * time.Second, "alpha.test=7.10"},
		{"min=beta.test=7.20", 200, 3 * time.Second, "alpha.test=7.10, beta.test=7.20"},
		{"min=beta.test=7.19&min=alpha.test=7.9", 200, 0, "alpha.test=7.9, beta.test=7.19"},
		{"min=beta.test=7.20&min=alpha.test=7.10&wait=4", 200, 3 * time.Second, "alpha.test=7.10, beta.test=7.20"},
		{"min=alpha.test=7.10,%20beta.test=7.20", 200, 3 * time.Second, "alpha.test=7.10, beta.test=7.20"},
		{"min=beta.test=7.21&wait=1", 503, time.Second, "alpha.test=7.9, beta.test=7.19"},
		{"min=gamma.test=7.1&wait=2", 503, 2 * time.Second, "alpha.test=7.10"},
		{"min=alpha.test=7.10&consistency=stale", 200, 2 * time.Second, "alpha.test=7.10"},
		{"min=alpha.test=7.10&consistency=linearizable", 503, 2 * time.Second, "alpha.test=7.10"},
		{"wait=60", 200, 0, "alpha.test=7.9"},
		{"wait=61", 400, 0, "alpha.test=7.9"}, {"wait=-1", 400, 0, "alpha.test=7.9"},
		{"wait=1.5", 400, 0, "alpha.test=7.9"},
		{"wait=", 400, 0, "alpha.test=7.9"}, {"wait=1&wait=1", 400, 0, "alpha.test=7.9"},
		{"min=", 400, 0, "alpha.test=7.9"}, {"min=alpha.test", 400, 0, "alpha.test=7.9"},
		{"min=7.10", 400, 0, "alpha.test=7.9"},
		{"min=alpha.test=7", 400, 0, "alpha.test=7.9"}, {"min=alpha.test=07.1", 400, 0, "alpha.test=7.9"},
		{"min=spiffe://alpha.test=7.1", 400, 0, "alpha.test=7.9"}, {"min=alpha.test=7.9,", 400, 0, "alpha.test=7.9"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			own, other := at(began, 2*time.Second, 10), at(began, 3*time.Second, 20)
			reached := func(td spiffeid.TrustDomain) (directory.Position, bool) { return other(), td == beta }
			s := newTestServer(t, func(cfg *Config) {
				cfg.Registry, cfg.Position = region{own: own}, reached
				cfg.Await = func(ctx context.Context, td spiffeid.TrustDomain, p directory.Position) error {
					for {
						if td == alpha && !own().Before(p) || td == beta && !other().Before(p) {
							return nil
						}

						select {
						case <-time.After(100 * time.Millisecond):
						case <-ctx.Done():
							return ctx.Err()
						}
					}
				}
			}, entry(t, alpha, rid(1), "one", 1, aDocument))
			resp := ask(t, s, "", "GET", "/ad/r/one?"+x.query, "")

			body := wantStatus(t, resp, x.status)
			if took := time.Since(began); took != x.took {
				t.Errorf("%s: took %s, want %s", x.query, took, x.took)
			}

			if got := resp.Header.Get("Roster-Index"); got != x.index {
				t.Errorf("%s: Roster-Index is %q, want %q", x.query, got, x.index)
			}

			lost := strings.Contains(x.query, "=6.")
			if (resp.Header.Get("Retry-After") != "") != (x.status == 503 && !lost) {
				t.Errorf("%s: Retry-After is %q: %v", x.query, resp.Header.Get("Retry-After"), body)
			}

			kind, _ := body["type"].(string)
			if strings.HasSuffix(kind, "/position-lost") != (lost && x.status == 503) {
				t.Errorf("%s: the problem is %q", x.query, kind)
			}
		})
	}
}

// The position of a foreign registration is told once, whatever min names.
func TestAPositionIsToldOnce(t *testing.T) {
	s := newTestServer(t, nil, entry(t, beta, rid(2), "two", 3, aDocument))
	for _, query := range []string{"", "?min=beta.test=1780000000.17",
		"?min=beta.test=1780000000.1&min=beta.test=1780000000.2"} {
		resp := ask(t, s, "", "GET", "/ad/r/beta.test/"+rid(2)+query, "")
		wantStatus(t, resp, 200)

		if got := resp.Header.Get("Roster-Index"); got != "alpha.test=1780315200.385, beta.test=1780000000.17" {
			t.Errorf("%s: Roster-Index is %q", query, got)
		}
	}
}

// The next page is read with the same consistency, but does not wait again.
//
// Requirement: AD-065
func TestTheNextLinkKeepsTheConsistency(t *testing.T) {
	s := newTestServer(t, nil, entry(t, alpha, rid(1), "one", 1, aDocument),
		entry(t, alpha, rid(2), "two", 2, aDocument))
	resp := ask(t, s, "", "GET", "/ad/l?min=alpha.test=1780315200.385&count=1&consistency=stale&wait=3", "")
	wantStatus(t, resp, 200)

	link := resp.Header.Get("Link")
	if !strings.HasPrefix(link, "</ad/l?count=1&consistency=stale&page=1&after=") || strings.Contains(link, "min") ||
		strings.Contains(link, "wait") {
		t.Errorf("Link is %q", link)
	}
}

// Reads that wait are bounded.
func TestReadsThatWaitAreBounded(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) { cfg.Sizes.Awaiting = 1 }, entry(t, alpha, rid(1), "one", 1, aDocument))

	other := admission.Caller{Party: limit.Caller{Kind: limit.Own, ID: "another"}}
	if _, err := s.pools.Take(admission.AwaitingPool, other, 1); err != nil {
		t.Fatal(err)
	}

	wantStatus(t, ask(t, s, "", "GET", "/ad/l?min=alpha.test=1780315200.386", ""), 503)
	wantStatus(t, ask(t, s, "", "GET", "/ad/l?min=alpha.test=1780315200.385", ""), 200)
}

// However many reads of one caller wait, those of another may.
func TestNoCallerTakesAllTheWaiting(t *testing.T) {
	const each = 20

	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, func(cfg *Config) {
			cfg.Sizes.Awaiting = 8 * each
			cfg.Await = func(ctx context.Context, _ spiffeid.TrustDomain, _ directory.Position) error {
				<-ctx.Done()
				return ctx.Err()
			}
		}, entry(t, alpha, rid(1), "one", 1, aDocument))

		const later = "/ad/l?min=alpha.test=1780315200.999999&wait=60"

		statuses := make(chan int, each)
		for range each {
			go func() { statuses <- ask(t, s, "/agent/eve", "GET", later, "").StatusCode }()
		}

		synctest.Wait()
		wantStatus(t, ask(t, s, "/agent/eve", "GET", later, ""), 429)
		began := time.Now()
		wantStatus(t, ask(t, s, "/agent/ada", "GET", later, ""), 503) // not reached, in the end

		if waited := time.Since(began); waited != 60*time.Second {
			t.Errorf("another caller waited for %s", waited)
		}

		for range each {
			if got := <-statuses; got != 503 {
				t.Errorf("a read that waited was answered with %d", got)
			}
		}

		if n := s.pools.Held(admission.AwaitingPool); n != 0 {
			t.Errorf("%d are still counted", n)
		}
	})
}

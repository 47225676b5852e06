package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/catalog"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/invoke"
)

// limited returns a server with those limits, and a function that asks it as
// somebody from some address.
func limited(t *testing.T, l admission.Limits, terms ...admission.CallerLimits) func(caller, address, method,
	target string) *http.Response {
	t.Helper()
	s := newTestServer(t, func(cfg *Config) {
		whole(cfg)
		cfg.Limits, cfg.CallerLimits = l, terms
	}, entry(t, alpha, rid(1), "one", 1, aDocument))

	return func(caller, address, method, target string) *http.Response {
		r := httptest.NewRequest(method, "https://ad.alpha.test:8400"+target, nil)

		r.RequestURI, r.RemoteAddr = target, address
		if caller != "" {
			r.Header.Set("Test-Caller", caller)
		}

		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)

		return w.Result()
	}
}

// Each identity has a quota of its own for each class, and so has each address
// where nobody was verified.
//
// Requirement: AD-041
func TestCallersAreLimitedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := limited(t, admission.Limits{admission.Reads: 0.2, admission.Writes: 0.1}) // bursts of 2 and of 1

		const here, there = "192.0.2.1:1000", "192.0.2.2:1000"
		for i, x := range []struct {
			caller, address, method, target string
			status                          int
			header                          string
		}{
			{"/agent/ada", here, "GET", "/ad/l", 200, `"reads";r=1;t=5`},
			{"/agent/ada", there, "GET", "/ad/r/" + rid(1), 200, `"reads";r=0;t=10`}, // wherever she is
			{"/agent/ada", here, "GET", "/ad/l", 429, `"reads";r=0;t=5`},
			{"/agent/ada", here, "HEAD", "/ad/l", 429, `"reads";r=0;t=5`},
			{"/agent/ada", here, "DELETE", "/ad/r/" + rid(1), 503, `"writes";r=0;t=10`},
			{"/agent/ada", here, "POST", "/ad/r/" + rid(1), 429, `"writes";r=0;t=10`},
			{"/agent/bob", here, "GET", "/ad/l", 200, `"reads";r=1;t=5`},
			{"", here, "GET", "/ad/l", 200, `"reads";r=1;t=5`},
			{"", "192.0.2.1:2000", "GET", "/ad/l", 200, `"reads";r=0;t=10`}, // another port
			{"liar", here, "GET", "/ad/l", 429, `"reads";r=0;t=5`},          // is nobody, from here
			{"", there, "GET", "/ad/l", 200, `"reads";r=1;t=5`},
			{"", there, "POST", "/ad/r?agent=x", 401, `"writes";r=0;t=10`}, // to be refused counts too
			{"", there, "POST", "/ad/r?agent=x", 429, `"writes";r=0;t=10`},
			{"", "[2001:db8::1]:1", "GET", "/ad/l", 200, `"reads";r=1;t=5`},
			{"", "[2001:db8::2]:1", "GET", "/ad/l", 200, `"reads";r=0;t=10`},
			{"", "[2001:db8:0:1::2]:1", "GET", "/ad/l", 200, `"reads";r=1;t=5`},
			{"", "[::ffff:192.0.2.2]:1", "GET", "/ad/l", 200, `"reads";r=0;t=10`},
			{"/ops/operator", here, "GET", "/v1/operator/raft", 200, ""},
			{"", here, "GET", "/federation/v1/heads", 204, ""},
			{"", here, "GET", "/.well-known/ad", 200, ""},
			{"/agent/ada", here, "OPTIONS", "/ad/l", 204, ""},
		} {
			resp := ask(x.caller, x.address, x.method, x.target)

			body := wantStatus(t, resp, x.status)
			if got := resp.Header.Get("RateLimit"); got != x.header {
				t.Errorf("%d: %s %s by %q at %s: RateLimit is %s, want %s", i, x.method, x.target, x.caller, x.address,
					got, x.header)
			}

			policy := map[bool]string{true: `"reads";q=2;w=10`,
				false: `"writes";q=1;w=10`}[strings.HasPrefix(x.header, `"r`)]
			if got := resp.Header.Get("RateLimit-Policy"); x.header != "" && got != policy ||
				x.header == "" && got != "" {
				t.Errorf("%d: RateLimit-Policy is %q", i, got)
			}

			if x.status != 429 {
				continue
			}

			wait := x.header[strings.LastIndexByte(x.header, '=')+1:]
			if got := resp.Header.Get("Retry-After"); got != wait {
				t.Errorf("%d: Retry-After is %q, want %s", i, got, wait)
			}

			if x.method != "HEAD" && (body["type"] != publicURL+"/problems/rate-limited" ||
				fmt.Sprint(body["retry_after"]) != wait ||
				fmt.Sprint(body["violated-policies"]) != "["+strings.Split(x.header, `"`)[1]+"]") {
				t.Errorf("%d: the body is %v", i, body)
			}
		}
	})
}

// Whom terms cover has the rates that they give, in buckets of their own; a way to show
// who one is counts as an identity does, and what no terms say is as for all.
//
// Requirement: AD-041, AI-016
func TestSomeCallersHaveTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ada, err := directory.ParseIdentityPattern("spiffe://alpha.test/agent/ada")
		must(t, err)

		agents, err := directory.ParseIdentityPattern("spiffe://alpha.test/agent/*")
		must(t, err)

		ask := limited(t, admission.Limits{admission.Reads: 0.1, admission.Public: 0.1, admission.Operations: 0.1,
			admission.Federation: 0.1},
			admission.CallerLimits{Who: ada, Limits: admission.Limits{admission.Reads: 0.2}},
			admission.CallerLimits{By: []string{admission.MethodNone},
				Limits: admission.Limits{admission.Reads: 0.3, admission.Public: 0.2}},
			admission.CallerLimits{Who: agents, By: []string{"wpt"}, Limits: admission.Limits{admission.Reads: 0.4}},
			admission.CallerLimits{Who: agents, Limits: admission.Limits{admission.Reads: 0,
				admission.Operations: 0.3}},
		)
		for _, x := range []struct {
			caller, target string
			most           int // requests at once
		}{
			{"/agent/ada", "/ad/l", 2},
			{"", "/ad/l", 3},
			{"/agent/bob", "/ad/l", 1000}, // without limit, by the last
			{"/client/reader", "/ad/l", 1},
			{"", "/.well-known/ad", 2},
			{"", "/openapi.json", 0}, // of the same quota
			{"/ops/operator", "/v1/operator/raft", 1},
			{"/agent/ada", "/v1/operator/raft", 3}, // whom terms cover, and policy refuses
			{"/roster/node/1", "/federation/v1/heads", 1},
			{"/roster/node/2", "/federation/v1/heads", 1},
		} {
			served := 0
			for served < 1000 && ask(x.caller, "192.0.2.7:1", "GET",
				x.target).StatusCode != http.StatusTooManyRequests {
				served++
			}

			if served != x.most {
				t.Errorf("%q has %d of %s at once, want %d", x.caller, served, x.target, x.most)
			}
		}
	})
}

// What is worth more than one request takes as many, and no more than there can be: with
// few requests a list of many is refreshed yet, and the next one waits.
//
// Requirement: AD-041
func TestWhatIsWorthManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := make([]string, directory.MaxRenewals)
		for i := range items {
			items[i] = `{"id":"` + directory.NewRID(int64(i), [10]byte{}).String() + `"}`
		}

		list := "[" + strings.Join(items, ",") + "]"

		for _, perSecond := range []float64{.1, .2, 1} {
			s := newTestServer(t, func(cfg *Config) { cfg.Limits = admission.Limits{admission.Writes: perSecond} })
			// it gets as far as the leader that isn't there
			wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/refresh", list, "Content-Type",
				"application/json"), 503)
			wantStatus(t, ask(t, s, "/agent/ada", "POST", "/ad/refresh", list, "Content-Type",
				"application/json"), 429)
		}

		var in invoke.Request
		s := newTestServer(t, func(cfg *Config) {
			cfg.Limits = admission.Limits{admission.Invocations: 1} // a burst of 10
			cfg.Gateway = quietGateway{reply: invoke.Reply{Status: 200, ContentType: "application/json",
				Body: []byte(`{}`)}, asked: func(got invoke.Request) {
				in = got
			}}
			cfg.Invocable = func(*directory.Entry) bool { return true }
		}, entry(t, alpha, rid(1), "agent", 1, invocable))
		wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/agent/invoke", `[1]`, "Content-Type",
			"application/json"), 200)

		if err := in.More(6); err != nil {
			t.Errorf("6 more of the 9 that are left: %v", err)
		}

		if err := in.More(6); directory.ProblemOf(err) != directory.RateLimited {
			t.Errorf("6 more of 3: %v", err)
		}
	})
}

// looking counts the registrations that policy is asked about.
type looking struct {
	houseRules
	asked *int
}

func (l looking) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	*l.asked++
	return l.houseRules.Read(id, e)
}

// To look at all that there is and show nothing is worth as many requests as it costs, on
// every surface, and ends where the caller has none left, or has gone.
//
// Requirement: AD-041
func TestLookupsPayForWhatTheyLookAt(t *testing.T) {
	var hidden []*directory.Entry
	for i := range 5500 {
		hidden = append(hidden, entry(t, alpha, fmt.Sprintf("01JWNTC0000000000000%06d", i),
			fmt.Sprintf("secret-%d", i), uint64(i+1), aDocument))
	}

	for _, x := range []struct{ method, target, other, body string }{
		{"GET", "/ad/l", "/ad/l?status=active", ""},
		{"GET", "/ad/l?agent=secret*&page=3", "/ad/l?protocol=mcp", ""},
		{"GET", "/agents", "/agents?status=any", ""},
		{"POST", "/agents/search", "/agents/search", `{}`},
		{"GET", catalog.WebOfAgentsPath + "?protocol=mcp", catalog.WebOfAgentsPath + "?scope=domain", ""},
		{"GET", catalog.WebOfAgentsPath + "?after=" + index.Cursor{Created: 1}.String(),
			catalog.WebOfAgentsPath + "?after=" + index.Cursor{Created: 2}.String(), ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestServer(t, func(cfg *Config) {
				cfg.Limits = admission.Limits{admission.Reads: 1, admission.Queries: 1} // bursts of 10
				cfg.Invocable = func(*directory.Entry) bool { return true }
			}, hidden...)
			first := ask(t, s, "", x.method, x.target, x.body) // of the 10 it takes 6
			second := ask(t, s, "", x.method, x.other, x.body)
			time.Sleep(10 * time.Second)

			third := ask(t, s, "", x.method, x.other, x.body)
			if first.StatusCode != 200 || second.StatusCode != 429 || second.Header.Get("Retry-After") != "10" ||
				third.StatusCode != 200 {
				t.Errorf("%s: %d; %s: %d, Retry-After %s, and after that %d", x.target, first.StatusCode, x.other,
					second.StatusCode, second.Header.Get("Retry-After"), third.StatusCode)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		looked := 0
		s := newTestServer(t, func(cfg *Config) { cfg.Policy = looking{asked: &looked} }, hidden...)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		r := httptest.NewRequest("GET", "https://ad.alpha.test:8400/ad/l", nil).WithContext(ctx)

		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, r); w.Code != clientGone || looked > 500 {
			t.Errorf("for a client that has gone: %d, %d were looked at", w.Code, looked)
		}
	})
}

// To open a watch is worth as many requests as lookups of all that it looks at: it goes on
// as the caller's quota does, and ends with its client.
//
// Requirement: AD-041
func TestWatchesPayForWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hidden []*directory.Entry
		for i := range 12_500 {
			hidden = append(hidden, entry(t, alpha, fmt.Sprintf("01JWNTC0000000000000%06d", i),
				fmt.Sprintf("secret-%d", i), uint64(i+1), aDocument))
		}

		var looked atomic.Int64
		s := newTestServer(t, func(cfg *Config) {
			cfg.Limits = admission.Limits{admission.Reads: 1} // bursts of 10
			cfg.Policy = counting{asked: &looked}
		}, hidden...)
		client := inBubble(t, s)("/agent/bob")
		w := watching(t, client, apiclient.LookupOptions{}, "")
		begun := time.Now()
		wantTold(t, read(t, w, 1), "reset (new)")
		synctest.Wait()

		if n := looked.Load(); n < 9_000 || n > 11_000 {
			t.Errorf("%d are looked at for the quota that there is", n)
		}

		wantTold(t, read(t, w, 1), "current")

		if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second || looked.Load() != 12_500 {
			t.Errorf("%d were looked at in %v", looked.Load(), took)
		}

		time.Sleep(2 * time.Second)
		looked.Store(0)
		w = watching(t, client, apiclient.LookupOptions{}, "")
		wantTold(t, read(t, w, 1), "reset (new)")
		_ = w.Close()
		time.Sleep(time.Minute)

		if n := looked.Load(); n > 4_000 {
			t.Errorf("%d were looked at for who has gone", n)
		}
	})
}

// counting are house rules that count what they are asked about.
type counting struct {
	houseRules
	asked *atomic.Int64
}

func (c counting) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	c.asked.Add(1)
	return c.houseRules.Read(id, e)
}

// Without limits nobody is told of any.
func TestNoLimits(t *testing.T) {
	ask := limited(t, admission.Limits{})
	for range 100 {
		resp := ask("", "x", "GET", "/ad/l")
		if resp.StatusCode != 200 || resp.Header.Get("RateLimit") != "" || resp.Header.Get("RateLimit-Policy") != "" {
			t.Fatalf("%d, %v", resp.StatusCode, resp.Header)
		}
	}
}

// A caller that goes on beyond its rate has few of its tokens verified, from one address; so has a
// domain, whatever identities it has. Others are verified as before, from there too.
//
// Requirement: SEC-001
func TestTokensBeyondTheRateAreNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verified := 0
		named := func(r *http.Request) directory.Identity {
			id, _ := directory.ParseIdentity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			return id
		}

		s := newTestServer(t, func(cfg *Config) {
			whole(cfg)
			cfg.Limits = admission.Limits{admission.Reads: 1} // a burst of 10, of a domain 20
			cfg.Claimed = named
			cfg.Identify = func(r *http.Request) (request.Credential, error) {
				verified++
				return request.Credential{Identity: named(r), Method: "bearer", Token: true}, nil
			}
		})

		send := func(count int, identity func(int) string, address string) (answers map[int]int, checked int) {
			answers = map[int]int{}
			before := verified

			for n := range count {
				r := httptest.NewRequest(http.MethodGet, "https://ad.alpha.test:8400/ad/l", nil)
				r.RequestURI, r.RemoteAddr = "/ad/l", address
				r.Header.Set("Authorization", "Bearer "+identity(n))

				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				answers[w.Code]++
			}

			return answers, verified - before
		}

		const here, there = "192.0.2.1:1000", "192.0.2.2:1000"

		ada := func(int) string { return "spiffe://alpha.test/agent/ada" }
		if answers, checked := send(1000, ada, here); answers[200] != 10 || answers[429] != 990 || checked != 210 {
			t.Errorf("%v, with %d tokens verified; want 10 of the burst and 200 beyond", answers, checked)
		}

		bob := func(int) string { return "spiffe://alpha.test/agent/bob" }
		if answers, checked := send(10, bob, here); answers[200] != 10 || checked != 10 {
			t.Errorf("another caller at that address: %v, %d", answers, checked)
		}

		if answers, checked := send(10, ada, there); answers[429] != 10 || checked != 10 {
			t.Errorf("the caller at another address: %v, %d", answers, checked)
		}

		minted := func(n int) string { return fmt.Sprintf("spiffe://beta.test/agent/%d", n) }
		if answers, checked := send(1000, minted, here); answers[200] != 20 || answers[429] != 980 || checked != 220 {
			t.Errorf("a domain's thousand identities: %v, with %d tokens verified", answers, checked)
		}

		time.Sleep(11 * time.Second)

		if answers, checked := send(10, ada, here); answers[200] != 10 || checked != 10 {
			t.Errorf("after a while: %v, %d", answers, checked)
		}
	})
}

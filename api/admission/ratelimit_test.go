package admission_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// at returns a caller of a domain, identified in some way.
func at(t *testing.T, domain, path, method string) admission.Caller {
	t.Helper()

	id, err := directory.ParseIdentity("spiffe://" + domain + path)
	must(t, err)

	caller := admission.Caller{Identity: id, Method: method, Party: limit.Caller{Kind: limit.Own, ID: id.String()}}
	if domain != "alpha.test" {
		caller.Party.Kind = limit.Foreign
		caller.Party.Group = domain
	}

	return caller
}

func pattern(t *testing.T, text string) directory.IdentityPattern {
	t.Helper()

	p, err := directory.ParseIdentityPattern(text)
	must(t, err)

	return p
}

// atOnce returns how many requests a caller may make now; 50 is any number.
func atOnce(l *admission.Limiter, caller admission.Caller, class admission.Class) int {
	for n := range 50 {
		if l.Pace(http.Header{}, caller, class) != nil {
			return n
		}
	}

	return 50
}

// A caller has the limit of the first terms that cover it and limit the class, in a bucket of its
// own, and those for all otherwise. New limits hold at once, and give nothing back.
//
// Requirement: AD-041, AI-016
func TestTheFirstTermsThatCoverACallerApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents := pattern(t, "spiffe://alpha.test/agent/*")
		general := admission.Limits{admission.Reads: .1, admission.Public: .2, admission.Writes: 0}
		terms := []admission.CallerLimits{
			{Who: pattern(t, "spiffe://alpha.test/agent/ada"), Limits: admission.Limits{admission.Reads: .2}},
			{By: []string{admission.MethodNone}, Limits: admission.Limits{admission.Reads: .3}},
			{Who: agents, By: []string{"wpt"}, Limits: admission.Limits{admission.Reads: .4}},
			{Who: agents, Limits: admission.Limits{admission.Reads: 0, admission.Operations: .5}},
		}
		limiter := admission.NewLimiter(general, terms)
		stranger := admission.Caller{Party: limit.StrangerAt("192.0.2.1:1")}

		for _, x := range []struct {
			caller admission.Caller
			class  admission.Class
			want   int
		}{
			{at(t, "alpha.test", "/agent/ada", "mtls"), admission.Reads, 2},
			{at(t, "alpha.test", "/agent/ada", "wpt"), admission.Reads, 0}, // the same bucket
			{at(t, "alpha.test", "/agent/ada", "mtls"), admission.Operations, 5},
			{at(t, "alpha.test", "/agent/bob", "wpt"), admission.Reads, 4},
			{at(t, "alpha.test", "/agent/bob", "mtls"), admission.Reads, 50},
			{at(t, "alpha.test", "/agent/bob", "mtls"), admission.Queries, 50},
			{at(t, "alpha.test", "/agent/bob", "mtls"), admission.Writes, 50},
			{at(t, "alpha.test", "/client/eve", "mtls"), admission.Reads, 1},
			{at(t, "alpha.test", "/client/eve", "mtls"), admission.Public, 2},
			{stranger, admission.Reads, 3},
			{at(t, "beta.test", "/1", "mtls"), admission.Reads, 1},
			{at(t, "beta.test", "/2", "mtls"), admission.Reads, 1},
			{at(t, "beta.test", "/3", "mtls"), admission.Reads, 0}, // a domain has twice the limit of one
			{at(t, "beta.test", "/3", "mtls"), admission.Public, 2},
		} {
			if got := atOnce(limiter, x.caller, x.class); got != x.want {
				t.Errorf("%s by %s has %d %s at once, want %d", x.caller.Identity, x.caller.Method, got, x.class,
					x.want)
			}
		}

		if got := limiter.Callers(); len(got) != len(terms) || got[0].Who != terms[0].Who {
			t.Errorf("the limits of callers are %+v", got)
		}

		limiter.Set(admission.Limits{admission.Reads: 1}, nil)

		for caller, want := range map[string]int{"/client/eve": 0, "/agent/new": 10, "/agent/ada": 10} {
			if got := atOnce(limiter, at(t, "alpha.test", caller, "mtls"), admission.Reads); got != want {
				t.Errorf("by new limits %s has %d reads at once, want %d", caller, got, want)
			}
		}
	})
}

// Answers say the quota, what is left, and when there is more; those that anyone may keep don't. A
// refusal names the policy, and says the same time.
//
// Requirement: AD-041
func TestAnswersSayWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller := at(t, "alpha.test", "/agent/ada", "mtls")
		limiter := admission.NewLimiter(admission.Limits{admission.Reads: .2, admission.Public: .1}, nil)

		for i, x := range []struct {
			class               admission.Class
			later               time.Duration
			policy, left, retry string
		}{
			{admission.Reads, 0, `"reads";q=2;w=10`, `"reads";r=1;t=5`, "0"},
			{admission.Reads, 0, `"reads";q=2;w=10`, `"reads";r=0;t=10`, "0"},
			{admission.Reads, 2 * time.Second, `"reads";q=2;w=10`, `"reads";r=0;t=3`, "3"},
			{admission.Reads, 3 * time.Second, `"reads";q=2;w=10`, `"reads";r=0;t=10`, "0"},
			{admission.Public, 0, "", "", "0"},
			{admission.Public, 0, `"public";q=1;w=10`, `"public";r=0;t=10`, "10"},
			{admission.Queries, 0, "", "", "0"},
		} {
			time.Sleep(x.later)

			header, retry := http.Header{}, 0

			err := limiter.Pace(header, caller, x.class)
			if refusal := (*problem.Refusal)(nil); errors.As(err, &refusal) {
				retry = refusal.Retry

				if m := refusal.Members; len(m) != 1 || m[0].Name != "violated-policies" ||
					string(m[0].Value) != fmt.Sprintf("[%q]", x.class) ||
					directory.ProblemOf(err) != directory.RateLimited {
					t.Errorf("%d: the refusal is %v with %s", i, err, m)
				}
			}

			if header.Get("RateLimit-Policy") != x.policy || header.Get("RateLimit") != x.left ||
				fmt.Sprint(retry) != x.retry {
				t.Errorf("%d: %v, retry after %d; want %+v", i, header, retry, x)
			}
		}
	})
}

// A request that is worth many takes as many, and no more than there can be.
//
// Requirement: AD-041
func TestARequestMayBeWorthMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ada := at(t, "alpha.test", "/agent/ada", "mtls")
		limiter := admission.NewLimiter(admission.Limits{admission.Reads: 1}, nil)

		for i, x := range []struct {
			class   admission.Class
			more    int
			refused bool
			left    int
		}{
			{admission.Reads, 0, false, 9},
			{admission.Reads, -5, false, 8},
			{admission.Reads, 3, false, 4},
			{admission.Reads, 4, true, 3},
			{admission.Queries, 1000, false, 0},
		} {
			header := http.Header{}
			must(t, limiter.Pace(header, ada, admission.Reads))

			if err := limiter.PaceMore(ada, x.class, x.more); (err != nil) != x.refused {
				t.Errorf("%d: %d more: %v", i, x.more, err)
			}
		}

		time.Sleep(10 * time.Second)

		must(t, limiter.Pace(http.Header{}, ada, admission.Reads))

		if err := limiter.PaceMore(ada, admission.Reads, 1000); err != nil {
			t.Errorf("all that a full bucket has: %v", err)
		}

		if n := atOnce(limiter, ada, admission.Reads); n != 0 {
			t.Errorf("%d are left of it", n)
		}
	})
}

// A lookup pays for what it looks at, up to the whole quota, and ends when that is used up or its
// client has gone. One of a stream waits instead.
//
// Requirement: AD-041
func TestALookupPaysForWhatItLooksAt(t *testing.T) {
	const each = 1000 // registrations for a request

	limits := admission.Limits{admission.Reads: 1} // 10 at once

	for name, x := range map[string]struct {
		paid, looked, step, left int
		unlimited, gone, ends    bool
	}{
		"a little":                {looked: each - 1, step: 1, left: 10},
		"one more request":        {looked: each, step: 100, left: 9},
		"steps of many":           {looked: 3 * each, step: 3 * each, left: 7},
		"never more than a quota": {looked: 100 * each, step: each, left: 1},
		"more than is left":       {paid: 8, looked: 5 * each, step: each, ends: true},
		"without limit":           {looked: 100 * each, step: each, left: 50, unlimited: true},
		"whose client has gone":   {looked: 10, step: 10, left: 10, gone: true, ends: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			caller := at(t, "alpha.test", "/agent/ada", "mtls")

			limiter := admission.NewLimiter(limits, nil)
			if x.unlimited {
				limiter.Set(nil, nil)
			}

			for range x.paid {
				_ = limiter.Pace(http.Header{}, caller, admission.Reads)
			}

			ctx, leave := context.WithCancel(t.Context())
			if x.gone {
				leave()
			}

			defer leave()

			var query index.Query

			spent := limiter.Spend(ctx, caller, admission.Reads, &query)
			goesOn := true

			for looked := 0; looked < x.looked && goesOn; looked += x.step {
				goesOn = query.Charge(x.step)
			}

			err := spent()
			if goesOn == x.ends || (err != nil) != x.ends || errors.Is(err, context.Canceled) != x.gone {
				t.Errorf("%s: goes on %t, %v", name, goesOn, err)
			}

			if x.ends && !x.gone {
				var refusal *problem.Refusal
				if !errors.As(err, &refusal) || refusal.Retry != 10 || !strings.Contains(err.Error(),
					"10 requests in 10 s") ||
					!strings.Contains(err.Error(), "each 1000 registrations") {
					t.Errorf("%s: %+v", name, err)
				}
			}

			if got := atOnce(limiter, caller, admission.Reads); got != x.left {
				t.Errorf("%s: %d requests are left, want %d", name, got, x.left)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		caller := at(t, "alpha.test", "/agent/ada", "mtls")
		limiter := admission.NewLimiter(limits, nil)
		ctx, leave := context.WithCancel(t.Context())
		spend := limiter.SpendSlowly(ctx, caller, admission.Reads)
		began := time.Now()

		for _, x := range []struct {
			looked int
			took   time.Duration // since the beginning
		}{{each - 1, 0}, {1, 0}, {9 * each, 0}, {each / 2, 0}, {each / 2, time.Second}, {3 * each, 4 * time.Second}} {
			if !spend(x.looked) || time.Since(began) != x.took {
				t.Errorf("%d more after %s, want after %s", x.looked, time.Since(began), x.took)
			}
		}

		time.AfterFunc(2500*time.Millisecond, leave)

		if spend(100*each) || time.Since(began) != 6500*time.Millisecond {
			t.Errorf("goes on after its client, or not with it: %s", time.Since(began))
		}

		if free := limiter.SpendSlowly(t.Context(), caller, admission.Queries); !free(100 * each) {
			t.Error("a stream without limit ends")
		}
	})
}

// Who goes on beyond its rate from one network has few of its credentials verified there: a caller,
// or a domain that uses up the rate of all its callers together.
//
// Requirement: SEC-001
func TestCredentialsBeyondTheRateAreNotVerified(t *testing.T) {
	here, there := limit.StrangerAt("[2001:db8:1::1]:1"), limit.StrangerAt("192.0.2.2:1")
	ada, bob := at(t, "alpha.test", "/agent/ada", "bearer"), at(t, "alpha.test", "/agent/bob", "bearer")
	one, two := at(t, "beta.test", "/1", "bearer"), at(t, "beta.test", "/2", "bearer")
	three := at(t, "gamma.test", "/3", "bearer")

	for name, x := range map[string]struct {
		spend   []admission.Caller // their whole rate, one after the other
		over    admission.Caller
		class   admission.Class
		refused []admission.Caller
	}{
		"a caller":             {[]admission.Caller{ada}, ada, admission.Reads, []admission.Caller{ada}},
		"a domain":             {[]admission.Caller{one, two}, three, admission.Reads, nil},
		"a caller of a domain": {[]admission.Caller{one}, one, admission.Reads, []admission.Caller{one}},
		"all of a domain":      {[]admission.Caller{one}, two, admission.Reads, []admission.Caller{one, two}},
		"without limit":        {[]admission.Caller{ada}, ada, admission.Writes, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := admission.NewLimiter(admission.Limits{admission.Reads: 1}, nil)

			for _, caller := range x.spend {
				atOnce(limiter, caller, admission.Reads)
			}

			if name == "a domain" { // its rate isn't used up: there is nothing to be beyond
				x.refused = []admission.Caller{three, at(t, "gamma.test", "/4", "bearer")}
			}

			for n := range 200 {
				if err := limiter.Attempt(here, x.over.Party, x.class); err != nil {
					t.Fatalf("%s: attempt %d: %v", name, n, err)
				}

				limiter.Exceeded(here, x.over, x.class)
			}

			for _, caller := range append([]admission.Caller{ada, bob, one, two, three}, x.refused...) {
				want := false
				for _, refused := range x.refused {
					want = want || refused == caller
				}

				err := limiter.Attempt(here, caller.Party, x.class)
				if (err != nil) != want {
					t.Errorf("%s: %s is refused: %v", name, caller.Identity, err)
				}

				if want && problem.Explain(err).Retry != 1 {
					t.Errorf("%s: %+v", name, err)
				}

				for where, err := range map[string]error{
					"from elsewhere":    limiter.Attempt(there, caller.Party, x.class),
					"of another class":  limiter.Attempt(here, caller.Party, admission.Operations),
					"that names no one": limiter.Attempt(here, limit.Caller{}, x.class),
				} {
					if err != nil {
						t.Errorf("%s: one %s: %v", name, where, err)
					}
				}
			}

			time.Sleep(time.Second)

			if err := limiter.Attempt(here, x.over.Party, x.class); err != nil {
				t.Errorf("%s: a second later: %v", name, err)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		limiter := admission.NewLimiter(nil, nil)

		for n := range 200 {
			if err := limiter.Attempt(there, limit.Caller{}, admission.Reads); err != nil {
				t.Fatalf("attempt %d: %v", n, err)
			}

			limiter.Failed(there)
		}

		err := limiter.Attempt(there, ada.Party, admission.Reads)
		if directory.ProblemOf(err) != directory.RateLimited || problem.Explain(err).Retry != 1 {
			t.Errorf("after 200 that don't hold: %v", err)
		}

		time.Sleep(time.Second)

		if err := limiter.Attempt(there, ada.Party, admission.Reads); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

var must = directorytest.Must

package limit_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/limit"
)

func stranger(n int) limit.Caller {
	return limit.Caller{Kind: limit.Stranger, ID: fmt.Sprint("address ", n)}
}

func foreign(domain string, n int) limit.Caller {
	return limit.Caller{Kind: limit.Foreign, ID: fmt.Sprintf("%s/agent/%d", domain, n), Group: domain}
}

func own(n int) limit.Caller { return limit.Caller{Kind: limit.Own, ID: fmt.Sprint("own/agent/", n)} }

// takeAll takes places one by one, as callers that come in turn, until each was refused. It
// returns how many were taken and the scope of the last refusal.
func takeAll(s *limit.Shares, callers ...limit.Caller) (taken int64, scope limit.Scope) {
	for refused := map[string]bool{}; len(refused) < len(callers); {
		for _, caller := range callers {
			_, err := s.Take(caller, 1)
			if err != nil {
				refused[caller.ID] = true
				scope = err.Scope

				continue
			}

			taken++
		}
	}

	return taken, scope
}

// many returns a number of callers.
func many(n int, of func(int) limit.Caller) (callers []limit.Caller) {
	for i := range n {
		callers = append(callers, of(i))
	}

	return callers
}

func betas(i int) limit.Caller { return foreign("beta.test", i) }

// The numbers of rule S3, for a pool of 256 places.
//
// Requirement: SEC-004
func TestAPoolIsDivided(t *testing.T) {
	ops := func(id string) bool { return id == own(0).ID }
	domains := func(i int) limit.Caller { return foreign(fmt.Sprint("d", i%100, ".test"), i) }

	for _, x := range []struct {
		name    string
		callers []limit.Caller
		want    int64
		scope   limit.Scope
	}{
		{"one address", many(1, stranger), 16, limit.ScopeCaller},
		{"all strangers", many(1000, stranger), 64, limit.ScopeStrangers},
		{"one foreign identity", many(1, betas), 16, limit.ScopeCaller},
		{"one foreign domain", many(1000, betas), 32, limit.ScopeGroup},
		{"all foreign domains", many(1000, domains), 128, limit.ScopeForeign},
		{"one own identity", many(1, own), 32, limit.ScopeCaller},
		{"all own identities but operators", many(1000, own)[1:], 256 - 8, limit.ScopeAll},
	} {
		s := limit.NewShares(limit.Divide(256, ops))
		if taken, scope := takeAll(s, x.callers...); taken != x.want || scope != x.scope || s.Held() != x.want {
			t.Errorf("%s: %d taken, then refused by the share of %s; want %d, %s", x.name, taken, scope, x.want,
				x.scope)
		}
	}
}

// Whatever the others hold, the own domain has its eighth and operators have theirs.
//
// Requirement: SEC-004
func TestPlacesAreReserved(t *testing.T) {
	operator := own(-1)
	s := limit.NewShares(limit.Divide(256, func(id string) bool { return id == operator.ID }))

	takeAll(s, many(1000, own)[:6]...) // 192 of 256

	others, _ := takeAll(s, append(many(1000, stranger), many(1000, betas)...)...)
	if others != 24 {
		t.Errorf("others have %d places while the own domain has 192 of 256; want 24", others)
	}

	if taken, _ := takeAll(s, many(1000, own)[10:]...); taken != 32 {
		t.Errorf("%d places are left for the own domain, want an eighth", taken)
	}

	// A caller of another kind is no operator, whatever it is called.
	for _, kind := range []limit.Kind{limit.Stranger, limit.Foreign} {
		if taken, _ := takeAll(s, limit.Caller{Kind: kind, ID: operator.ID}); taken != 0 {
			t.Errorf("%d places of operators are taken by a caller of kind %v", taken, kind)
		}
	}

	if taken, _ := takeAll(s, operator); taken != 8 {
		t.Errorf("%d places are left for operators, want 8", taken)
	}

	if s.Held() != 256 {
		t.Errorf("%d of 256 are held", s.Held())
	}
}

// A network of strangers has twice the share of one of its addresses.
func TestANetworkIsOneParty(t *testing.T) {
	s := limit.NewShares(limit.Divide(256, nil))

	taken, scope := takeAll(s, many(100, func(i int) limit.Caller {
		caller := stranger(i)
		caller.Group = "2001:db8::/48"

		return caller
	})...)
	if taken != 32 || scope != limit.ScopeGroup {
		t.Errorf("%d taken, then %s", taken, scope)
	}
}

// An IPv6 caller is its /64, and an IPv4 one the same however it is written.
//
// Requirement: OPS-020
func TestStrangersAreAddresses(t *testing.T) {
	at := limit.StrangerAt
	if at("[2001:db8::1]:1") != at("[2001:db8::2:1]:2") || at("[2001:db8::1]:1").ID == at("[2001:db8:0:1::1]:1").ID {
		t.Error("a /64 is not one address")
	}

	if at("[2001:db8::1]:1").Group != at("[2001:db8:0:1::1]:1").Group ||
		at("[2001:db8::1]:1").Group == at("[2001:db8:1::1]:1").Group {
		t.Error("a /48 is not one network")
	}

	if at("[::ffff:192.0.2.1]:1") != at("192.0.2.1:7") || at("192.0.2.1:1") == at("192.0.2.2:1") ||
		at("192.0.2.1:1").Group != "" {
		t.Error("IPv4 addresses are not told apart")
	}
}

// The parts of a pool are those of the threat model.
//
// Requirement: SEC-004
func TestAPoolHasTheParts(t *testing.T) {
	want := limit.SharesConfig{
		Places: 1024, Strangers: 256, Network: 128, Address: 64, Foreign: 512, Domain: 128, ForeignID: 64, OwnID: 128,
		ForOwn: 128, ForOperators: 32,
	}

	if got := limit.Divide(1024, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A pool of a few places still serves every kind of caller.
func TestASmallPoolReservesNothing(t *testing.T) {
	for n := int64(1); n <= 16; n++ {
		for _, caller := range []limit.Caller{stranger(1), betas(1), own(1)} {
			if _, err := limit.NewShares(limit.Divide(n, nil)).Take(caller, 1); err != nil {
				t.Errorf("the first of %d places: %v", n, err)
			}
		}
	}
}

// Whatever is taken and released in any order and weight: the sum is right, no bound is
// exceeded, and a pool that nobody uses takes everyone again.
//
// Requirement: SEC-004
func TestSharesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type use struct {
			caller  limit.Caller
			places  int64
			release func()
		}

		n := rapid.Int64Range(1, 400).Draw(t, "places")
		cfg := limit.Divide(n, func(id string) bool { return id == own(0).ID })
		s := limit.NewShares(cfg)

		var uses []use

		held := func(counts func(limit.Caller) bool) (sum int64) {
			for _, u := range uses {
				if counts(u.caller) {
					sum += u.places
				}
			}

			return sum
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				i := rapid.IntRange(0, 3).Draw(t, "who")
				caller := []limit.Caller{stranger(i), betas(i), foreign("gamma.test", i), own(i)}[rapid.IntRange(0,
					3).Draw(t, "kind")]
				places := rapid.Int64Range(0, n/4+1).Draw(t, "weight")

				if release, refused := s.Take(caller, places); refused == nil {
					uses = append(uses, use{caller, places, release})
				} else if len(uses) == 0 && places == 1 {
					t.Fatalf("the first use is refused: %v", refused)
				}
			},
			"release": func(t *rapid.T) {
				if len(uses) == 0 {
					return
				}

				i := rapid.IntRange(0, len(uses)-1).Draw(t, "which")
				uses[i].release()
				uses[i].release() // twice is harmless
				uses = append(uses[:i], uses[i+1:]...)
			},
			"": func(t *rapid.T) {
				is := func(kind limit.Kind) func(limit.Caller) bool {
					return func(c limit.Caller) bool { return c.Kind == kind }
				}

				if all := held(func(limit.Caller) bool { return true }); all != s.Held() || all > n {
					t.Fatalf("%d of %d are held, the pool says %d", all, n, s.Held())
				}

				if sum := held(is(limit.Stranger)); sum > cfg.Strangers {
					t.Fatalf("strangers hold %d", sum)
				}

				if sum := held(is(limit.Foreign)); sum > cfg.Foreign {
					t.Fatalf("foreign domains hold %d", sum)
				}

				if sum := held(func(c limit.Caller) bool { return c.Group == "beta.test" }); sum > cfg.Domain {
					t.Fatalf("a foreign domain holds %d", sum)
				}
			},
		})
	})
}

// A use that waits has its place once one comes back that its caller may have, before a use that came
// later, and a use that is no longer wanted takes none.
//
// Requirement: SEC-004
func TestAUseWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares := limit.NewShares(limit.Divide(16, nil)) // of which one domain may have two
		first, _ := shares.Take(betas(1), 1)
		second, _ := shares.Take(betas(2), 1)

		got := make(chan func(), 3)
		wait := func(ctx context.Context, caller limit.Caller) {
			go func() {
				if release, err := shares.Wait(ctx, caller); err == nil {
					got <- release
				}
			}()
			synctest.Wait()
		}

		gone, cancel := context.WithCancel(t.Context())
		wait(gone, betas(3))
		wait(t.Context(), betas(4))
		wait(t.Context(), own(1))

		if len(got) != 1 || shares.Held() != 3 {
			t.Fatalf("%d of three that wait have a place, want that of the own domain", len(got))
		}

		cancel()
		synctest.Wait()
		first()
		synctest.Wait()

		if len(got) != 2 || shares.Held() != 3 {
			t.Errorf("%d have a place once one came back; %d are taken", len(got), shares.Held())
		}

		second()
		(<-got)()
		(<-got)()
		synctest.Wait()

		if shares.Held() != 0 {
			t.Errorf("%d places are taken in the end", shares.Held())
		}
	})
}

package peering_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/peering"
)

var beta = spiffeid.RequireTrustDomainFromString("beta.test")

// A log has the agreements of a domain without a network. It has no leader until elected, and
// before each of its next changes another node makes one of its own.
type log struct {
	all     []directory.Peering
	elected time.Time
	others  []func(*directory.Peering)
	orders  []*directory.OperatorRequest // of the changes
}

func (l *log) Settled() bool                 { return true }
func (l *log) Agreed() <-chan struct{}       { return nil }
func (l *log) Peerings() []directory.Peering { return slices.Clone(l.all) }

func (l *log) Linearize(context.Context) error {
	if time.Now().Before(l.elected) {
		return directory.Refuse(directory.Unavailable, "no leader")
	}

	return nil
}

func (l *log) EndPeering(ctx context.Context, was, next directory.Peering, _ *directory.OperatorRequest) error {
	return l.AmendPeering(ctx, was, next)
}

func (l *log) AmendPeering(ctx context.Context, was, next directory.Peering) error {
	l.orders = append(l.orders, directory.OperatorRequestOf(ctx))
	i := slices.IndexFunc(l.all, func(p directory.Peering) bool { return p.Domain == next.Domain })

	if i >= 0 && len(l.others) > 0 {
		l.others[0](&l.all[i])
		l.others = l.others[1:]
	}

	switch {
	case i < 0 && was.State == "":
		l.all = append(l.all, next)
	case i < 0 || !l.all[i].Equal(was):
		return directory.Refuse(directory.Conflict, "another agreement")
	default:
		l.all[i] = next
	}

	return nil
}

// Bundles that accept anything.
type bundles map[spiffeid.TrustDomain]bool

func (b bundles) Set(td spiffeid.TrustDomain, _ []byte) error { b[td] = true; return nil }
func (b bundles) Remove(td spiffeid.TrustDomain)              { delete(b, td) }

func load(t *testing.T, store peering.Consensus, dir string) (*peering.Agreements, bundles) {
	t.Helper()

	held := bundles{}

	return loadWith(t, store, dir, func(c *peering.Config) { c.Bundles = held }), held
}

// loadWith is load with parts of a node that change sets: without it every bundle is proven, and no node is reached.
func loadWith(t *testing.T, store peering.Consensus, dir string, change func(*peering.Config)) *peering.Agreements {
	t.Helper()

	cfg := peering.Config{
		Dir: dir, Bundles: bundles{}, Logger: slog.New(slog.DiscardHandler), Changed: func() {},
		Proven: func(spiffeid.TrustDomain, []byte) bool { return true },
		Client: func(directory.Peering) (*http.Client, func(), error) { return nil, nil, errors.New("no network") },
		Removal: func(spiffeid.TrustDomain) *directory.OperatorRequest {
			return &directory.OperatorRequest{Proof: "a.b.c"}
		},
		ReplaceFile: func(path string, contents []byte, mode fs.FileMode) error {
			return os.WriteFile(path, contents, mode)
		},
	}
	change(&cfg)

	agreements, err := peering.Load(cfg)
	must(t, err)

	agreements.Begin(store)

	return agreements
}

// starts runs a loop in a bubble until the returned function ends it.
func starts(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())

	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	synctest.Wait()

	return func() { cancel(); running.Wait() }
}

func active() directory.Peering {
	return directory.Peering{Domain: beta, State: directory.PeeringActive, Addresses: []string{"https://beta.test"}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A former peer is shown until it has acknowledged the end, and for a day if it doesn't or if it
// ended the agreement itself. After a restart it is shown no more.
//
// Requirement: MESH-025
func TestAFormerPeerIsShownUntilItKnows(t *testing.T) {
	acknowledges := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
	}
	isAway := func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }
	fails := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
	}

	// To another node, once the peer has taken the farewell of the first.
	knowsNoMore := func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	}

	for name, c := range map[string]struct {
		peer   roundTripper
		byPeer bool
		shown  time.Duration
	}{
		"acknowledged":      {acknowledges, false, 0},
		"away":              {isAway, false, 24 * time.Hour},
		"failing":           {fails, false, 24 * time.Hour},
		"told by another":   {knowsNoMore, false, 0},
		"ended by the peer": {acknowledges, true, 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &log{all: []directory.Peering{active()}}
			dir := t.TempDir()
			agreements := loadWith(t, store, dir, func(cfg *peering.Config) {
				cfg.Client = func(directory.Peering) (*http.Client, func(), error) {
					return &http.Client{Transport: c.peer}, func() {}, nil
				}
			})

			starts(t, agreements.Run)()
			store.all[0] = store.all[0].Ended(c.byPeer)

			defer starts(t, agreements.Run)()

			if shown := len(agreements.Shown()) == 1; shown != (c.shown > 0) {
				t.Errorf("%s: shown at first: %t", name, shown)
			}

			time.Sleep(max(0, c.shown-time.Minute))

			if shown := len(agreements.Shown()) == 1; shown != (c.shown > 0) {
				t.Errorf("%s: shown for %v: %t", name, c.shown, shown)
			}

			time.Sleep(2 * time.Minute)

			if len(agreements.Shown()) != 0 {
				t.Errorf("%s: shown for over %v", name, c.shown)
			}

			again, _ := load(t, store, dir)
			defer starts(t, again.Run)()

			if len(again.Shown()) != 0 {
				t.Errorf("%s: shown after a restart", name)
			}
		})
	}
}

// A change of an agreement waits for a leader, for as long as a write does.
func TestAChangeWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &log{all: []directory.Peering{active()}, elected: time.Now().Add(4 * time.Second)}
		agreements, _ := load(t, store, t.TempDir())

		if err := agreements.Export(t.Context(), beta, true); err != nil {
			t.Errorf("with a leader after 4 s: %v", err)
		}

		store.elected = time.Now().Add(time.Minute)

		if err := agreements.Export(t.Context(), beta, false); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("without a leader: %v", err)
		}
	})
}

// A change keeps the changes that other nodes make at the same time.
func TestNoChangeIsLost(t *testing.T) {
	store := &log{all: []directory.Peering{active()}, others: []func(*directory.Peering){
		func(p *directory.Peering) { p.Gossip = []string{"beta.test:7946"} },
		func(p *directory.Peering) { p.Addresses = []string{"https://other.beta.test"} },
	}}
	agreements, _ := load(t, store, t.TempDir())

	must(t, agreements.Export(t.Context(), beta, true))

	got, _ := agreements.With(beta)
	if !got.Mesh || len(got.Gossip) != 1 || got.Addresses[0] != "https://other.beta.test" {
		t.Errorf("the agreement is %+v", got)
	}
}

// An offer that the other domain refuses ends the peering, and one that no node answered
// leaves it pending, so that it can be accepted again. The operator's request is for the first change alone.
//
// Requirement: MESH-024
func TestAnOfferThatFails(t *testing.T) {
	invited := active()
	invited.State = directory.PeeringPending

	for _, c := range []struct {
		answer error
		want   directory.PeeringState
	}{
		{&peering.RefusedError{Err: errors.New("no")}, directory.PeeringTerminated},
		{errors.New("no route"), directory.PeeringPending},
		{nil, directory.PeeringActive},
	} {
		store, order := &log{}, &directory.OperatorRequest{Proof: "a.b.c"}
		agreements, _ := load(t, store, t.TempDir())
		asked := directory.WithOperatorRequest(t.Context(), order)
		err := agreements.Accept(asked, invited, func(context.Context) (directory.Peering, error) {
			return invited, c.answer
		})

		if got, _ := agreements.With(beta); (err == nil) != (c.answer == nil) || got.State != c.want {
			t.Errorf("%v: %v, and the peering is %s, want %s", c.answer, err, got.State, c.want)
		}

		for i, used := range store.orders {
			if (used == order) != (i == 0) {
				t.Errorf("%v: change %d has the request %+v", c.answer, i, used)
			}
		}
	}
}

// A peer that was frozen while it was asked is not begun anew: its word would end the freeze.
func TestAFrozenPeerIsNotBegunAnew(t *testing.T) {
	for _, state := range []directory.PeeringState{directory.PeeringActive, directory.PeeringFrozen} {
		now, invited := active(), active()
		now.State, invited.State = state, directory.PeeringPending

		agreements, _ := load(t, &log{all: []directory.Peering{now}}, t.TempDir())
		err := agreements.Renew(t.Context(), invited, invited)

		if got, _ := agreements.With(beta); (err == nil) != (state == directory.PeeringActive) || got.State != state {
			t.Errorf("%s: %v, and the peering is %s", state, err, got.State)
		}
	}
}

// A node that restarts knows its peers and their bundles before it has read its domain's log;
// a former peer's file is removed.
func TestAgreementsAreKeptOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		store := &log{all: []directory.Peering{active()}}

		follow := func() bundles {
			agreements, held := load(t, store, dir)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()

			agreements.Run(ctx)

			return held
		}
		follow()

		if node, held := load(t, &countedLog{unsettled: true}, dir); !held[beta] || !node.IsActive(beta) {
			t.Error("after a restart the peer is not known, or its bundle is not in force")
		}

		store.all[0].State = directory.PeeringTerminated

		if held := follow(); held[beta] {
			t.Error("the bundle of a former peer is in force")
		}

		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 0 {
			t.Errorf("files of a former peer: %v", files)
		}
	})
}

// The bundle endpoints of active and frozen peers are asked, and of no others.
//
// Requirement: TRUST-004
func TestBundlesOfEndedPeeringsAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint := directory.BundleEndpoint{URL: "https://ad.beta.test/bundle"}

		var (
			mu    sync.Mutex
			asked []string
		)

		keeper := peering.BundleKeeper{
			Logger: slog.New(slog.DiscardHandler),
			Peerings: func() (all []directory.Peering) {
				for name, state := range map[string]directory.PeeringState{
					"active.test": directory.PeeringActive, "frozen.test": directory.PeeringFrozen,
					"pending.test": directory.PeeringPending, "ended.test": directory.PeeringTerminated,
				} {
					all = append(all, directory.Peering{
						Domain: spiffeid.RequireTrustDomainFromString(name), State: state, Endpoint: endpoint,
					})
				}

				// This one's bundle was given by hand.
				return append(all, directory.Peering{Domain: beta, State: directory.PeeringActive})
			},
			Fetch: func(_ context.Context, of directory.Peering) (peering.FetchedBundle, error) {
				mu.Lock()
				asked = append(asked, of.Domain.Name())
				mu.Unlock()

				time.Sleep(time.Millisecond)

				return peering.FetchedBundle{Again: time.Hour}, nil
			},
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		keeper.Run(ctx)
		slices.Sort(asked)

		if !slices.Equal(asked, []string{"active.test", "frozen.test"}) {
			t.Errorf("the endpoints of %v are asked", asked)
		}
	})
}

// A changed endpoint is asked at the next look, and what the former one said doesn't count for it.
//
// Requirement: TRUST-004
func TestAChangedEndpointIsAskedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			url   atomic.Value
			fails atomic.Bool
			asked []string
		)

		url.Store("https://ad.beta.test/bundle")

		keeper := peering.BundleKeeper{
			Logger: slog.New(slog.DiscardHandler),
			Same:   func(_ spiffeid.TrustDomain, one, other []byte) bool { return bytes.Equal(one, other) },
			Peerings: func() []directory.Peering {
				return []directory.Peering{{Domain: beta, State: directory.PeeringActive,
					Endpoint: directory.BundleEndpoint{URL: url.Load().(string)}}}
			},
			Fetch: func(_ context.Context, of directory.Peering) (peering.FetchedBundle, error) {
				asked = append(asked, of.Endpoint.URL)

				if fails.Load() {
					return peering.FetchedBundle{}, errors.New("away")
				}

				return peering.FetchedBundle{JWKS: []byte("former"), Again: time.Hour}, nil
			},
		}

		ctx, cancel := context.WithCancel(t.Context())

		var running sync.WaitGroup
		running.Go(func() { keeper.Run(ctx) })
		time.Sleep(time.Minute)

		if !keeper.Found(beta, []byte("former")) {
			t.Error("the bundle of the endpoint isn't found")
		}

		fails.Store(true)
		url.Store("https://other.beta.test/bundle")
		time.Sleep(time.Minute / 2)
		cancel()
		running.Wait()

		if len(asked) < 2 || asked[1] != url.Load() || keeper.Found(beta, []byte("former")) {
			t.Errorf("asked are %v, and the former endpoint's bundle may count", asked)
		}
	})
}

// The leader takes a peer's bundle from another member only if it has found the same one at the
// endpoint itself. Otherwise it asks there soon, and not before its next round.
//
// Requirement: SEC-012, TRUST-004
func TestABundleIsConfirmedAtItsEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beta := spiffeid.RequireTrustDomainFromString("beta.test")
		at := directory.Peering{
			Domain: beta, State: directory.PeeringActive,
			Endpoint: directory.BundleEndpoint{URL: "https://ad.beta.test/bundle"},
		}
		asked := 0
		keeper := peering.BundleKeeper{
			Logger:   slog.New(slog.DiscardHandler),
			Peerings: func() []directory.Peering { return []directory.Peering{at} },
			Same:     func(_ spiffeid.TrustDomain, one, other []byte) bool { return string(one) == string(other) },
			Fetch: func(context.Context, directory.Peering) (peering.FetchedBundle, error) {
				asked++

				return peering.FetchedBundle{JWKS: []byte("new"), Again: time.Hour}, nil
			},
		}

		if err := keeper.Confirm(beta, []byte("new")); directory.ProblemOf(err) != directory.Conflict {
			t.Errorf("before the endpoint was asked: %v", err)
		}

		go keeper.Run(t.Context())
		synctest.Wait()

		if err := keeper.Confirm(beta, []byte("new")); err != nil || !keeper.Found(beta, []byte("new")) {
			t.Errorf("the bundle of the endpoint: %v", err)
		}

		for range 100 {
			if err := keeper.Confirm(beta, []byte("forged")); directory.ProblemOf(err) != directory.Conflict {
				t.Errorf("another bundle: %v", err)
			}
		}

		for _, later := range []time.Duration{15 * time.Second, 10 * time.Minute} {
			time.Sleep(later)
			synctest.Wait()

			if asked != 2 {
				t.Errorf("after %s the endpoint was asked %d times, want twice", later, asked)
			}
		}
	})
}

// A panic on a peer's bundle is a failure of its endpoint, which is asked again.
//
// Requirement: FORM-006
func TestAPanicOnABundleIsAFailureOfItsEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beta := spiffeid.RequireTrustDomainFromString("beta.test")
		at := directory.Peering{
			Domain: beta, State: directory.PeeringActive,
			Endpoint: directory.BundleEndpoint{URL: "https://ad.beta.test/bundle"},
		}

		asked := 0
		keeper := peering.BundleKeeper{
			Logger:   slog.New(slog.DiscardHandler),
			Peerings: func() []directory.Peering { return []directory.Peering{at} },
			Fetch: func(context.Context, directory.Peering) (peering.FetchedBundle, error) {
				if asked++; asked == 1 {
					panic("planted")
				}

				return peering.FetchedBundle{JWKS: []byte("good"), Again: time.Hour}, nil
			},
		}

		go keeper.Run(t.Context())
		synctest.Wait()

		var contained *contain.Error
		if _, err := keeper.Endpoint(beta); !errors.As(err, &contained) {
			t.Errorf("after the panic: %v", err)
		}

		time.Sleep(2 * time.Minute)
		synctest.Wait()

		if fetched, err := keeper.Endpoint(beta); fetched.IsZero() || err != nil {
			t.Errorf("later: fetched at %s, %v", fetched, err)
		}
	})
}

// A member's proposal that comes while this node asks the endpoint, which had the bundle before, makes it ask
// again at once: the answer that is under way may be older.
//
// Requirement: SEC-012, TRUST-004
func TestAProposalDuringALookIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beta := spiffeid.RequireTrustDomainFromString("beta.test")
		at := directory.Peering{
			Domain: beta, State: directory.PeeringActive,
			Endpoint: directory.BundleEndpoint{URL: "https://ad.beta.test/bundle"},
		}

		var keeper *peering.BundleKeeper

		answer := "old"
		keeper = &peering.BundleKeeper{
			Logger:   slog.New(slog.DiscardHandler),
			Peerings: func() []directory.Peering { return []directory.Peering{at} },
			Same:     func(_ spiffeid.TrustDomain, one, other []byte) bool { return string(one) == string(other) },
			Fetch: func(context.Context, directory.Peering) (peering.FetchedBundle, error) {
				found := answer

				if answer == "old" {
					answer = "new"

					if keeper.Confirm(beta, []byte("new")) == nil {
						t.Error("confirmed before it was found")
					}
				}

				return peering.FetchedBundle{JWKS: []byte(found), Again: time.Hour}, nil
			},
		}

		go keeper.Run(t.Context())
		time.Sleep(15 * time.Second)
		synctest.Wait()

		if err := keeper.Confirm(beta, []byte("new")); err != nil {
			t.Error(err)
		}
	})
}

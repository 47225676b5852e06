package peering_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A countedLog counts the changes that are written, and fails them with err if that is set.
type countedLog struct {
	log

	mu        sync.Mutex // guards the agreements against put
	puts      int
	err       error
	unsettled bool
	changed   chan struct{}
}

func (l *countedLog) Peerings() []directory.Peering {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.log.Peerings()
}

// put is the change of another node.
func (l *countedLog) put(next directory.Peering) {
	l.mu.Lock()
	l.all = []directory.Peering{next}
	l.mu.Unlock()

	l.agree()
}

func (l *countedLog) Settled() bool           { return !l.unsettled }
func (l *countedLog) Agreed() <-chan struct{} { return l.changed }

func (l *countedLog) AmendPeering(ctx context.Context, was, next directory.Peering) error {
	l.puts++
	if l.err != nil {
		return l.err
	}

	return l.log.AmendPeering(ctx, was, next)
}

func (l *countedLog) EndPeering(ctx context.Context, was, next directory.Peering,
	farewell *directory.OperatorRequest) error {
	if farewell == nil || farewell.Proof != "peer's" {
		return errors.New("a farewell without its proof")
	}

	return l.AmendPeering(ctx, was, next)
}

// agree tells who follows the log that it has changed.
func (l *countedLog) agree() {
	changed := l.changed
	l.changed = make(chan struct{})
	close(changed)
}

// In each state an agreement takes the changes that lead from it, is refused the others, and is
// written only if it changes.
//
// Requirement: MESH-024, MESH-025
func TestWhatLeadsFromAStateToAnother(t *testing.T) {
	states := []directory.PeeringState{
		"", directory.PeeringPending, directory.PeeringActive, directory.PeeringFrozen, directory.PeeringTerminated,
	}

	const (
		no, conflict, same = "not-found", "conflict", "same"
		pending, active    = string(directory.PeeringPending), string(directory.PeeringActive)
		frozen, ended      = string(directory.PeeringFrozen), string(directory.PeeringTerminated)
	)

	until := time.Unix(1_800_000_000, 0)

	type change = func(context.Context, *peering.Agreements) error

	for name, x := range map[string]struct {
		change change
		want   [5]string // by state before: the state after, or a problem
	}{
		"invite": {func(ctx context.Context, a *peering.Agreements) error {
			return a.Invite(ctx, beta, directory.HashOf([]byte("secret")), until)
		}, [5]string{pending, pending, conflict, conflict, pending}},
		"accept": {func(ctx context.Context, a *peering.Agreements) error {
			return a.Accept(ctx, directory.Peering{Domain: beta, State: directory.PeeringPending, Mesh: true},
				func(context.Context) (directory.Peering, error) { return directory.Peering{Domain: beta}, nil })
		}, [5]string{active, active, conflict, conflict, active}},
		"put": {func(ctx context.Context, a *peering.Agreements) error {
			return a.Put(ctx, directory.Peering{Domain: beta, State: directory.PeeringActive, Until: 7})
		}, [5]string{active, active, active, active, active}},
		"export": {func(ctx context.Context, a *peering.Agreements) error { return a.Export(ctx, beta, true) },
			[5]string{no, pending, active, frozen, no}},
		"freeze": {func(ctx context.Context, a *peering.Agreements) error { return a.Freeze(ctx, beta) },
			[5]string{same, same, frozen, same, same}},
		"release": {func(ctx context.Context, a *peering.Agreements) error { return a.Release(ctx, beta) },
			[5]string{no, conflict, conflict, active, no}},
		"remove": {func(ctx context.Context, a *peering.Agreements) error { return a.Remove(ctx, beta) },
			[5]string{no, ended, ended, ended, ended}},
		"end by the peer": {func(ctx context.Context, a *peering.Agreements) error {
			return a.EndedByPeer(ctx, beta, &directory.OperatorRequest{Proof: "peer's"})
		}, [5]string{same, same, ended, ended, same}},
	} {
		for i, state := range states {
			store := &countedLog{}
			if state != "" {
				store.all = []directory.Peering{{Domain: beta, State: state, Import: directory.PeerRules{Records: 7}}}
			}

			was := store.Peerings()
			agreements, _ := load(t, store, t.TempDir())
			err := x.change(t.Context(), agreements)
			got, _ := agreements.With(beta)

			result, want := string(got.State), x.want[i]

			switch {
			case err != nil:
				result = string(directory.ProblemOf(err))
			case store.puts == 0:
				result = same
			}

			if result != want {
				t.Errorf("%s, from %q: %s, want %s: %v", name, state, result, want, err)
			}

			if changes := want != no && want != conflict && want != same; !changes &&
				(store.puts > 0 || !slices.EqualFunc(store.all, was, directory.Peering.Equal)) {
				t.Errorf("%s, from %q, changes the agreement to %+v", name, state, got)
			}

			if err == nil && got.ByPeer != (want == ended && name == "end by the peer") ||
				name == "export" && err == nil && !got.Mesh ||
				name == "invite" && want == pending && (got.Until != until.Unix() ||
					got.Secret != directory.HashOf([]byte("secret"))) {
				t.Errorf("%s, from %q: %+v", name, state, got)
			}

			// Rules stay when an agreement that hasn't ended is replaced, and end with it.
			if name == "put" && (got.Import.Records == 7) != (state != "" && state != directory.PeeringTerminated) ||
				name == "remove" && err == nil && got.Import.Records != 0 {
				t.Errorf("%s, from %q: the rules are %+v", name, state, got.Import)
			}
		}
	}
}

// A change that others precede is tried five times. Any other failure ends it.
func TestAChangeIsTriedFiveTimes(t *testing.T) {
	for name, x := range map[string]struct {
		others int
		err    error
		puts   int
		want   directory.Problem
	}{
		"none":       {0, nil, 1, ""},
		"four":       {4, nil, 5, ""},
		"many":       {50, nil, 5, directory.Conflict},
		"no leader":  {0, directory.Refuse(directory.Unavailable, "no leader"), 1, directory.Unavailable},
		"a conflict": {0, directory.Refuse(directory.Conflict, "for good"), 5, directory.Conflict},
	} {
		store := &countedLog{err: x.err}
		store.all = []directory.Peering{active()}

		for n := range x.others {
			store.others = append(store.others, func(p *directory.Peering) { p.Gossip = []string{fmt.Sprint(n)} })
		}

		agreements, _ := load(t, store, t.TempDir())

		err := agreements.Export(t.Context(), beta, true)
		if store.puts != x.puts || (err != nil) != (x.want != "") || err != nil &&
			directory.ProblemOf(err) != x.want {
			t.Errorf("%s: %d tries, %v", name, store.puts, err)
		}
	}
}

// Of two domains each has its own answers, and only an active one is a peer in force. Until the log
// is read they are those of the last run.
//
// Requirement: MESH-024
func TestEachDomainHasItsOwnAgreement(t *testing.T) {
	gamma := spiffeid.RequireTrustDomainFromString("gamma.test")
	other := directory.Peering{Domain: gamma, State: directory.PeeringActive}

	for state, inForce := range map[directory.PeeringState]bool{
		directory.PeeringPending: false, directory.PeeringActive: true, directory.PeeringFrozen: false,
		directory.PeeringTerminated: false,
	} {
		dir := t.TempDir()
		store := &countedLog{changed: make(chan struct{})}
		store.all = []directory.Peering{other, {
			Domain: beta, State: state, Mesh: true, Addresses: []string{"https://beta.test", "https://b.beta.test"},
			Gossip: strings.Fields("1 2 3 4 5 6 7 8 9"),
		}}
		agreements, _ := load(t, store, dir)

		if agreements.IsActive(beta) != inForce || agreements.ExportsTo(beta) != inForce ||
			agreements.Service(beta) != "https://beta.test" {
			t.Errorf("%s: active %t, exported to %t, at %s", state, agreements.IsActive(beta),
				agreements.ExportsTo(beta),
				agreements.Service(beta))
		}

		if !agreements.IsActive(gamma) || agreements.ExportsTo(gamma) || agreements.Service(gamma) != "" {
			t.Errorf("another peer has what is %s's", beta)
		}

		seeds := 0
		if inForce {
			seeds = 8
		}

		if got := agreements.Seeds(); len(got) != seeds {
			t.Errorf("%s: the seeds are %v", state, got)
		}

		// One that has ended, which this node has not noted yet, is shown.
		if got := agreements.Shown(); len(got) != 2 {
			t.Errorf("%s: shown are %+v", state, got)
		}

		store.unsettled = true

		if agreements.IsActive(gamma) || len(agreements.List()) != 0 {
			t.Errorf("%s: before the log is read: %+v", state, agreements.List())
		}
	}
}

// Each change is put in force once, with one notice; a farewell goes to peers that this domain has
// left, and to no others. What can't be kept or removed is told.
//
// Requirement: MESH-025
func TestChangesAreFollowedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			lines     bytes.Buffer
			notices   int
			farewells []string
			refuses   error
		)

		held := bundles{}
		store := &countedLog{changed: make(chan struct{})}
		dir := t.TempDir()

		agreements := loadWith(t, store, dir, func(c *peering.Config) {
			c.Bundles, c.Logger = held, slog.New(slog.NewTextHandler(&lines, nil))
			c.Changed = func() { notices++ }
			c.Client = func(former directory.Peering) (*http.Client, func(), error) {
				farewells = append(farewells, former.Domain.Name())
				return nil, nil, errors.New("no network")
			}
			c.ReplaceFile = func(path string, contents []byte, mode fs.FileMode) error {
				return errors.Join(refuses, os.WriteFile(path, contents, mode))
			}
		})
		defer starts(t, agreements.Run)()

		file := filepath.Join(dir, "beta.test.json")

		for i, x := range []struct {
			state    directory.PeeringState
			mesh     bool
			byPeer   bool
			notices  int
			held     bool
			farewell bool
		}{
			{directory.PeeringPending, false, false, 1, false, false},
			{directory.PeeringActive, false, false, 1, true, false},
			{directory.PeeringActive, false, false, 0, true, false},
			{directory.PeeringActive, true, false, 1, true, false},
			{directory.PeeringPending, false, false, 1, false, false}, // invited anew
			{directory.PeeringActive, false, false, 1, true, false},
			{directory.PeeringFrozen, false, false, 1, true, false},
			{directory.PeeringTerminated, false, false, 1, false, true},
			{directory.PeeringTerminated, false, false, 0, false, false},
			{directory.PeeringTerminated, true, false, 1, false, false}, // its file is gone already
			{directory.PeeringActive, false, false, 1, true, false},
			{directory.PeeringTerminated, false, true, 1, false, false},
		} {
			notices, farewells = 0, nil
			store.all = []directory.Peering{{Domain: beta, State: x.state, Mesh: x.mesh, ByPeer: x.byPeer}}
			store.agree()
			synctest.Wait()

			if _, err := os.Stat(file); notices != x.notices || held[beta] != x.held || (err == nil) != x.held ||
				(len(farewells) > 0) != x.farewell {
				t.Errorf("%d: %d notices, bundle %t, file %v, farewells %v", i, notices, held[beta], err, farewells)
			}
		}

		if lines.Len() > 0 && strings.Contains(lines.String(), "disk") {
			t.Errorf("the log has\n%s", &lines)
		}

		refuses = errors.New("no space left")
		store.all[0] = active()
		store.agree()
		synctest.Wait()

		if !held[beta] || !strings.Contains(lines.String(), "a peer can't be kept on disk") {
			t.Errorf("a full disk: bundle %t; the log has\n%s", held[beta], &lines)
		}
	})
}

// A damaged file, or one of another name, is refused by its name, with those before it.
func TestADamagedFileIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{`: "unexpected end of JSON input", `{"domain":"gamma.test"}`: `it has the agreement with "gamma.test"`,
	} {
		dir := t.TempDir()

		for name, text := range map[string]string{"alpha.test": `{"domain":"alpha.test"}`, "beta.test": text} {
			must(t, os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600))
		}

		got, err := peering.ReadFiles(dir)
		if err == nil || !strings.Contains(err.Error(), "beta.test.json is damaged; remove it") ||
			!strings.HasSuffix(err.Error(), want) || len(got) != 1 {
			t.Errorf("%s: %v, with %v", text, err, got)
		}

		if _, err := peering.Load(peering.Config{Dir: dir, Bundles: bundles{}}); err == nil {
			t.Errorf("%s: a node starts with a damaged file", text)
		}
	}

	if _, err := peering.Load(peering.Config{Dir: "/dev/null/peers"}); err == nil {
		t.Error("a node starts without a folder for its peers")
	}
}

// A bundle is fetched again when it is due, a minute after a failure, and at once from another
// endpoint. A new one is proposed in place of the one that is held.
//
// Requirement: TRUST-004
func TestABundleIsFetchedWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu       sync.Mutex // guards the rest between the keeper and the test
			fetched  peering.FetchedBundle
			failure  error
			proposal error
			asked    []string
			proposed []string
			lines    bytes.Buffer
		)

		at := active()
		at.Bundle, at.Endpoint.URL = []byte("held"), "one"
		there := []directory.Peering{at}

		keeper := peering.BundleKeeper{
			Logger: slog.New(slog.NewTextHandler(&lines, nil)), Peerings: func() []directory.Peering {
				mu.Lock()
				defer mu.Unlock()

				return slices.Clone(there)
			},
			Same: func(_ spiffeid.TrustDomain, one, other []byte) bool { return string(one) == string(other) },
			Fetch: func(_ context.Context, p directory.Peering) (peering.FetchedBundle, error) {
				asked = append(asked, p.Endpoint.URL)
				return fetched, failure
			},
			Propose: func(_ context.Context, _ spiffeid.TrustDomain, held, bundle []byte) error {
				proposed = append(proposed, string(held)+" "+string(bundle))
				return proposal
			},
		}

		if keeper.Found(beta, nil) {
			t.Error("a bundle is found before any is fetched")
		}

		began := time.Now()

		for i, x := range []struct {
			fetched           peering.FetchedBundle
			failure, proposal error
			endpoint          string
			wait              time.Duration
			asked, proposed   int
			found             string
			last              time.Duration // the last success, since the beginning
			says              string
		}{
			{peering.FetchedBundle{JWKS: []byte("a"), Again: time.Hour}, nil, nil, "one", time.Second, 1, 0, "a", 0,
				""},
			{peering.FetchedBundle{JWKS: []byte("b"), News: true, Again: 10 * time.Minute}, nil, nil, "one",
				time.Hour - 2*time.Second, 0, 0, "a", 0, ""},
			{peering.FetchedBundle{JWKS: []byte("b"), News: true, Again: 10 * time.Minute}, nil, nil, "one",
				10 * time.Second, 1, 1, "b", time.Hour, "a peer has a new bundle"},
			{peering.FetchedBundle{News: true}, errors.New("no route"), nil, "one", 10 * time.Minute, 1, 0, "b",
				time.Hour, "cannot fetch a peer's bundle"},
			{peering.FetchedBundle{JWKS: []byte("c"), News: true}, nil, directory.Refuse(directory.Conflict,
				"not yet"),
				"one", time.Minute, 1, 1, "c", time.Hour, "waits until the leader finds it"},
			{peering.FetchedBundle{}, nil, directory.Refuse(directory.Conflict, "not yet"), "one",
				50 * time.Second, 0, 0, "c", time.Hour, ""},
			{peering.FetchedBundle{JWKS: []byte("d"), Again: time.Hour}, nil, nil, "two", 10 * time.Second, 1, 0, "d",
				time.Hour + 12*time.Minute, ""},
		} {
			mu.Lock()
			fetched, failure, proposal, asked, proposed = x.fetched, x.failure, x.proposal, nil, nil
			there[0].Endpoint.URL = x.endpoint
			lines.Reset()
			mu.Unlock()

			if i == 0 {
				defer starts(t, keeper.Run)()
			}

			time.Sleep(x.wait)
			synctest.Wait()

			last, err := keeper.Endpoint(beta)
			if len(asked) != x.asked || len(proposed) != x.proposed || !keeper.Found(beta, []byte(x.found)) ||
				last.Sub(began) != x.last || (err != nil) != (x.failure != nil || x.proposal != nil) ||
				!strings.Contains(lines.String(), x.says) {
				t.Errorf("%d: asked %q, proposed %q, last %s, %v; the log has\n%s", i, asked, proposed,
					last.Sub(began), err,
					&lines)
			}

			if x.proposed > 0 && proposed[0] != "held "+x.found {
				t.Errorf("%d: proposed is %q", i, proposed)
			}
		}

		mu.Lock()
		there = nil
		mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()

		if last, err := keeper.Endpoint(beta); !last.IsZero() || err != nil || keeper.Found(beta, []byte("d")) {
			t.Errorf("an endpoint that is gone: %s, %v", last, err)
		}
	})
}

// The end of a node is no failure of an endpoint, and no more than sixteen are asked at once.
//
// Requirement: TRUST-004
func TestFetchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu       sync.Mutex
			now, top int
		)

		keeper := peering.BundleKeeper{
			Logger: slog.New(slog.DiscardHandler),
			Peerings: func() (all []directory.Peering) {
				for n := range 40 {
					p := active()
					p.Domain, p.Endpoint.URL = spiffeid.RequireTrustDomainFromString(fmt.Sprintf("d%d.test", n)),
						"one"
					all = append(all, p)
				}

				return all
			},
			Fetch: func(ctx context.Context, _ directory.Peering) (peering.FetchedBundle, error) {
				mu.Lock()
				now++
				top = max(top, now)
				mu.Unlock()

				<-ctx.Done()

				mu.Lock()
				now--
				mu.Unlock()

				return peering.FetchedBundle{}, ctx.Err()
			},
		}

		stop := starts(t, keeper.Run)

		mu.Lock()

		if top != 16 {
			t.Errorf("%d endpoints are asked at once", top)
		}

		mu.Unlock()

		time.Sleep(16 * time.Second)
		synctest.Wait()

		if _, err := keeper.Endpoint(spiffeid.RequireTrustDomainFromString("d0.test")); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("an endpoint that doesn't answer: %v", err)
		}

		stop()

		if _, err := keeper.Endpoint(spiffeid.RequireTrustDomainFromString("d39.test")); errors.Is(err,
			context.Canceled) {
			t.Errorf("the end of a node: %v", err)
		}
	})
}

// A closeCounter is a body that counts how often one is closed.
type closeCounter struct {
	io.Reader
	closed *atomic.Int32
}

func (c closeCounter) Close() error {
	c.closed.Add(1)
	return nil
}

// A farewell is tried again until it is taken, at each of the peer's addresses, and no longer than the peering is
// ended. Each answer's connection is free again.
//
// Requirement: MESH-025
func TestAFarewellEndsWhenDomainsPeerAgain(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var asked, closed, released atomic.Int32

			store := &countedLog{changed: make(chan struct{})}
			hosts := map[string]bool{}
			peer := active()
			peer.Addresses = append(peer.Addresses, "https://second.beta.test")

			store.all = []directory.Peering{peer}
			client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				asked.Add(1)

				hosts[r.URL.Host] = true
				body := closeCounter{strings.NewReader("no"), &closed}

				return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: body}, nil
			})}
			agreements := loadWith(t, store, t.TempDir(), func(c *peering.Config) {
				c.Client = func(directory.Peering) (*http.Client, func(), error) {
					return client, func() { released.Add(1) }, nil
				}
			})
			defer starts(t, agreements.Run)()

			store.put(peer.Ended(false))
			time.Sleep(time.Minute)

			if again {
				store.put(peer)
				synctest.Wait()
			}

			before := asked.Load()
			time.Sleep(time.Hour)
			synctest.Wait()

			if all := asked.Load(); before < 2 || (all > before) == again || closed.Load() != all ||
				released.Load() != 1 || len(hosts) != 2 {
				t.Errorf("peering again %t: asked %d times, then %d; %d closed, %d clients released", again, before,
					all-before, closed.Load(), released.Load())
			}
		})
	}
}

// The node that says a farewell may not have recorded yet that the operator ended the peering: it says it once
// it knows the operator's request, and never without.
//
// Requirement: MESH-025
func TestAFarewellWaitsForTheOperatorsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			asked atomic.Int32
			said  []*directory.OperatorRequest
		)

		store := &countedLog{changed: make(chan struct{})}
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}

			request, err := protocol.ParseFarewell(body)
			said = append(said, request)

			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, err
		})}

		agreements := loadWith(t, store, t.TempDir(), func(c *peering.Config) {
			c.Removal = func(spiffeid.TrustDomain) *directory.OperatorRequest {
				if asked.Add(1) < 4 {
					return nil
				}

				return &directory.OperatorRequest{Method: http.MethodPost, Proof: "a.b.c"}
			}
			c.Client = func(directory.Peering) (*http.Client, func(), error) { return client, func() {}, nil }
		})
		defer starts(t, agreements.Run)()

		for _, state := range []directory.PeeringState{directory.PeeringActive, directory.PeeringTerminated} {
			synctest.Wait()

			store.all = []directory.Peering{{Domain: beta, State: state, Addresses: []string{"https://beta.test"}}}
			store.agree()
		}

		time.Sleep(time.Minute) // of virtual time
		synctest.Wait()

		if len(said) != 1 || said[0] == nil || said[0].Proof != "a.b.c" {
			t.Errorf("%d farewells are said: %+v", len(said), said)
		}

		if shown := agreements.Shown(); len(shown) != 0 {
			t.Errorf("the farewell is not acknowledged: %+v", shown)
		}
	})
}

var must = directorytest.Must

package trust

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/exp/bundle/witbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// How a Workload API is asked again that is away: the library waits from 1 s up to
// 30 s between two watches; gRPC's own wait would grow to two minutes.
const (
	dialAgain  = 5 * time.Second
	watchAgain = 30 * time.Second // after an answer by which the library ends a watch for good
	tokenBound = 10 * time.Second // for one JWT-SVID or WIT-SVID
)

// ErrNoJWTSVID says that a source gives no JWT-SVIDs.
var ErrNoJWTSVID = errors.New("this identity comes from files, which give no JWT-SVID")

// A WorkloadAPI keeps a Source and Bundles as a SPIFFE Workload API has them: one
// X.509-SVID, the authorities of its domain, and those of the domains that are
// federated with it. An update that doesn't hold changes nothing, and what was last
// good stays while the API is away. It is safe for concurrent use.
type WorkloadAPI struct {
	address string
	bundles *Bundles
	mine    func(spiffeid.ID) bool
	client  *workloadapi.Client
	first   chan struct{} // closed once source is there
	wits    bool          // whether WIT bundles are followed; not changed once Run was called
	shown   witKeeper

	mu      sync.Mutex // guards the rest
	source  *Source
	x509    *x509bundle.Set // of the last good update
	jwt     *jwtbundle.Set  // nil until there is one, as wit
	wit     *witbundle.Set
	applied map[spiffeid.TrustDomain]*spiffebundle.Bundle
	err     error // why the last word was no good; nil where it was
}

// CheckWorkloadAPI returns an error where address is none of a Workload API:
// unix:///PATH or tcp://IP:PORT (SPIFFE Workload Endpoint, 4).
func CheckWorkloadAPI(address string) error { return workloadapi.ValidateAddress(address) }

// OpenWorkloadAPI returns the Workload API at address, which needs not be there yet.
// Of the SVIDs that it gives the first is taken that mine takes. Run must be called
// and does the work, into b.
func OpenWorkloadAPI(ctx context.Context, address string, b *Bundles, mine func(spiffeid.ID) bool) (*WorkloadAPI, error) {
	patience := backoff.DefaultConfig
	patience.MaxDelay = dialAgain
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(address),
		workloadapi.WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{Backoff: patience, MinConnectTimeout: dialAgain})))
	if err != nil {
		return nil, fmt.Errorf("the Workload API at %s: %w", address, err)
	}
	return &WorkloadAPI{
		address: address, bundles: b, mine: mine, client: client, first: make(chan struct{}),
		applied: map[spiffeid.TrustDomain]*spiffebundle.Bundle{}, err: errors.New("it has not answered yet"),
	}, nil
}

// FollowWITBundles has w follow as well the keys that sign WIT-SVIDs (SPIFFE Workload API,
// 7, which many don't have). It is for the time before Run.
func (w *WorkloadAPI) FollowWITBundles() { w.wits = true }

// Run follows the Workload API until ctx ends, and closes it then. What can't be
// used is logged.
func (w *WorkloadAPI) Run(ctx context.Context, log *slog.Logger) {
	var wg sync.WaitGroup
	follow := func(watch func() error) {
		for ctx.Err() == nil {
			_ = watch() // has been told to the watcher
			select {
			case <-ctx.Done():
			case <-time.After(watchAgain):
			}
		}
	}
	wg.Go(func() { follow(func() error { return w.client.WatchX509Context(ctx, &x509Watcher{w, ctx, log}) }) })
	wg.Go(func() {
		follow(func() error {
			return w.client.WatchJWTBundles(ctx, &keyWatcher{w: w, ctx: ctx, log: log, what: "JWT-SVIDs"})
		})
	})
	if w.wits {
		wg.Go(func() {
			follow(func() error {
				return w.client.WatchWITBundles(ctx, &keyWatcher{w: w, ctx: ctx, log: log, what: "WIT-SVIDs"})
			})
		})
	}
	wg.Wait()
	_ = w.client.Close()
}

// Source waits for the first SVID that holds and returns its source, which is swapped
// from then on; the bundles are there by then. When ctx ends before, the error says
// what the Workload API said last.
func (w *WorkloadAPI) Source(ctx context.Context) (*Source, error) {
	select {
	case <-w.first:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.source, nil
	case <-ctx.Done():
		return nil, w.Err()
	}
}

// Err returns why the Workload API's last word was no good; nil where it was.
func (w *WorkloadAPI) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return nil
	}
	return fmt.Errorf("the Workload API at %s: %w", w.address, w.err)
}

func (w *WorkloadAPI) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// take takes an update into use, the bundles before the SVID, and returns that where
// it is a new one. Where its SVID or its own domain's bundle does not hold, all stays
// as it was. refused is what did not hold of the bundles of other domains, which
// stay as they were, each.
func (w *WorkloadAPI) take(x *workloadapi.X509Context, now time.Time) (svid *x509svid.SVID, refused, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	svid, err = w.choose(x.SVIDs)
	if err != nil {
		return nil, nil, err
	}
	if err := w.holds(svid, x.Bundles, now); err != nil {
		return nil, nil, err
	}
	w.x509, w.err = x.Bundles, nil
	refused = w.apply(svid.ID.TrustDomain())
	switch {
	case w.source == nil:
		w.source = NewSource(svid)
		w.source.api = w
		close(w.first)
	case svid.Certificates[0].Equal(w.source.SVID().Certificates[0]):
		return nil, refused, nil
	default:
		w.source.Set(svid)
	}
	return svid, refused, nil
}

// choose returns the first SVID that is ours; later only that of the same identity.
func (w *WorkloadAPI) choose(svids []*x509svid.SVID) (*x509svid.SVID, error) {
	for _, svid := range svids {
		if w.source == nil && w.mine(svid.ID) || w.source != nil && svid.ID == w.source.SVID().ID {
			return svid, nil
		}
	}
	if w.source == nil {
		return nil, fmt.Errorf("it gives %d SVIDs, and none of them is wanted; the first is %s", len(svids), svids[0].ID)
	}
	return nil, fmt.Errorf("it no longer gives an SVID of %s", w.source.SVID().ID)
}

// holds judges an SVID by the bundle that came with it.
func (w *WorkloadAPI) holds(svid *x509svid.SVID, set *x509bundle.Set, now time.Time) error {
	own, ok := set.Get(svid.ID.TrustDomain())
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoBundle, svid.ID.TrustDomain())
	}
	tried := NewBundles()
	if err := tried.SetX509(svid.ID.TrustDomain(), own.X509Authorities()); err != nil {
		return err
	}
	_, err := judge(svid.Certificates, tried, forClient, now)
	return err
}

// apply makes the bundles what the Workload API gives: the own domain's in the place
// of what it had, others' before what was agreed with them. One that does not hold
// stays as it was.
func (w *WorkloadAPI) apply(own spiffeid.TrustDomain) (refused error) {
	for td := range w.applied {
		if !w.x509.Has(td) {
			w.bundles.Unfederate(td)
			delete(w.applied, td)
		}
	}
	for _, bundle := range w.x509.Bundles() {
		td := bundle.TrustDomain()
		next := spiffebundle.FromX509Authorities(td, bundle.X509Authorities())
		if w.jwt != nil {
			if keys, ok := w.jwt.Get(td); ok {
				next.SetJWTAuthorities(keys.JWTAuthorities())
			}
		}
		if w.wit != nil {
			if keys, ok := w.wit.Get(td); ok {
				next.SetWITAuthorities(keys.WITAuthorities())
			}
		}
		if old := w.applied[td]; old != nil && old.Equal(next) {
			continue
		}
		put := w.bundles.Federate
		if td == own {
			put = w.bundles.Set
		}
		jwks, err := next.Marshal()
		if err == nil {
			err = put(td, jwks)
		}
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		w.applied[td] = next
	}
	return refused
}

// JWTSVID returns a JWT-SVID of s's identity for an audience, and until when it is
// good: to be shown to whom that names, and to nobody else. The Workload API is asked
// each time, which keeps them itself. The error is ErrNoJWTSVID where s is no
// Workload API's.
func (s *Source) JWTSVID(ctx context.Context, audience string) (token string, until time.Time, err error) {
	if s.api == nil {
		return "", time.Time{}, ErrNoJWTSVID
	}
	if audience == "" {
		return "", time.Time{}, errors.New("a JWT-SVID is for somebody: the audience is empty")
	}
	ctx, cancel := context.WithTimeout(ctx, tokenBound)
	defer cancel()
	svid, err := s.api.client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: audience, Subject: s.SVID().ID})
	switch {
	case err != nil:
		return "", time.Time{}, fmt.Errorf("the Workload API at %s gives no JWT-SVID: %w", s.api.address, err)
	case svid.ID != s.SVID().ID:
		return "", time.Time{}, fmt.Errorf("the Workload API at %s gave a JWT-SVID of %s", s.api.address, svid.ID)
	}
	return svid.Marshal(), svid.Expiry, nil
}

// Err returns nil while s's SVID is good; afterwards since when it isn't, and why
// there is no other.
func (s *Source) Err() error {
	end := s.SVID().Certificates[0].NotAfter
	if time.Now().Before(end) {
		return nil
	}
	err := fmt.Errorf("the SVID has ended at %s and there is no other", end.UTC().Format(time.RFC3339))
	if s.api != nil {
		if why := s.api.Err(); why != nil {
			return fmt.Errorf("%w: %w", err, why)
		}
	}
	return err
}

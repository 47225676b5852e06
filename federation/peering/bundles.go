package peering

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
)

// Pace and bounds of the requests to bundle endpoints.
const (
	bundleCheckInterval = 10 * time.Second // between two looks for endpoints that are due
	bundleRetryInterval = time.Minute      // after a failure
	bundleFetchTimeout  = 15 * time.Second // to fetch one bundle and have the domain agree on it
	bundleMaxConcurrent = 16               // fetches at a time
)

// A FetchedBundle is the bundle at a peer's endpoint.
type FetchedBundle struct {
	JWKS  []byte
	News  bool          // it differs from the one in force
	Again time.Duration // until the next fetch
	// Source is the URL at which it was found: the endpoint's, or that of another node of the peer.
	Source string
}

// A BundleKeeper keeps the bundles of peers equal to those of their endpoints. A node
// that finds a newer bundle proposes it to the domain. An invalid bundle raises an
// alarm, and the last good one stays.
type BundleKeeper struct {
	Peerings func() []directory.Peering
	Fetch    func(ctx context.Context, peering directory.Peering) (FetchedBundle, error)
	// Propose has the domain replace a peer's bundle.
	Propose func(ctx context.Context, td spiffeid.TrustDomain, held, bundle []byte) error
	// Same reports whether two bundles of a domain have the same contents.
	Same   func(td spiffeid.TrustDomain, one, other []byte) bool
	Panics *contain.Panics // counts panics on bundles; nil counts nothing
	Logger *slog.Logger

	mu   sync.Mutex // guards seen
	seen map[spiffeid.TrustDomain]endpointState
}

// An endpointState is this node's state of a peer's bundle endpoint.
type endpointState struct {
	endpoint directory.BundleEndpoint
	due      time.Time
	fetched  time.Time // the last success; zero for never
	err      error     // of the last attempt
	found    []byte    // the bundle of the last success
	asked    bool      // another member has found a bundle since the last look
}

// Run fetches bundles until ctx ends.
func (k *BundleKeeper) Run(ctx context.Context) {
	tick := time.NewTicker(bundleCheckInterval)
	defer tick.Stop()

	for ctx.Err() == nil {
		k.fetchDue(ctx)

		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Endpoint returns the last success and the last error of a peer's endpoint; zero values if
// it has none.
func (k *BundleKeeper) Endpoint(td spiffeid.TrustDomain) (fetched time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.seen[td].fetched, k.seen[td].err
}

// Found reports whether the last fetch of this node found a bundle of that contents at a peer's
// endpoint.
func (k *BundleKeeper) Found(td spiffeid.TrustDomain, bundle []byte) bool {
	k.mu.Lock()
	found := k.seen[td].found
	k.mu.Unlock()

	return found != nil && k.Same(td, found, bundle)
}

// Confirm refuses a bundle that another member found, with directory.Conflict, unless this
// node has found the same one. It brings the next request to the endpoint forward.
func (k *BundleKeeper) Confirm(td spiffeid.TrustDomain, bundle []byte) error {
	if k.Found(td, bundle) {
		return nil
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if state, ok := k.seen[td]; ok {
		// This node's next look asks the endpoint, and the member's next proposal finds the result here. A look
		// that is under way may have asked before the bundle was there, so its end doesn't cancel this one.
		state.asked = true
		k.seen[td] = state
	}

	return directory.Refuse(directory.Conflict,
		"the leader has not found this bundle at the endpoint of %s yet; it asks there itself", td.Name())
}

// fetchDue fetches from the endpoints that are due.
func (k *BundleKeeper) fetchDue(ctx context.Context) {
	free := make(chan struct{}, bundleMaxConcurrent)

	var all sync.WaitGroup
	defer all.Wait()

	for _, peering := range k.due(time.Now()) {
		free <- struct{}{}

		all.Go(func() {
			defer func() { <-free }()
			k.refresh(ctx, peering)
		})
	}
}

// due returns the peerings whose endpoints are due, and forgets the endpoints that are gone.
func (k *BundleKeeper) due(now time.Time) (list []directory.Peering) {
	k.mu.Lock()
	defer k.mu.Unlock()

	old := k.seen
	k.seen = map[spiffeid.TrustDomain]endpointState{}

	for _, peering := range k.Peerings() {
		live := peering.State == directory.PeeringActive || peering.State == directory.PeeringFrozen
		if !live || peering.Endpoint.IsZero() {
			continue
		}

		state := old[peering.Domain]
		if state.endpoint != peering.Endpoint {
			state = endpointState{endpoint: peering.Endpoint}
		}

		if state.asked || !now.Before(state.due) {
			list = append(list, peering)
		}

		state.asked = false
		k.seen[peering.Domain] = state
	}

	return list
}

// note notes the bundle that an endpoint has.
func (k *BundleKeeper) note(peering directory.Peering, found []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()

	// The next look for endpoints that are due comes after this one.
	state := k.seen[peering.Domain]
	state.found = found
	k.seen[peering.Domain] = state
}

// refresh fetches one endpoint's bundle, and has the domain agree on a new one.
func (k *BundleKeeper) refresh(ctx context.Context, peering directory.Peering) {
	bound, cancel := context.WithTimeout(ctx, bundleFetchTimeout)
	defer cancel()

	name, url := peering.Domain.Name(), peering.Endpoint.URL

	var got FetchedBundle

	err := k.Panics.Run(contain.Bundle, func() (err error) {
		got, err = k.take(bound, peering)
		return err
	})

	// A failure while the node stops says nothing about the endpoint.
	if ctx.Err() != nil {
		return
	}

	now := time.Now()

	k.mu.Lock()
	defer k.mu.Unlock()

	state := k.seen[peering.Domain]
	state.err, state.due = err, now.Add(bundleRetryInterval)

	switch {
	case err == nil:
		state.fetched, state.due = now, now.Add(got.Again)
	case directory.ProblemOf(err) == directory.Conflict:
		k.Logger.Info("a peer's new bundle waits until the leader finds it too; the last good one stays", "peer", name,
			"endpoint", url, "err", err)
	default:
		k.Logger.Error("cannot fetch a peer's bundle; the last good one stays", "peer", name, "endpoint", url,
			"err", err)
	}

	k.seen[peering.Domain] = state
}

// take fetches one endpoint's bundle, and proposes a new one.
func (k *BundleKeeper) take(ctx context.Context, peering directory.Peering) (got FetchedBundle, err error) {
	if got, err = k.Fetch(ctx, peering); err != nil {
		return got, err
	}

	// Noted before the proposal, because a leader confirms only a bundle that it has found itself.
	k.note(peering, got.JWKS)

	if !got.News {
		return got, nil
	}

	if err = k.Propose(ctx, peering.Domain, peering.Bundle, got.JWKS); err == nil {
		k.Logger.Info("a peer has a new bundle", "peer", peering.Domain.Name(), "endpoint", got.Source)
	}

	return got, err
}

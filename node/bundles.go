package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// bundleEndpoint is the URL of this domain's bundle for peers; zero if there is none.
func (ps *peerings) bundleEndpoint() directory.BundleEndpoint {
	if ps.cfg.Bundles.Endpoint.IsZero() && ps.cfg.Bundles.Serve {
		return directory.BundleEndpoint{URL: ps.cfg.PublicURL + wire.BundlePath, Profile: directory.ProfileSPIFFE}
	}

	return ps.cfg.Bundles.Endpoint
}

// Pace and bounds of the requests to bundle endpoints.
const (
	bundleCheckInterval = 10 * time.Second // between two looks for endpoints that are due
	bundleRetryInterval = time.Minute      // after a failure
	bundleFetchTimeout  = 15 * time.Second // to fetch one bundle and have the domain agree on it
	bundleMaxConcurrent = 16               // fetches at a time
)

// A following is this node's state of a peer's bundle endpoint.
type following struct {
	endpoint directory.BundleEndpoint
	due      time.Time
	good     time.Time // when it was last fetched; zero for never
	err      error     // of the last time
}

// A bundleKeeper keeps the bundles of peers equal to those of their endpoints. A node
// that finds a newer bundle proposes it to the domain. An invalid bundle raises an
// alarm, and the last good one stays.
type bundleKeeper struct {
	peerings func() []directory.Peering
	store    *consensus.Store
	fetcher  *trust.Fetcher
	log      *slog.Logger

	mu   sync.Mutex // guards seen
	seen map[spiffeid.TrustDomain]following
}

func (f *bundleKeeper) run(ctx context.Context) {
	tick := time.NewTicker(bundleCheckInterval)
	defer tick.Stop()

	for ctx.Err() == nil {
		f.round(ctx)

		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// round asks the endpoints that are due.
func (f *bundleKeeper) round(ctx context.Context) {
	free := make(chan struct{}, bundleMaxConcurrent)

	var wg sync.WaitGroup
	defer wg.Wait()

	now := time.Now()
	for _, peering := range f.due(now) {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			f.ask(ctx, peering)
		})
	}
}

// due returns the peerings whose endpoints are to be asked, and forgets those that
// have none any more.
func (f *bundleKeeper) due(now time.Time) (list []directory.Peering) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.seen

	f.seen = map[spiffeid.TrustDomain]following{}
	for _, peering := range f.peerings() {
		live := peering.State == directory.PeeringActive || peering.State == directory.PeeringFrozen
		if !live || peering.Endpoint.IsZero() {
			continue
		}

		s := old[peering.Domain]
		if s.endpoint != peering.Endpoint {
			s = following{endpoint: peering.Endpoint}
		}

		f.seen[peering.Domain] = s
		if !now.Before(s.due) {
			list = append(list, peering)
		}
	}

	return list
}

// ask fetches one endpoint's bundle, and has the domain agree on a new one.
func (f *bundleKeeper) ask(ctx context.Context, peering directory.Peering) {
	bound, cancel := context.WithTimeout(ctx, bundleFetchTimeout)
	defer cancel()

	got, err := f.fetcher.Fetch(bound, peering.Domain, peering.Endpoint, peering.Bundle)
	if err == nil && got.News {
		if err = f.store.SetBundle(bound, peering.Domain, peering.Bundle, got.JWKS); err == nil {
			f.log.Info("a peer has a new bundle", "peer", peering.Domain.Name(), "endpoint", peering.Endpoint.URL)
		}
	}

	if ctx.Err() != nil {
		return
	}

	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen[peering.Domain]

	seen.err = err
	seen.due = now.Add(got.Again)

	if err != nil {
		f.log.Error("a peer's bundle can't be had; the last good one stays", "peer", peering.Domain.Name(), "endpoint",
			peering.Endpoint.URL, "err", err)
		seen.due = now.Add(bundleRetryInterval)
	} else {
		seen.good = now
	}

	f.seen[peering.Domain] = seen
}

// of returns the state of a peer's endpoint; zero if it has none.
func (f *bundleKeeper) of(td spiffeid.TrustDomain) following {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.seen[td]
}

// heldBundles are the trust bundles that this node holds, for its API.
type heldBundles struct{ bundles *trust.Bundles }

// Publish implements operator.TrustBundles.
func (h heldBundles) Publish(domain spiffeid.TrustDomain) ([]byte, error) {
	bundle, err := h.bundles.Publish(domain)
	if errors.Is(err, trust.ErrNoBundle) {
		return nil, directory.Refuse(directory.NotFound, "This node holds no bundle of %s.", domain.Name())
	}

	return bundle, err
}

// List implements operator.TrustBundles.
func (h heldBundles) List() []wire.TrustBundle {
	list := []wire.TrustBundle{}
	for _, domain := range h.bundles.Domains() {
		jwks, err := h.bundles.JWKS(domain)
		if err != nil {
			continue // removed meanwhile
		}

		if prints, err := trust.Fingerprints(domain, jwks); err == nil { // it was checked when it was set
			list = append(list, wire.TrustBundle{Domain: domain.Name(), Fingerprints: prints})
		}
	}

	return list
}

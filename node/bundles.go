package node

import (
	"context"
	"errors"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/trust"
)

// bundleEndpoint is the URL of this domain's bundle for peers; zero if there is none.
func (ps *peers) bundleEndpoint() directory.BundleEndpoint {
	if ps.cfg.Bundles.Endpoint.IsZero() && ps.cfg.Bundles.Serve {
		return directory.BundleEndpoint{URL: ps.cfg.PublicURL + wire.BundlePath, Profile: directory.ProfileSPIFFE}
	}

	return ps.cfg.Bundles.Endpoint
}

// bundleFetcher fetches the bundles of peers from their endpoints.
type bundleFetcher struct{ fetcher *trust.Fetcher }

func (f bundleFetcher) fetch(ctx context.Context, with directory.Peering) (peering.FetchedBundle, error) {
	got, err := f.fetcher.Fetch(ctx, with.Domain, with.Endpoint, with.Bundle)

	return peering.FetchedBundle{JWKS: got.JWKS, News: got.News, Again: got.Again}, err
}

// heldBundles are the trust bundles that this node holds, for its API.
type heldBundles struct{ bundles *trust.Bundles }

// Publish implements operator.TrustBundles.
func (h heldBundles) Publish(domain spiffeid.TrustDomain) ([]byte, error) {
	bundle, err := h.bundles.Publish(domain)
	if errors.Is(err, trust.ErrNoBundle) {
		return nil, directory.Refuse(directory.NotFound, "this node holds no bundle of %s", domain.Name())
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

package node

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/trust"
)

// evidenceVerifier implements evidence.Verifier by this node's keyring and its domain's
// peerings.
type evidenceVerifier struct {
	keyring    *trust.Keyring
	agreements *peering.Agreements
}

// Accuse implements evidence.Verifier.
func (c evidenceVerifier) Accuse(origin spiffeid.TrustDomain, parts, keys []string) ([]byte, error) {
	return c.keyring.Accuse(origin, parts, keys)
}

// Judge implements evidence.Verifier.
func (c evidenceVerifier) Judge(file []byte, news bool) (evidence.Conviction, error) {
	conviction, err := c.keyring.Judge(file, news)
	if err != nil {
		return evidence.Conviction{}, err
	}

	return evidence.Conviction{Origin: conviction.Domain, ID: conviction.ID, Audience: conviction.Audience}, nil
}

// Freeze implements evidence.Verifier.
func (c evidenceVerifier) Freeze(ctx context.Context, origin spiffeid.TrustDomain) error {
	return c.agreements.Freeze(ctx, origin)
}

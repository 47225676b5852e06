package node

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/evidence"
)

// court implements evidence.Verifier by this node's keyring and its domain's
// peerings.
type court struct{ n *Node }

// Accuse implements evidence.Verifier.
func (c court) Accuse(origin spiffeid.TrustDomain, pages, keys []string) ([]byte, error) {
	return c.n.keyring.Accuse(origin, pages, keys)
}

// Judge implements evidence.Verifier.
func (c court) Judge(file []byte, news bool) (evidence.Conviction, error) {
	v, err := c.n.keyring.Judge(file, news)
	if err != nil {
		return evidence.Conviction{}, err
	}
	return evidence.Conviction{Origin: v.Domain, ID: v.ID, Audience: v.Audience}, nil
}

// Freeze implements evidence.Verifier.
func (c court) Freeze(ctx context.Context, origin spiffeid.TrustDomain) error {
	return c.n.amend(ctx, origin, func(p *directory.Peering, _ bool) error {
		if p.State == directory.PeeringActive {
			p.State = directory.PeeringFrozen
		}
		return nil
	})
}

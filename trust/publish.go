package trust

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Publish returns td's bundle for its endpoint (SPIFFE Federation, 5): with a refresh
// hint, and with a sequence number. If its source gives none (PEM, or a Workload API),
// the number is the time at which the newest authority began, in Unix seconds. It rises
// with each new authority, and is the same at every node. The error is ErrNoBundle.
func (b *Bundles) Publish(td spiffeid.TrustDomain) ([]byte, error) {
	set := b.get(td)
	if set == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoBundle, td)
	}

	return set.published()
}

func publish(td spiffeid.TrustDomain, jwks []byte) ([]byte, error) {
	b, err := parseJWKS(td, jwks)
	if err != nil {
		return nil, err
	}

	if _, ok := b.RefreshHint(); !ok {
		b.SetRefreshHint(refreshDefault)
	}

	if _, ok := b.SequenceNumber(); !ok {
		var newest int64
		for _, a := range b.X509Authorities() {
			newest = max(newest, a.NotBefore.Unix())
		}

		b.SetSequenceNumber(uint64(newest))
	}

	return b.Marshal()
}

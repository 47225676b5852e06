package trust

import (
	"bytes"
	"crypto/x509"
	"slices"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Publish returns td's bundle for its endpoint (SPIFFE Federation, 5): with a refresh
// hint, and with a sequence number. If its source gives none (PEM, or a Workload API),
// the number is the time at which the newest authority began, in Unix seconds. It rises
// with each new authority, and is the same at every node. The error is ErrNoBundle.
func (b *Bundles) Publish(td spiffeid.TrustDomain) ([]byte, error) {
	set, err := b.held(td)
	if err != nil {
		return nil, err
	}

	return set.published()
}

// Authorities returns td's X.509 authorities as a JWKS, in the same bytes from whichever source and in whichever
// order the bundle came: those that the ledger of td has an entry of. It must not be modified. The error is
// ErrNoBundle.
func (b *Bundles) Authorities(td spiffeid.TrustDomain) ([]byte, error) {
	set, err := b.held(td)
	if err != nil {
		return nil, err
	}

	return set.canonical()
}

func canonical(td spiffeid.TrustDomain, authorities []*x509.Certificate) ([]byte, error) {
	sorted := slices.Clone(authorities)
	slices.SortFunc(sorted, func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })

	return spiffebundle.FromX509Authorities(td, sorted).Marshal()
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

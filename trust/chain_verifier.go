package trust

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// maxVerified bounds the remembered certificates of a ChainVerifier.
const maxVerified = 1 << 12

// A ChainVerifier verifies certificate chains for one use, and remembers the valid ones:
// the certificate of a connection is verified for every request, and its signatures are
// the larger part of that. It is safe for concurrent use.
type ChainVerifier struct {
	bundles *Bundles
	use     usage

	mu    sync.RWMutex                        // guards the rest
	valid map[*x509.Certificate]verifiedChain // by leaf; at most maxVerified
}

// A verifiedChain is valid while its domain's bundle is the same, and all its
// certificates are in force.
type verifiedChain struct {
	id         spiffeid.ID
	generation uint64 // of the bundle
	from, to   time.Time
}

// NewClientVerifier returns a verifier of the certificates that clients present.
func NewClientVerifier(b *Bundles) *ChainVerifier { return newChainVerifier(b, forClient) }

func newChainVerifier(b *Bundles, use usage) *ChainVerifier {
	return &ChainVerifier{bundles: b, use: use, valid: map[*x509.Certificate]verifiedChain{}}
}

// Verify returns the identity of a chain, leaf first, if it is valid now.
func (v *ChainVerifier) Verify(chain []*x509.Certificate, now time.Time) (spiffeid.ID, error) {
	if len(chain) == 0 {
		return verifyChain(chain, v.bundles, v.use, now)
	}

	if known, ok := v.known(chain[0]); ok && !now.Before(known.from) && !now.After(known.to) {
		return known.id, nil
	}

	// The generation is read before the verification, so that a bundle that is set during
	// it makes the result stale. verifyChainPath checks the ID.
	claimed, _ := x509svid.IDFromCert(chain[0])
	generation := v.bundles.generation(claimed.TrustDomain())

	id, path, err := verifyChainPath(chain, v.bundles, v.use, now)
	if err != nil {
		return id, err
	}

	from, to := validityOf(path)

	v.mu.Lock()
	defer v.mu.Unlock()

	// The leaves of closed connections are never looked up again, and no event removes them one by one.
	if len(v.valid) >= maxVerified {
		clear(v.valid)
	}

	v.valid[chain[0]] = verifiedChain{id: id, generation: generation, from: from, to: to}

	return id, nil
}

// known returns the result for a leaf, if it is by the present bundle.
func (v *ChainVerifier) known(leaf *x509.Certificate) (verifiedChain, bool) {
	v.mu.RLock()
	known, ok := v.valid[leaf]
	v.mu.RUnlock()

	return known, ok && known.generation == v.bundles.generation(known.id.TrustDomain())
}

// validityOf returns the time in which all certificates of a path are in force.
func validityOf(path []*x509.Certificate) (from, to time.Time) {
	from = path[0].NotBefore
	to = path[0].NotAfter

	for _, cert := range path[1:] {
		if cert.NotBefore.After(from) {
			from = cert.NotBefore
		}

		if cert.NotAfter.Before(to) {
			to = cert.NotAfter
		}
	}

	return from, to
}

package trust

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/limit/certs"
)

// ErrNoBundle means that there are no authorities of a trust domain.
var ErrNoBundle = errors.New("no bundle of that trust domain")

// Bundles holds the authorities of each trust domain that this node trusts, each for its
// own domain alone. It is safe for concurrent use.
type Bundles struct {
	mu        sync.RWMutex // guards the rest
	sets      map[spiffeid.TrustDomain]*bundle
	federated map[spiffeid.TrustDomain]*bundle // by Federate; they go before those of sets
	last      uint64                           // generation of the last change
	changed   chan struct{}                    // closed by the next change
}

// A bundle is one domain's authorities. It is never modified.
type bundle struct {
	jwks       []byte
	x509       *x509bundle.Bundle
	jwt, wit   map[string]crypto.PublicKey // by kid
	generation uint64
	published  func() ([]byte, error) // as Publish returns it
	canonical  func() ([]byte, error) // as Authorities returns it
}

// NewBundles returns an empty set.
func NewBundles() *Bundles {
	return &Bundles{sets: map[spiffeid.TrustDomain]*bundle{}, federated: map[spiffeid.TrustDomain]*bundle{},
		changed: make(chan struct{})}
}

// Set replaces td's bundle by a SPIFFE trust bundle (a JWKS). It refuses a bundle that
// isn't strict JSON or has no X.509 authority. It also refuses an authority that is not
// a CA or names another trust domain. After an error, td's bundle is unchanged.
func (b *Bundles) Set(td spiffeid.TrustDomain, jwks []byte) error { return b.set(b.sets, td, jwks) }

// Federate is Set for the bundle of a domain that a Workload API federates with its own.
// It takes precedence over Set's bundle until Unfederate, because the Workload API
// renews it.
func (b *Bundles) Federate(td spiffeid.TrustDomain, jwks []byte) error {
	return b.set(b.federated, td, jwks)
}

// Unfederate removes the bundle that Federate set.
func (b *Bundles) Unfederate(td spiffeid.TrustDomain) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.federated[td] != nil {
		delete(b.federated, td)
		b.noteLocked()
	}
}

func (b *Bundles) set(sets map[spiffeid.TrustDomain]*bundle, td spiffeid.TrustDomain, jwks []byte) error {
	parsed, err := parseJWKS(td, jwks)
	if err != nil {
		return fmt.Errorf("bundle of %s: %w", td, err)
	}

	if err := checkAuthorities(td, parsed.X509Authorities()); err != nil {
		return fmt.Errorf("bundle of %s: %w", td, err)
	}

	// The caller may reuse its buffer, while readers share the bundle without a lock.
	jwks = bytes.Clone(jwks)
	b.put(sets, td, &bundle{
		jwks: jwks, x509: parsed.X509Bundle(), jwt: parsed.JWTAuthorities(), wit: parsed.WITAuthorities(),
		published: sync.OnceValues(func() ([]byte, error) { return publish(td, jwks) }),
		canonical: sync.OnceValues(func() ([]byte, error) { return canonical(td, parsed.X509Authorities()) }),
	})

	return nil
}

// SetX509 is Set with the X.509 authorities alone.
func (b *Bundles) SetX509(td spiffeid.TrustDomain, authorities []*x509.Certificate) error {
	jwks, err := spiffebundle.FromX509Authorities(td, authorities).Marshal()
	if err != nil {
		return fmt.Errorf("bundle of %s: %w", td, err)
	}

	return b.Set(td, jwks)
}

// LoadFile is Set with a file: a SPIFFE bundle, or certificates in PEM.
func (b *Bundles) LoadFile(td spiffeid.TrustDomain, file string) error {
	jwks, err := readBundle(td, file)
	if err != nil {
		return err
	}

	return b.Set(td, jwks)
}

// readBundle returns the bundle in a file as a JWKS. It converts a PEM file.
func readBundle(td spiffeid.TrustDomain, file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("bundle of %s: %w", td, err)
	}

	jwks, err := BundleJWKS(td, text)
	if err != nil {
		return nil, fmt.Errorf("bundle of %s: %s: %w", td, file, err)
	}

	return jwks, nil
}

// BundleJWKS returns a bundle of td that ParseBundle accepts, as a JWKS.
func BundleJWKS(td spiffeid.TrustDomain, text []byte) ([]byte, error) {
	parsed, err := ParseBundle(td, text)
	if err != nil {
		return nil, err
	}

	// A JWKS stays as it came: its keys of tokens, its sequence number and its refresh hint are used as well.
	if jwks := bytes.TrimSpace(text); len(jwks) > 0 && jwks[0] == '{' {
		return jwks, nil
	}

	return spiffebundle.FromX509Authorities(td, parsed.X509Authorities()).Marshal()
}

func (b *Bundles) put(sets map[spiffeid.TrustDomain]*bundle, td spiffeid.TrustDomain, set *bundle) {
	b.mu.Lock()
	defer b.mu.Unlock()

	// An equal bundle keeps its generation: a new one would make all remembered chains and verdicts stale.
	if old := sets[td]; old != nil && bytes.Equal(old.jwks, set.jwks) {
		return
	}

	b.last++
	set.generation = b.last
	sets[td] = set
	b.noteLocked()
}

// Changed returns a channel that is closed when a bundle is set or removed next.
func (b *Bundles) Changed() <-chan struct{} {
	b.mu.RLock()
	defer b.mu.RUnlock()

	return b.changed
}

// noteLocked wakes those that wait on Changed. The lock is held.
func (b *Bundles) noteLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Remove removes td's bundle. Identities of td are no longer trusted, except those that
// the Workload API's own bundle of td certifies.
func (b *Bundles) Remove(td spiffeid.TrustDomain) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.sets[td] != nil {
		delete(b.sets, td)
		b.noteLocked()
	}
}

// Has reports whether there is a bundle of td.
func (b *Bundles) Has(td spiffeid.TrustDomain) bool { return b.get(td) != nil }

// JWKS returns td's bundle as it was set; it must not be modified. The error is
// ErrNoBundle.
func (b *Bundles) JWKS(td spiffeid.TrustDomain) ([]byte, error) {
	set, err := b.held(td)
	if err != nil {
		return nil, err
	}

	return set.jwks, nil
}

// GetX509BundleForTrustDomain makes Bundles an x509bundle.Source. The error is
// ErrNoBundle.
func (b *Bundles) GetX509BundleForTrustDomain(td spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	set, err := b.held(td)
	if err != nil {
		return nil, err
	}

	return set.x509, nil
}

// JWTAuthorities returns the keys that sign td's JWT-SVIDs,
// by kid; nil if td has no bundle. They must not be modified.
func (b *Bundles) JWTAuthorities(td spiffeid.TrustDomain) map[string]crypto.PublicKey {
	if set := b.get(td); set != nil {
		return set.jwt
	}

	return nil
}

// WITAuthorities is like JWTAuthorities for the keys that sign workload identity tokens.
func (b *Bundles) WITAuthorities(td spiffeid.TrustDomain) map[string]crypto.PublicKey {
	if set := b.get(td); set != nil {
		return set.wit
	}

	return nil
}

func (b *Bundles) get(td spiffeid.TrustDomain) *bundle {
	b.mu.RLock()
	defer b.mu.RUnlock()

	if set := b.federated[td]; set != nil {
		return set
	}

	return b.sets[td]
}

// held returns the bundle of td. The error is ErrNoBundle.
func (b *Bundles) held(td spiffeid.TrustDomain) (*bundle, error) {
	if set := b.get(td); set != nil {
		return set, nil
	}

	return nil, fmt.Errorf("%w: %s", ErrNoBundle, td)
}

// generation changes whenever td's authorities do; 0 when there are none.
func (b *Bundles) generation(td spiffeid.TrustDomain) uint64 {
	if set := b.get(td); set != nil {
		return set.generation
	}

	return 0
}

// Expiry returns when the last of td's X.509 authorities ends, of those whose validity has begun at a
// time; zero if there is none. One that has yet to begin certifies nothing today.
func (b *Bundles) Expiry(td spiffeid.TrustDomain, now time.Time) (last time.Time) {
	set := b.get(td)
	if set == nil {
		return last
	}

	for _, authority := range set.x509.X509Authorities() {
		if !now.Before(authority.NotBefore) && authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}

	return last
}

// ParseBundle reads a trust bundle of td: a SPIFFE bundle (a JWKS), or
// certificates in PEM. A zero td takes authorities of any domain, for a caller
// that doesn't know yet whose they are.
func ParseBundle(td spiffeid.TrustDomain, text []byte) (*spiffebundle.Bundle, error) {
	parsed, err := parseBundle(td, text)
	if err != nil {
		return nil, err
	}

	if err := checkAuthorities(td, parsed.X509Authorities()); err != nil {
		return nil, err
	}

	return parsed, nil
}

func parseBundle(td spiffeid.TrustDomain, text []byte) (*spiffebundle.Bundle, error) {
	if len(text) > MaxBundle {
		return nil, fmt.Errorf("the bundle has over %d bytes", MaxBundle)
	}

	if t := bytes.TrimSpace(text); len(t) > 0 && t[0] == '{' {
		return parseJWKS(td, t)
	}

	certs, err := parseCertificates(text)
	if err != nil {
		return nil, err
	}

	return spiffebundle.FromX509Authorities(td, certs), nil
}

func parseJWKS(td spiffeid.TrustDomain, jwks []byte) (*spiffebundle.Bundle, error) {
	if len(jwks) > MaxBundle {
		return nil, fmt.Errorf("the bundle has over %d bytes", MaxBundle)
	}

	if !jsontext.Value(jwks).IsValid() { // the library takes the last of two members of one name
		return nil, errors.New("the bundle is not strict JSON")
	}

	return spiffebundle.Parse(td, jwks)
}

// checkAuthorities refuses an empty set, because it would end all trust in td. It
// refuses authorities that would speak for other domains, and those that would make the
// verification of a certificate slow. x509 itself checks none of that.
func checkAuthorities(td spiffeid.TrustDomain, authorities []*x509.Certificate) error {
	if len(authorities) == 0 {
		return errors.New("it has no X.509 authority")
	}

	for _, cert := range authorities {
		if !cert.IsCA || !cert.BasicConstraintsValid {
			return fmt.Errorf("the authority %q is no CA", cert.Subject)
		}

		if !td.IsZero() && !speaksFor(cert, td) {
			return fmt.Errorf("the authority %q is another domain's", cert.Subject)
		}
	}

	return certs.CheckAuthorities(authorities)
}

// speaksFor reports whether an authority may certify IDs of td: its own SPIFFE
// ID, if it has one, names td (X509-SVID, 3.2).
func speaksFor(authority *x509.Certificate, td spiffeid.TrustDomain) bool {
	i := slices.IndexFunc(authority.URIs, func(u *url.URL) bool { return u.Scheme == "spiffe" })
	if i < 0 {
		return true
	}

	named, err := spiffeid.TrustDomainFromURI(authority.URIs[i])

	return err == nil && named == td
}

// Domains returns the trust domains that have a bundle, sorted by name.
func (b *Bundles) Domains() []spiffeid.TrustDomain {
	b.mu.RLock()
	defer b.mu.RUnlock()

	held := maps.Clone(b.sets)
	maps.Copy(held, b.federated)

	return slices.SortedFunc(maps.Keys(held), spiffeid.TrustDomain.Compare)
}

// Fingerprint returns the fingerprint by which people compare an authority at both sides:
// the SHA-256 of its SubjectPublicKeyInfo, in hexadecimal. It is the same in PEM and in a
// JWKS, and stays when the authority's certificate is renewed with its key.
func Fingerprint(authority *x509.Certificate) string {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// Fingerprints returns the fingerprints of the X.509 authorities in a trust bundle of td,
// sorted, each once.
func Fingerprints(td spiffeid.TrustDomain, bundle []byte) ([]string, error) {
	parsed, err := ParseBundle(td, bundle)
	if err != nil {
		return nil, err
	}

	var prints []string
	for _, authority := range parsed.X509Authorities() {
		prints = append(prints, Fingerprint(authority))
	}

	slices.Sort(prints)

	return slices.Compact(prints), nil
}

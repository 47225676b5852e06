package trust

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit/certs"
)

// Intervals between fetches of a bundle: its refresh hint, between bounds.
const (
	refreshDefault = 5 * time.Minute
	refreshLeast   = time.Minute
	refreshMost    = time.Hour
)

// ErrBundleOlder means that an endpoint has an older bundle than the held one.
var ErrBundleOlder = errors.New("its sequence number is lower than that of the bundle that is held")

// A Fetcher has other domains' bundles from their endpoints (SPIFFE Federation, 5).
// It is stricter than the library's, which takes the bodies of errors, follows
// redirects to plain http, reads without end, and lets sequence numbers fall.
type Fetcher struct {
	bundles *Bundles
	roots   *x509.CertPool
	dial    func(ctx context.Context, address string) (net.Conn, error)
}

// NewFetcher returns a fetcher that judges endpoints of directory.ProfileSPIFFE by b,
// and those of directory.ProfileWeb by roots, the system's if that is nil. A nil dial is the
// one of PinnedClient.
func NewFetcher(b *Bundles, roots *x509.CertPool,
	dial func(ctx context.Context, address string) (net.Conn, error)) *Fetcher {
	return &Fetcher{b, roots, dial}
}

// A Fetched is the result of asking an endpoint.
type Fetched struct {
	JWKS  []byte
	News  bool          // whether it says something else than the bundle that was held
	Again time.Duration // after which it wants to be asked again
}

// Fetch asks td's endpoint once. It accepts only the body of a 200 from that URL,
// without redirects, of at most MaxBundle bytes. The bundle must be valid for Set, and
// one of its authorities must be in force. Its sequence number must not be lower than
// that of held, or missing if held has one: ErrBundleOlder. After any error the caller
// continues with held.
func (f *Fetcher) Fetch(ctx context.Context, td spiffeid.TrustDomain, endpoint directory.BundleEndpoint,
	held []byte) (Fetched, error) {
	old, err := parseJWKS(td, held)
	if err != nil {
		return Fetched{}, fmt.Errorf("the bundle of %s that is held: %w", td, err)
	}

	jwks, err := f.get(ctx, td, endpoint)
	if err != nil {
		return Fetched{}, err
	}

	next, err := ParseBundle(td, jwks)
	if err == nil {
		err = supersedes(next, old, time.Now())
	}

	if err != nil {
		return Fetched{}, fmt.Errorf("the bundle at %s: %w", endpoint.URL, err)
	}

	return Fetched{JWKS: jwks, News: !sameBundle(next, old), Again: refreshOf(next)}, nil
}

// ErrBundleOther means that an endpoint has another bundle than the expected one.
var ErrBundleOther = errors.New("it differs from the expected bundle")

// Confirm asks td's endpoint, authenticated by the bundle was, whether it has the bundle next. It returns
// ErrBundleOther if the endpoint has another one. If that has a higher sequence number, it may have
// replaced next: Confirm accepts next if all its authorities are in was or at the endpoint, and else
// returns another error unless next cannot be the one after was.
func (f *Fetcher) Confirm(ctx context.Context, td spiffeid.TrustDomain, endpoint directory.BundleEndpoint,
	was, next []byte) error {
	if endpoint.IsZero() {
		return fmt.Errorf("%s has no bundle endpoint: %w", td, ErrBundleOther)
	}

	// The bundle before next judges the endpoint: the author of a forged next could also confirm it by next.
	believed := NewBundles()
	if err := believed.Set(td, was); err != nil {
		return err
	}

	jwks, err := NewFetcher(believed, f.roots, f.dial).get(ctx, td, endpoint)
	if err != nil {
		return err
	}

	found, err := ParseBundle(td, jwks)
	if err != nil {
		return err
	}

	expected, err := parseJWKS(td, next)
	if err != nil {
		return err
	}

	before, err := parseJWKS(td, was)
	if err != nil {
		return err
	}

	if err := succeeded(before, expected, found); err != nil {
		return fmt.Errorf("the bundle at %s: %w", endpoint.URL, err)
	}

	return nil
}

// errBundleReplaced means that an endpoint may have had a bundle before the one that it has.
var errBundleReplaced = errors.New("it may have replaced the expected bundle, whose authorities it does not have")

// succeeded judges whether next came after was at an endpoint that has found: see Confirm.
func succeeded(was, next, found *spiffebundle.Bundle) error {
	first, _ := was.SequenceNumber()
	number, numbered := next.SequenceNumber()
	last, ok := found.SequenceNumber()

	switch {
	case sameBundle(found, next):
		return nil
	case !ok || !numbered || last <= number || number < first:
		// Only a higher number at the endpoint can have replaced next, and only one from was on can follow was.
		return ErrBundleOther
	case hasAuthorities(next, was, found):
		// Accepting next trusts no authority beyond those of the former and the present bundle.
		return nil
	case number == first:
		return ErrBundleOther
	}

	return errBundleReplaced
}

// hasAuthorities reports whether each authority of b is in one of the others.
func hasAuthorities(b *spiffebundle.Bundle, others ...*spiffebundle.Bundle) bool {
	known := map[string]bool{}
	for _, other := range others {
		maps.Copy(known, authoritiesOf(other))
	}

	for authority := range authoritiesOf(b) {
		if !known[authority] {
			return false
		}
	}

	return true
}

// SameBundle reports whether two bundles of td, as JWKS, have the same contents; false if one is not
// valid.
func SameBundle(td spiffeid.TrustDomain, one, other []byte) bool {
	a, err := parseJWKS(td, one)
	if err != nil {
		return false
	}

	b, err := parseJWKS(td, other)

	return err == nil && sameBundle(a, b)
}

func (f *Fetcher) get(ctx context.Context, td spiffeid.TrustDomain, endpoint directory.BundleEndpoint) ([]byte, error) {
	if err := endpoint.Check(); err != nil {
		return nil, err
	}

	config, err := f.judgeOf(td, endpoint)
	if err != nil {
		return nil, err
	}

	return fetchOnce(ctx, endpoint.URL, config, f.dial)
}

// fetchOnce is FetchDocument over a connection of its own.
func fetchOnce(ctx context.Context, url string, config *tls.Config,
	dial func(ctx context.Context, address string) (net.Conn, error)) ([]byte, error) {
	transport := &http.Transport{
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    FetchTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true,
	}
	if dial != nil {
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
			return dial(ctx, address)
		}
	}

	defer transport.CloseIdleConnections()

	return FetchDocument(ctx, PinnedClient(transport), url)
}

// FetchByHash fetches a document of at most MaxBundle bytes whose SHA-256 is known from
// elsewhere, once. The hash authenticates the document; the connection authenticates no one,
// so nothing secret may be in the URL. A nil dial is the one of PinnedClient.
func FetchByHash(ctx context.Context, url string, sum [sha256.Size]byte,
	dial func(ctx context.Context, address string) (net.Conn, error)) ([]byte, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // sum decides
	}

	document, err := fetchOnce(ctx, url, config, dial)
	if err == nil && sha256.Sum256(document) != sum {
		err = fmt.Errorf("%s answered another document than the expected one, by its SHA-256", url)
	}

	return document, err
}

// judgeOf returns the TLS configuration that verifies the endpoint.
func (f *Fetcher) judgeOf(td spiffeid.TrustDomain, endpoint directory.BundleEndpoint) (*tls.Config, error) {
	if endpoint.Profile == directory.ProfileWeb {
		target, err := url.Parse(endpoint.URL)
		if err != nil {
			return nil, err
		}

		return certs.WebTLS(target.Hostname(), f.roots), nil
	}

	return ClientTLS(nil, f.bundles, func(id spiffeid.ID) error {
		if id == endpoint.ID || endpoint.ID.IsZero() && IsNode(id, td) {
			return nil
		}

		return fmt.Errorf("%s is not the bundle endpoint of %s", id, td)
	}), nil
}

// supersedes refuses a bundle that is older than old, or by which no identity of its
// domain could be trusted now. Ending the peering is the way to end all trust in a
// domain.
func supersedes(next, old *spiffebundle.Bundle, now time.Time) error {
	if had, ok := old.SequenceNumber(); ok {
		if has, ok := next.SequenceNumber(); !ok || has < had {
			return ErrBundleOlder
		}
	}

	return inForce(next, now)
}

// inForce refuses a bundle by which no identity of its domain could be trusted now.
func inForce(bundle *spiffebundle.Bundle, now time.Time) error {
	if !slices.ContainsFunc(bundle.X509Authorities(), func(a *x509.Certificate) bool {
		return !now.Before(a.NotBefore) && now.Before(a.NotAfter)
	}) {
		return errors.New("none of its authorities is in force")
	}

	return nil
}

// CheckBundle refuses a bundle of td that Set would refuse, or by which no identity of td could be
// trusted now.
func CheckBundle(td spiffeid.TrustDomain, jwks []byte, now time.Time) error {
	bundle, err := parseJWKS(td, jwks)
	if err == nil {
		err = checkAuthorities(td, bundle.X509Authorities())
	}

	if err == nil {
		err = inForce(bundle, now)
	}

	return err
}

// sameBundle reports whether two bundles have the same contents, in any order.
func sameBundle(a, b *spiffebundle.Bundle) bool {
	seqA, okA := a.SequenceNumber()
	seqB, okB := b.SequenceNumber()

	return seqA == seqB && okA == okB && maps.Equal(authoritiesOf(a), authoritiesOf(b))
}

// authoritiesOf returns the certificates of a bundle, and its keys of tokens by kid and thumbprint: one kid
// may name different keys in two bundles.
func authoritiesOf(b *spiffebundle.Bundle) map[string]bool {
	set := map[string]bool{}
	for _, a := range b.X509Authorities() {
		set[string(a.Raw)] = true
	}

	add := func(kind string, keys map[string]crypto.PublicKey) {
		for kid, key := range keys {
			sum, _ := (&jose.JSONWebKey{Key: key}).Thumbprint(crypto.SHA256) // of a key that was read from a JWK
			set[kind+" "+kid+" "+string(sum)] = true
		}
	}
	add("jwt", b.JWTAuthorities())
	add("wit", b.WITAuthorities())

	return set
}

func refreshOf(b *spiffebundle.Bundle) time.Duration {
	hint, ok := b.RefreshHint()
	if !ok {
		return refreshDefault
	}

	return min(max(hint, refreshLeast), refreshMost)
}

package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/limit/certs"
)

// A Reason is a one-word reason for the refusal of a credential: the label of a counter.
type Reason string

// Reasons for the refusal of a peer's certificate in the handshake.
const (
	ReasonVersion       Reason = "version"        // the client doesn't speak TLS 1.3
	ReasonNoCertificate Reason = "no_certificate" // none presented although one is required
	ReasonNoSAN         Reason = "no_san"         // no URI SAN
	ReasonManySANs      Reason = "many_sans"      // more than one URI SAN
	ReasonNotSPIFFE     Reason = "not_spiffe"     // the URI SAN is no SPIFFE ID of a workload
	ReasonUnknownDomain Reason = "unknown_domain" // no bundle of its trust domain
	ReasonUntrusted     Reason = "untrusted"      // its own domain's anchors do not certify it
	ReasonExpired       Reason = "expired"
	ReasonNotYetValid   Reason = "not_yet_valid"
	ReasonUsage         Reason = "usage"       // not for clientAuth, or serverAuth; or a CA
	ReasonNotAllowed    Reason = "not_allowed" // it holds, and is not wanted here
	ReasonExpensive     Reason = "expensive"   // its chain is over the bounds of certs.CheckChain
)

// A refusal is why a credential was refused.
type refusal struct {
	reason Reason
	err    error
}

func (r *refusal) Error() string { return string(r.reason) + ": " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func reasonOf(err error) Reason {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason
	}

	return ReasonUntrusted
}

type usage x509.ExtKeyUsage

const (
	forClient = usage(x509.ExtKeyUsageClientAuth)
	forServer = usage(x509.ExtKeyUsageServerAuth)
)

// verifyChain verifies the chain that a peer presented, leaf first, for one use, and
// returns the peer's identity. The library's Verify takes any extended key usage, so that
// is checked here: the leaf must name it, and no CA on the way may exclude it.
func verifyChain(chain []*x509.Certificate, b *Bundles, use usage, now time.Time) (spiffeid.ID, error) {
	id, _, err := verifyChainPath(chain, b, use, now)
	return id, err
}

// verifyChainPath is verifyChain, and returns by which certificates it holds too, leaf first and
// anchor last.
func verifyChainPath(chain []*x509.Certificate, bundles *Bundles, use usage, now time.Time) (spiffeid.ID,
	[]*x509.Certificate, error) {
	refuse := func(reason Reason, err error) (spiffeid.ID, []*x509.Certificate, error) {
		return spiffeid.ID{}, nil, &refusal{reason, err}
	}
	if len(chain) == 0 {
		return refuse(ReasonNoCertificate, errors.New("a certificate is demanded"))
	}

	// The bounds come before any signature is verified, because a stranger chooses the chain.
	if err := certs.CheckChain(chain); err != nil {
		return refuse(ReasonExpensive, err)
	}

	leaf := chain[0]
	switch len(leaf.URIs) {
	case 0:
		return refuse(ReasonNoSAN, errors.New("the certificate has no URI SAN"))
	case 1:
	default:
		return refuse(ReasonManySANs, errors.New("the certificate has several URI SANs"))
	}

	id, err := spiffeid.FromURI(leaf.URIs[0])
	if err == nil && id.Path() == "" {
		err = errors.New("the ID of a trust domain names no workload")
	}

	if err != nil {
		return refuse(ReasonNotSPIFFE, err)
	}

	// The library would refuse it as untrusted, but operators count unknown domains apart.
	if !bundles.Has(id.TrustDomain()) {
		return refuse(ReasonUnknownDomain, fmt.Errorf("%w: %s", ErrNoBundle, id.TrustDomain()))
	}

	if leaf.IsCA || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 || !signs(leaf) ||
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsage(use)) {
		return refuse(ReasonUsage, errors.New("the certificate is for another use"))
	}

	_, chains, err := x509svid.Verify(chain, bundles, x509svid.WithTime(now))
	if err != nil {
		return refuse(chainReason(err, now), datedError(err, id))
	}

	// One path that permits the use is enough, even if another leads through a restricted CA.
	at := slices.IndexFunc(chains, func(c []*x509.Certificate) bool { return permits(c[1:], use) })
	if at < 0 {
		return refuse(ReasonUsage, errors.New("a CA of the chain excludes that use"))
	}

	return id, chains[at], nil
}

// signs reports whether the certificate's key may sign, as every X509-SVID's must
// (X509-SVID, 4.3); the library asks it of one's own SVID alone.
func signs(leaf *x509.Certificate) bool { return leaf.KeyUsage&x509.KeyUsageDigitalSignature != 0 }

func permits(cas []*x509.Certificate, use usage) bool {
	for _, ca := range cas {
		// A CA without the extension may certify for every use (RFC 5280, 4.2.1.12).
		unrestricted := len(ca.ExtKeyUsage) == 0 && len(ca.UnknownExtKeyUsage) == 0
		if !unrestricted && !slices.Contains(ca.ExtKeyUsage, x509.ExtKeyUsageAny) &&
			!slices.Contains(ca.ExtKeyUsage, x509.ExtKeyUsage(use)) {
			return false
		}
	}

	return true
}

// datedError replaces the library's error for a certificate that is not in force by one
// that names its dates.
func datedError(err error, id spiffeid.ID) error {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return certs.ExplainAuthority(err)
	}

	return fmt.Errorf("the certificate of %s, or a CA of its chain, is valid from %s to %s", id,
		invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
}

func chainReason(err error, now time.Time) Reason {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return ReasonUntrusted
	}

	if invalid.Cert != nil && now.Before(invalid.Cert.NotBefore) {
		return ReasonNotYetValid
	}

	return ReasonExpired
}

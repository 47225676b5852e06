package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/operatorproof"
)

// A certificateSource returns the certificate that a client presents.
type certificateSource func() (*tls.Certificate, error)

// ProveBy has the client prove operators' requests by the certificate that a TLS configuration
// presents. New and NewDirect do so by themselves where they can see the configuration: it is
// for a client whose transport hides it.
func ProveBy(c *Client, config *tls.Config) *Client {
	c.certificate = certificateOf(config)
	return c
}

// certificateOf returns the source of a configuration's client certificate; nil if it presents
// none.
func certificateOf(config *tls.Config) certificateSource {
	switch {
	case config == nil:
		return nil
	case config.GetClientCertificate != nil:
		return func() (*tls.Certificate, error) {
			return config.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13})
		}
	case len(config.Certificates) > 0:
		return func() (*tls.Certificate, error) { return &config.Certificates[0], nil }
	}

	return nil
}

// certificateIn is certificateOf an HTTP client's transport, if that shows its configuration.
func certificateIn(hc *http.Client) certificateSource {
	if transport, ok := hc.Transport.(*http.Transport); ok {
		return certificateOf(transport.TLSClientConfig)
	}

	return nil
}

// isOrder reports whether a request takes an operator's proof: each change under /v1/operator,
// and the transfer of a registration, which an operator may force.
func isOrder(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return false
	}

	return strings.HasPrefix(r.URL.Path, "/v1/operator/") || strings.HasSuffix(r.URL.Path, "/transfer")
}

// prove adds the operator's proof to a request that takes one. Each attempt has a proof of its
// own, because a proof is good once.
func (source certificateSource) prove(r *http.Request, q *request) error {
	if source == nil || !isOrder(r) {
		return nil
	}

	certificate, err := source()
	if err != nil {
		return fmt.Errorf("proving the operator's request: %w", err)
	}

	if len(certificate.Certificate) == 0 {
		return nil // the client is anonymous
	}

	hash, err := q.hash()
	if err != nil {
		return err
	}

	text, err := ProveOperator(certificate, r.Method, r.URL.String(), hash)
	if err != nil {
		return err
	}

	r.Header.Set(operatorproof.Header, text)

	return nil
}

// ProveOperator returns the value of the header field Roster-Operator-Proof for one request by
// the holder of an X.509-SVID: a change at url, an absolute URL, whose body has that SHA-256.
// It is good once, within half a minute.
func ProveOperator(svid *tls.Certificate, method, url string, body [sha256.Size]byte) (string, error) {
	domain, err := domainOf(svid)
	if err != nil {
		return "", err
	}

	request := operatorproof.Request{Domain: domain, Method: method, URL: url, Body: body}

	text, err := operatorproof.Make(svid, request, time.Now())
	if err != nil {
		return "", fmt.Errorf("proving the operator's request: %w", err)
	}

	return text, nil
}

var errNoSVID = errors.New("client: the certificate is no X.509-SVID, and only the holder of one can prove an " +
	"operator's request")

// domainOf returns the trust domain of an SVID, which is that of its operator's directory.
func domainOf(certificate *tls.Certificate) (string, error) {
	if len(certificate.Certificate) == 0 {
		return "", errNoSVID
	}

	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil || len(leaf.URIs) != 1 {
		return "", errNoSVID
	}

	id, err := spiffeid.FromURI(leaf.URIs[0])
	if err != nil {
		return "", errNoSVID
	}

	return id.TrustDomain().Name(), nil
}

// hash returns the SHA-256 of a request's body.
func (q *request) hash() (hash [sha256.Size]byte, err error) {
	if q.stream == nil {
		return sha256.Sum256(q.body), nil
	}

	// A stream is read twice: here for its hash, and again when it is sent.
	sum := sha256.New()
	if _, err := io.Copy(sum, q.stream()); err != nil {
		return hash, fmt.Errorf("reading the body to prove it: %w", err)
	}

	return [sha256.Size]byte(sum.Sum(nil)), nil
}

package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/limit/certs"
)

// nodePath is the path prefix of the SPIFFE IDs of a domain's nodes.
const nodePath = "/roster/node/"

// A NodeTrust says which servers are nodes of a directory: those that show an X.509-SVID
// under the domain's node prefix, by the domain's own authorities. The host names and
// addresses in an SVID don't matter; SPIRE issues it without any. A server certificate
// without a SPIFFE ID, such as that of a public listener, is verified by host name and the
// system's authorities, never by the domain's.
type NodeTrust struct {
	// Domain is the trust domain of the directory. If it is empty, that of the first
	// server's SVID is taken.
	Domain string
	// Authorities returns the CA certificates of the domain. It is called for each
	// connection.
	Authorities func() []*x509.Certificate
	// Learned, if it is not nil, is called once with the domain that was taken from a
	// certificate. It must not block.
	Learned func(domain string)

	learn sync.Mutex // guards the domain that is taken from a certificate
	taken string
}

// A ServerError says why a server was not accepted as a node of the directory.
type ServerError struct {
	Host string // name by which the server was reached; empty for an address
	ID   string // SPIFFE ID of its certificate; empty for none
	Err  error
}

// Error returns the text of the cause.
func (e *ServerError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ServerError) Unwrap() error { return e.Err }

// TLS returns the configuration of a client that accepts these servers, without a client
// certificate.
func (t *NodeTrust) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // the standard verification requires host names; verify decides
		VerifyConnection:   t.verify,
		// A resumed session would skip the verification of the server.
		SessionTicketsDisabled: true,
	}
}

// OnlyNodes returns a copy of config for a client that learns addresses (Config.Learn).
// Beyond the hosts of the configured addresses, and of the proxies on the way to them, a
// server must show a certificate with a SPIFFE ID, which config.VerifyConnection verifies.
// A member that declares a foreign address, whose certificate holds by host name, thus gets
// no credentials. Config must be that of a NodeTrust. Configured hosts that are verified by
// name must be in ASCII (A-labels).
func OnlyNodes(config *tls.Config, addresses []string) *tls.Config {
	var hosts []string // as in the handshake: without a final dot, and empty for an IP address

	for _, address := range addresses {
		target, err := url.Parse(address)
		if err != nil {
			continue
		}

		hosts = append(hosts, serverName(target))

		// The handshake with an https proxy uses the same configuration.
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: target}); err == nil && proxy != nil {
			hosts = append(hosts, serverName(proxy))
		}
	}

	verify := config.VerifyConnection
	config = config.Clone()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		isServer := func(host string) bool { return strings.EqualFold(host, state.ServerName) }
		if !slices.ContainsFunc(hosts, isServer) && len(state.PeerCertificates) > 0 &&
			!hasSPIFFEID(state.PeerCertificates[0]) {
			return &ServerError{Host: state.ServerName, Err: errors.New("the server's certificate has no SPIFFE ID; " +
				"at an address that a node named, only nodes of the domain are accepted")}
		}

		return verify(state)
	}

	return config
}

// serverName returns the name of a URL's host in a TLS handshake.
func serverName(target *url.URL) string {
	host := strings.TrimSuffix(target.Hostname(), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}

	return host
}

func hasSPIFFEID(cert *x509.Certificate) bool {
	return slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return strings.EqualFold(uri.Scheme, "spiffe") })
}

func (t *NodeTrust) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return &ServerError{Host: state.ServerName, Err: errors.New("the server has no certificate")}
	}

	// A chain that would be expensive is refused before any signature is verified.
	if err := certs.CheckChain(state.PeerCertificates); err != nil {
		return &ServerError{Host: state.ServerName, Err: err}
	}

	leaf := state.PeerCertificates[0]

	if !hasSPIFFEID(leaf) {
		if err := verifyByName(state); err != nil {
			return &ServerError{Host: state.ServerName, Err: err}
		}

		return nil
	}

	id, err := spiffeid.FromURI(leaf.URIs[0])
	if err == nil && len(leaf.URIs) > 1 {
		err = errors.New("the server's certificate has several URIs; an X.509-SVID has one")
	}

	if err == nil {
		err = t.verifySVID(id, state.PeerCertificates)
	}

	if err != nil {
		return &ServerError{Host: state.ServerName, ID: id.String(), Err: err}
	}

	return nil
}

// verifyByName verifies a certificate without a SPIFFE ID by the system's authorities.
func verifyByName(state tls.ConnectionState) error {
	if state.ServerName == "" { // it is empty for an IP address, which nothing else names here
		return errors.New("the server's certificate has no SPIFFE ID, and no host name is known to verify it by; " +
			"give the host name in the address, or no bundle")
	}

	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		DNSName:       state.ServerName,
		Intermediates: poolOf(state.PeerCertificates[1:]),
	})
	if err != nil {
		return fmt.Errorf("the server's certificate has no SPIFFE ID, and by host name: %w", err)
	}

	return nil
}

// verifySVID verifies that a chain, leaf first, is the SVID of a node of the domain.
func (t *NodeTrust) verifySVID(id spiffeid.ID, chain []*x509.Certificate) error {
	if err := checkValidity(chain); err != nil {
		return err
	}

	leaf := chain[0]
	if leaf.IsCA || leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return fmt.Errorf("the certificate of %s is not an X.509-SVID: it must not be a CA, and its key must sign", id)
	}

	// Each authority certifies its own domain alone.
	authorities := slices.DeleteFunc(slices.Clone(t.Authorities()), func(authority *x509.Certificate) bool {
		return !certifies(authority, id.TrustDomain())
	})

	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:         poolOf(authorities),
		Intermediates: poolOf(chain[1:]),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("the bundle doesn't certify %s: %w", id, certs.ExplainAuthority(err))
	}

	if !strings.HasPrefix(id.Path(), nodePath) {
		return fmt.Errorf("%s is not a node of %s", id, id.TrustDomain())
	}

	return t.checkDomain(id)
}

// checkDomain refuses nodes of another domain than the directory's, and takes that of the
// first node if none is set.
func (t *NodeTrust) checkDomain(id spiffeid.ID) error {
	domain := t.Domain
	if domain == "" {
		// The lock is held during Learned, so that only one domain is ever learned.
		t.learn.Lock()
		if t.taken == "" {
			t.taken = id.TrustDomain().Name()
			if t.Learned != nil {
				t.Learned(t.taken)
			}
		}

		domain = t.taken
		t.learn.Unlock()
	}

	if id.TrustDomain().Name() != domain {
		return fmt.Errorf("%s is a node of another domain than %s", id, domain)
	}

	return nil
}

// ErrNotInForce is the cause of a ServerError if a certificate of the server has expired or is not
// valid yet: the trust bundle is not at fault.
var ErrNotInForce = errors.New("a certificate is not in force")

// A validityError says which certificate is not in force.
type validityError struct{ text string }

// Error returns the certificate and the time.
func (e *validityError) Error() string { return e.text }

// Is reports whether target is ErrNotInForce.
func (e *validityError) Is(target error) bool { return target == ErrNotInForce }

// checkValidity says plainly which certificate of a chain is not in force. A clock that is
// wrong is the other cause of it.
func checkValidity(chain []*x509.Certificate) error {
	now := time.Now()
	for i, cert := range chain {
		holder := "the node's certificate"
		if i > 0 {
			holder = fmt.Sprintf("the CA certificate %q of the node's chain", cert.Subject)
		}

		switch {
		case now.After(cert.NotAfter):
			return &validityError{fmt.Sprintf("%s expired at %s", holder, cert.NotAfter.UTC().Format(time.RFC3339))}
		case now.Before(cert.NotBefore):
			return &validityError{fmt.Sprintf("%s is valid from %s on; it is %s by this machine's clock", holder,
				cert.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
		}
	}

	return nil
}

// certifies reports whether an authority may certify IDs of td: its own SPIFFE ID, if it
// has one, names td (X509-SVID, 3.2).
func certifies(authority *x509.Certificate, td spiffeid.TrustDomain) bool {
	for _, uri := range authority.URIs {
		if strings.EqualFold(uri.Scheme, "spiffe") {
			named, err := spiffeid.TrustDomainFromURI(uri)
			return err == nil && named == td
		}
	}

	return true
}

func poolOf(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range certificates {
		pool.AddCert(cert)
	}

	return pool
}

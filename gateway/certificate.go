package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit/certs"
)

// tls returns the config of a connection to a host. Who answers is judged in
// VerifyConnection, which no handshake skips, and no session is resumed.
func (g *Guard) tls(host string, server server) *tls.Config {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		NextProtos:         []string{"h2", "http/1.1"},
		InsecureSkipVerify: true, // VerifyConnection judges
		VerifyConnection:   func(cs tls.ConnectionState) error { return g.judge(cs.PeerCertificates, host, server) },
	}
	if g.cfg.Certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if own := g.cfg.Certificate(); own != nil {
				return own, nil
			}

			return &tls.Certificate{}, nil // no certificate, by crypto/tls's contract
		}
	}

	return config
}

// judge checks whether a server may answer for host. Web PKI certifies the host; the
// registrant's domain certifies the registrant, or the host for its agents. A directory's
// own programs are never agents.
func (g *Guard) judge(chain []*x509.Certificate, host string, server server) error {
	if own := reservedName(chain[0]); own != "" {
		return refuse(RuleIdentity, nil, "%s shows %.200s, which is an identity of a directory", host, own)
	}

	id, err := g.spiffe(chain)

	ours := err == nil
	switch {
	case server.mutual && !ours:
		return refuse(RuleIdentity, err, "the agent speaks mTLS and shows no SVID that holds: %v", err)
	case server.mutual && id != server.registrant:
		return refuse(RuleIdentity, nil, "the agent speaks mTLS and shows %s; its registrant is %s", id,
			server.registrant)
	case server.mutual, ours && id == server.registrant:
		return nil
	case ours && g.certifies(id, server) && chain[0].VerifyHostname(host) == nil:
		return nil
	}

	// A server with an SVID of a stranger may still have the host's certificate by web PKI.
	if webErr := certs.VerifyWeb(chain, host, g.cfg.Roots); webErr != nil {
		return refuse(RuleCertificate, errors.Join(webErr, err),
			"%s shows a certificate that neither web PKI (%v) nor the registrant's domain certifies", host, webErr)
	}

	return nil
}

// certifies reports whether an SVID that names the host certifies it for a registrant's agents.
func (g *Guard) certifies(id spiffeid.ID, server server) bool {
	return g.permitted.Load().AnyBundle || id.TrustDomain() == server.registrant.TrustDomain()
}

// reservedName returns the name of a directory's own identity in a certificate; "" if it
// has none. The certificate need not be verified: no agent shows such a name.
func reservedName(leaf *x509.Certificate) string {
	for _, name := range leaf.URIs {
		if name.Scheme == "spiffe" && strings.HasPrefix(name.Path, directory.ReservedPath) {
			return name.String()
		}
	}

	return ""
}

// spiffe returns whose SVID the chain is, if it is one that holds.
func (g *Guard) spiffe(chain []*x509.Certificate) (spiffeid.ID, error) {
	if g.cfg.Judge == nil {
		return spiffeid.ID{}, errors.New("this node knows no bundles")
	}

	return g.cfg.Judge(chain)
}

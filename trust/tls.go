package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// All configs here speak TLS 1.3 only and resume no session, because a resumed one would
// skip the verification of the peer. The verification is in VerifyConnection, which no
// handshake skips. The standard library's own verification, which knows no SPIFFE, is
// off.

// ServerTLS returns the config of the API listener. A client certificate is requested
// and not demanded. An invalid one fails the handshake: it must have exactly one URI
// SAN, a SPIFFE ID whose own domain's anchors certify it now, for clientAuth. refused,
// if not nil, is called with the Reason of each refusal and must not block.
func ServerTLS(s *Source, bundles *Bundles, refused func(reason string)) *tls.Config {
	return serverTLS(s, refused, []string{"h2", "http/1.1"}, func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return nil
		}

		_, err := verifyChain(cs.PeerCertificates, bundles, forClient, time.Now())

		return err
	})
}

// NodeServerTLS is ServerTLS for listeners that only nodes talk to: a client
// certificate is demanded, and allow must take its ID. A nil allow takes none.
func NodeServerTLS(s *Source, b *Bundles, allow func(spiffeid.ID) error, refused func(reason string),
	protos ...string) *tls.Config {
	clients := newChainVerifier(b, forClient)

	return serverTLS(s, refused, protos, func(cs tls.ConnectionState) error {
		return judgeAllowed(cs, clients, allow)
	})
}

// ClientTLS returns the config of a client: the server must show an SVID that
// holds, for serverAuth, and that allow takes; its host name is not looked at. A
// nil allow takes none. A nil s shows no client certificate.
func ClientTLS(source *Source, b *Bundles, allow func(spiffeid.ID) error, protos ...string) *tls.Config {
	servers := newChainVerifier(b, forServer)

	config := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		NextProtos:             protos,
		InsecureSkipVerify:     true, // VerifyConnection judges
		VerifyConnection: func(cs tls.ConnectionState) error {
			return judgeAllowed(cs, servers, allow)
		},
	}
	if source != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return source.Certificate(), nil
		}
	}

	return config
}

func serverTLS(source *Source, refused func(string), protos []string,
	verify func(tls.ConnectionState) error) *tls.Config {
	if refused == nil {
		refused = func(string) {}
	}

	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		NextProtos:             protos,
		// Requested only, on every listener: so that a missing certificate comes
		// before VerifyConnection, which can count it.
		ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return source.Certificate(), nil
		},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			// A handshake that fails for its version never reaches VerifyConnection, so it is counted here.
			if !slices.Contains(hello.SupportedVersions, tls.VersionTLS13) {
				refused(string(ReasonVersion))
			}

			return nil, nil // the handshake refuses it
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			err := verify(cs)
			if err != nil {
				refused(string(reasonOf(err)))
			}

			return err
		},
	}
}

func judgeAllowed(cs tls.ConnectionState, j *ChainVerifier, allow func(spiffeid.ID) error) error {
	id, err := j.Verify(cs.PeerCertificates, time.Now())
	if err != nil {
		return err
	}

	if allow == nil {
		return &refusal{ReasonNotAllowed, errors.New("no identity is allowed here")}
	}

	if err := allow(id); err != nil {
		return &refusal{ReasonNotAllowed, err}
	}

	return nil
}

// VerifyServer returns the identity of the SVID that a server shows, for a client that judges some
// servers by other means too: that of the chain, leaf first, if it holds now for
// serverAuth.
func VerifyServer(chain []*x509.Certificate, b *Bundles) (spiffeid.ID, error) {
	return verifyChain(chain, b, forServer, time.Now())
}

// CheckSVID returns why a node's chain, leaf first, does not hold now for both of its
// uses, as client and as server; nil if it does.
func CheckSVID(chain []*x509.Certificate, bundles *Bundles) error {
	_, err := verifyChain(chain, bundles, forClient, time.Now())
	if err == nil {
		_, err = verifyChain(chain, bundles, forServer, time.Now())
	}

	return err
}

// PeerID returns the SPIFFE ID of the peer of a connection that one of our configs made,
// and whether it presented one. It returns false once the certificate has expired,
// because a connection may outlive it.
func PeerID(cs *tls.ConnectionState) (spiffeid.ID, bool) {
	if cs == nil || !cs.HandshakeComplete || !time.Now().Before(Expiry(cs)) {
		return spiffeid.ID{}, false
	}

	id, err := x509svid.IDFromCert(cs.PeerCertificates[0])

	return id, err == nil
}

// Expiry returns when the peer's certificate expires, and the connection with
// it; the zero time if the peer presented none.
func Expiry(cs *tls.ConnectionState) time.Time {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return time.Time{}
	}

	return cs.PeerCertificates[0].NotAfter
}

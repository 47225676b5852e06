package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// WebTLS returns the config of a client that verifies its server by VerifyWeb, as crypto/tls
// alone would, except for the bound on the chain. roots are the system's if nil.
func WebTLS(host string, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			return VerifyWeb(state.PeerCertificates, host, roots)
		},
	}
}

// VerifyWeb verifies a server's chain, leaf first, for a host: a name or an IP address. It
// refuses a chain over the bounds of CheckChain before it checks any signature.
func VerifyWeb(chain []*x509.Certificate, host string, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}

	if err := CheckChain(chain); err != nil {
		return err
	}

	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}

	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates})

	return err
}

package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// LoadTLS returns a TLS configuration from PEM files: the authorities that certify
// the directory, and the caller's X.509-SVID and its key. An empty bundle trusts
// the system's authorities; without cert and key the caller is anonymous. The
// certificate is read again for each connection, so that a renewed one is used
// as soon as it is there.
func LoadTLS(bundle, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}

	if bundle != "" {
		pem, err := os.ReadFile(bundle)
		if err != nil {
			return nil, fmt.Errorf("client: reading the bundle: %w", err)
		}

		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("client: the bundle %s has no certificate in PEM", bundle)
		}
	}

	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("client: a certificate and its key belong together; got %q and %q", cert, key)
	}

	if cert == "" {
		return config, nil
	}

	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("client: loading the client certificate: %w", err)
	}

	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}

	return config, nil
}

package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// TLSFiles are the PEM files of a connection, and the domain that it is for.
type TLSFiles struct {
	// Bundle has the CA certificates of the directory's domain. Without it the system's
	// authorities certify the server, by its host name.
	Bundle string
	// Domain is the trust domain of the directory. If it is empty, that of the first
	// server's SVID is taken.
	Domain string
	// Cert and Key are the caller's X.509-SVID and its key. Without them the caller is
	// anonymous.
	Cert, Key string
}

// LoadTLS returns the TLS configuration of a client of a directory. With a bundle the
// client accepts the nodes of the directory's domain alone, as NodeTrust says. The
// caller's certificate is read again for each connection, so that a renewed one is used
// as soon as it is there.
func LoadTLS(files TLSFiles) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}

	if files.Bundle != "" {
		authorities, err := readCertificates(files.Bundle)
		if err != nil {
			return nil, err
		}

		trusted := NodeTrust{
			Domain:      files.Domain,
			Authorities: func() []*x509.Certificate { return authorities },
		}
		config = trusted.TLS()
	}

	if (files.Cert == "") != (files.Key == "") {
		return nil, fmt.Errorf("client: a certificate and its key belong together; got %q and %q", files.Cert,
			files.Key)
	}

	if files.Cert == "" {
		return config, nil
	}

	// A pair that can't be used fails here, and not at the first connection.
	if _, err := tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
		return nil, fmt.Errorf("client: loading the client certificate: %w", err)
	}

	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		return &pair, err
	}

	return config, nil
}

// readCertificates returns the certificates of a PEM file; at least one.
func readCertificates(file string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("client: reading the bundle: %w", err)
	}

	var found []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("client: the bundle %s: %w", file, err)
		}

		found = append(found, cert)
	}

	if len(found) == 0 {
		return nil, fmt.Errorf("client: the bundle %s has no certificate in PEM", file)
	}

	return found, nil
}

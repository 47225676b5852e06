package connect

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// tlsConfig returns the client's TLS configuration: the Workload API's identity and bundle
// or those of files. A bundle file wins over the Workload API's bundle.
func (d *Directory) tlsConfig() (*tls.Config, error) {
	address, err := d.settings.workloadAddress()
	if err != nil {
		return nil, err
	}

	if address == "" {
		return d.settings.tlsFromFiles()
	}

	if err := d.identity.open(address); err != nil {
		return nil, err
	}

	config := d.identity.tlsConfig()
	if d.settings.value(flagBundle) == "" {
		return config, nil
	}

	withBundle, err := d.settings.tlsOfBundle()
	if err != nil {
		return nil, err
	}

	withBundle.GetClientCertificate = config.GetClientCertificate

	return withBundle, nil
}

// tlsOfBundle returns a configuration that trusts the CA certificates of --bundle, or the
// system's.
func (s *settings) tlsOfBundle() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}

	file := s.value(flagBundle)
	if file == "" {
		return config, nil
	}

	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot read the bundle: %w", err).
			WithHint("--bundle (or ROSTER_BUNDLE) must be a PEM file with CA certificates.")
	}

	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, cli.Failed(cli.ExitFailed, "bundle %s contains no PEM certificate", file)
	}

	return config, nil
}

func (s *settings) tlsFromFiles() (*tls.Config, error) {
	config, err := s.tlsOfBundle()
	if err != nil {
		return nil, err
	}

	cert := s.value(flagCert)

	key := s.value(flagKey)
	switch {
	case cert == "" && key == "":
		return config, nil // anonymous
	case cert == "":
		return nil, cli.Usage("--key without --cert").
			WithHint("Give both --cert and --key (or ROSTER_CERT and ROSTER_KEY), or neither to be anonymous.")
	case key == "":
		return nil, cli.Usage("--cert without --key").
			WithHint("Give both --cert and --key (or ROSTER_CERT and ROSTER_KEY), or neither to be anonymous.")
	}

	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, cli.Failed(cli.ExitKey, "cannot use the client certificate: %w", err).
			WithHint("--cert is %s and --key is %s.", cert, key)
	}

	// The files are read again for every connection, because SVIDs are renewed while a
	// long-running command such as register --keep runs.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}

	return config, nil
}

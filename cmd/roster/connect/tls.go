package connect

import (
	"crypto/tls"
	"os"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/trust"
)

// tlsConfig returns the client's TLS configuration: the Workload API's identity and bundle
// or those of files. A bundle file wins over the Workload API's bundle.
func (s *Session) tlsConfig() (*tls.Config, error) {
	// A command may make several clients, and the mixture is noted once.
	if names := s.settings.mixture(); len(names) > 0 && !s.settings.mixed {
		s.settings.mixed = true
		s.Note("Using %s of the context %s.", strings.Join(names, ", "), s.settings.selectedName)
	}

	address, err := s.settings.workloadAddress()
	if err != nil {
		return nil, err
	}

	if address != "" {
		if err := s.identity.open(address); err != nil {
			return nil, err
		}
	}

	// The Workload API is open by here, because its bundle may be the one to trust.
	config, err := s.serverTrust()
	if err != nil {
		return nil, err
	}

	if address != "" {
		config.GetClientCertificate = s.identity.certificate
		return config, nil
	}

	return config, s.settings.addCertificate(config)
}

// serverTrust returns a configuration that accepts the nodes of the directory's domain by a
// bundle: that of --bundle, or of the Workload API if it provides the identity. Without one
// the system's authorities certify the server's host name.
func (s *Session) serverTrust() (*tls.Config, error) {
	nodes := apiclient.NodeTrust{
		Domain: s.settings.domain(),
		Learned: func(domain string) {
			s.Note("The directory is of the domain %s, by its certificate; --domain %s accepts no other.",
				domain, domain)
		},
	}

	// A file comes first, because the Workload API may have no bundle of the directory's domain.
	switch file := s.settings.value(flagBundle); {
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, cli.Failed(cli.ExitFailed, "cannot read the bundle: %w", err).
				WithHint("--bundle (or ROSTER_BUNDLE) must be a file with CA certificates, " +
					"in PEM or as a SPIFFE bundle.")
		}

		bundle, err := trust.ParseBundle(spiffeid.TrustDomain{}, text)
		if err != nil {
			return nil, cli.Failed(cli.ExitFailed, "cannot use the bundle %s: %w", file, err)
		}

		nodes.Authorities = bundle.X509Authorities

	case s.identity.source != nil:
		if err := s.identity.trustNodes(&nodes); err != nil {
			return nil, err
		}

	default:
		return &tls.Config{MinVersion: tls.VersionTLS13}, nil
	}

	return nodes.TLS(), nil
}

// addCertificate adds the client certificate of --cert and --key, if there is one.
func (s *settings) addCertificate(config *tls.Config) error {
	cert := s.value(flagCert)

	key := s.value(flagKey)
	switch {
	case cert == "" && key == "":
		return nil // anonymous
	case cert == "":
		return cli.Usage("--key without --cert").
			WithHint("Give both --cert and --key (or ROSTER_CERT and ROSTER_KEY), or neither to be anonymous.")
	case key == "":
		return cli.Usage("--cert without --key").
			WithHint("Give both --cert and --key (or ROSTER_CERT and ROSTER_KEY), or neither to be anonymous.")
	}

	// A file that can't be used fails here with its reason, and not in a handshake.
	if _, err := loadCertificate(cert, key); err != nil {
		return err
	}

	// The files are read again for every connection, because SVIDs are renewed while a
	// long-running command such as register --keep runs.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return loadCertificate(cert, key)
	}

	return nil
}

// loadCertificate reads a client certificate. It refuses one that is not in force: the
// server's refusal would not say why.
func loadCertificate(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, cli.Failed(cli.ExitKey, "cannot use the client certificate: %w", err).
			WithHint("--cert is %s and --key is %s.", cert, key)
	}

	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		return nil, cli.Failed(cli.ExitKey, "the client certificate expired %s, %s ago",
			cli.FormatTime(pair.Leaf.NotAfter), cli.FormatAge(now.Sub(pair.Leaf.NotAfter))).
			WithHint("Renew your X.509-SVID; --cert is %s.", cert)
	case now.Before(pair.Leaf.NotBefore):
		return nil, cli.Failed(cli.ExitKey,
			"the client certificate is valid from %s on, and it is %s by this machine's clock",
			cli.FormatTime(pair.Leaf.NotBefore), cli.FormatTime(now)).WithHint("--cert is %s.", cert)
	}

	return &pair, nil
}

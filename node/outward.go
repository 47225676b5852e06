package node

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/node/config"
)

// readRoots reads certificate authorities in PEM; nil, which is the system's, where
// no file is named.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return roots, nil
}

// guardConfig returns the outbound rules of a block of the configuration: public addresses
// and those that the operator allows, with certificates of the web's CAs or of a file.
func guardConfig(key string, allow []string, ca string) (cfg gateway.GuardConfig, err error) {
	if cfg.Allow, err = config.ParseRanges(key+".allow", allow); err != nil {
		return cfg, err
	}

	if cfg.Roots, err = readRoots(ca); err != nil {
		return cfg, fmt.Errorf("%s.ca: %w", key, err)
	}

	return cfg, nil
}

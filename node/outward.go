package node

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"

	"github.com/roster-mesh/roster/gateway"
)

// validRanges judges ranges of addresses that a key of the configuration opens.
func validRanges(key string, texts []string) error {
	for i, text := range texts {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("%s[%d]: %q is no range of addresses, such as 10.0.0.0/8", key, i, text)
		}
	}
	return nil
}

// outward returns what is reached on behalf of a block of the configuration: public
// addresses and those that the operator allows, with certificates of the web's
// authorities or those of a file.
func outward(key string, allow []string, ca string) (cfg gateway.GuardConfig, err error) {
	for _, text := range allow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return cfg, fmt.Errorf("%s.allow: %w", key, err)
		}
		cfg.Allow = append(cfg.Allow, p)
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return cfg, fmt.Errorf("%s.ca: %w", key, err)
		}
		if cfg.Roots = x509.NewCertPool(); !cfg.Roots.AppendCertsFromPEM(pem) {
			return cfg, fmt.Errorf("%s.ca: %s has no certificate in PEM", key, ca)
		}
	}
	return cfg, nil
}

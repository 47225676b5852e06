package trust

import (
	"crypto/x509"
	"encoding/asn1"
	"testing"
)

// A CA certifies for the uses of its extension, for any if that says so, and for all without one.
//
// Requirement: TRUST-001
func TestACAPermitsTheUsesThatItNames(t *testing.T) {
	for name, c := range map[string]struct {
		ca             x509.Certificate
		client, server bool
	}{
		"no extension":   {x509.Certificate{}, true, true},
		"any":            {x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}, true, true},
		"servers":        {x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, false, true},
		"an unknown use": {x509.Certificate{UnknownExtKeyUsage: []asn1.ObjectIdentifier{{1, 2, 3}}}, false, false},
	} {
		both := []*x509.Certificate{{}, &c.ca}
		if client := permits(both, forClient); client != c.client {
			t.Errorf("%s: clients %t", name, client)
		}

		if server := permits(both, forServer); server != c.server {
			t.Errorf("%s: servers %t", name, server)
		}
	}
}

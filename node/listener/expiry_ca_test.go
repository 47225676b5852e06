package listener

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// A connection whose client certificate is of a CA that was taken out of the bundle
// ends with the next answer.
//
// Requirement: TRUST-002, TRUST-003
func TestAConnectionEndsWithItsCA(t *testing.T) {
	alpha := spiffeid.RequireTrustDomainFromString("alpha.test")
	bundles := trust.NewBundles()
	use := func() *trust.CA {
		ca, err := trust.NewCA(alpha, time.Now())
		if err == nil {
			err = bundles.SetX509(alpha, ca.Bundle().X509Authorities())
		}

		if err != nil {
			t.Fatal(err)
		}

		return ca
	}

	svid, err := use().Issue("/agent/ada", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	verifier := trust.NewClientVerifier(bundles)
	valid := func(state *tls.ConnectionState, now time.Time) bool {
		_, err := verifier.Verify(state.PeerCertificates, now)
		return err == nil
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	ExpireWithCertificates(s, valid)

	header := func() string {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "https://ad.alpha.test/", nil)
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: svid.Certificates}
		s.Handler.ServeHTTP(w, r)

		return w.Header().Get("Connection")
	}
	if got := header(); got != "" {
		t.Errorf("by the bundle that has its CA: %q", got)
	}

	use()

	if got := header(); got != "close" {
		t.Errorf("by another bundle: %q", got)
	}
}

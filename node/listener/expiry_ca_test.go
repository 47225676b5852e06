package listener

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
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

		must(t, err)

		return ca
	}

	svid, err := use().Issue("/agent/ada", time.Hour, time.Now())
	must(t, err)

	verifier := trust.NewClientVerifier(bundles)
	valid := func(state *tls.ConnectionState, now time.Time) bool {
		_, err := verifier.Verify(state.PeerCertificates, now)
		return err == nil
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	ExpireWithCertificates(s, valid)

	header := func(chain []*x509.Certificate) string {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "https://ad.alpha.test/", nil)
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: chain}
		s.Handler.ServeHTTP(w, r)

		return w.Header().Get("Connection")
	}
	if got := header(svid.Certificates); got != "" {
		t.Errorf("by the bundle that has its CA: %q", got)
	}

	use()

	if got := header(svid.Certificates); got != "close" {
		t.Errorf("by another bundle: %q", got)
	}

	if got := header(nil); got != "" {
		t.Errorf("a client without a certificate: %q", got)
	}
}

// Once a CA is taken out of its domain's bundle, the connections by its certificates end at once,
// with an answer that goes on for as long as its client reads; those of other clients stay.
//
// Requirement: TRUST-002, TRUST-003
func TestOpenConnectionsEndWithTheirCA(t *testing.T) {
	alpha := spiffeid.RequireTrustDomainFromString("alpha.test")
	bundles := trust.NewBundles()
	dropped, kept := newCA(t, alpha), newCA(t, alpha)
	must(t, bundles.SetX509(alpha, append(dropped.Bundle().X509Authorities(), kept.Bundle().X509Authorities()...)))

	verifier := trust.NewClientVerifier(bundles)
	began, more := make(chan struct{}, 2), make(chan struct{})
	s := &http.Server{TLSConfig: trust.ServerTLS(issue(t, kept, "/roster/node/1"), bundles, nil)}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}

		select {
		case <-more:
		case <-r.Context().Done():
		}
	})
	closeInvalid := ExpireWithCertificates(s, func(state *tls.ConnectionState, now time.Time) bool {
		_, err := verifier.Verify(state.PeerCertificates, now)
		return err == nil
	})

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	var serving sync.WaitGroup
	serving.Go(func() { _ = s.ServeTLS(ln, "", "") })
	defer serving.Wait()
	defer s.Close()

	ended := map[*trust.CA]chan error{}

	for _, ca := range []*trust.CA{dropped, kept} {
		anyone := func(spiffeid.ID) error { return nil }
		config := trust.ClientTLS(issue(t, ca, "/agent/ada"), bundles, anyone)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		defer client.CloseIdleConnections()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+ln.Addr().String(), nil)
		must(t, err)
		res, err := client.Do(req)
		must(t, err)
		defer res.Body.Close()

		<-began

		end := make(chan error, 1)
		ended[ca] = end

		go func() {
			_, err := io.Copy(io.Discard, res.Body)
			end <- err
		}()
	}

	must(t, bundles.SetX509(alpha, kept.Bundle().X509Authorities()))
	closeInvalid()

	select {
	case err := <-ended[dropped]:
		if err == nil {
			t.Error("the answer on the connection by the dropped CA was finished")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the connection by the dropped CA is open")
	}

	close(more)

	if err := <-ended[kept]; err != nil {
		t.Errorf("the answer on the connection by the other CA: %v", err)
	}
}

func newCA(t *testing.T, td spiffeid.TrustDomain) *trust.CA {
	t.Helper()
	ca, err := trust.NewCA(td, time.Now())
	must(t, err)

	return ca
}

func issue(t *testing.T, ca *trust.CA, path string) *trust.Source {
	t.Helper()
	svid, err := ca.Issue(path, time.Hour, time.Now())
	must(t, err)

	return trust.NewSource(svid)
}

var must = directorytest.Must

package protocol_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/federation/protocol"
)

var must = directorytest.Must

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, net.ErrClosed }

// The failure to reach a node is shown to operators: it names the node and the cause, and not the
// query of the request.
func TestAFailureNamesNodeAndCause(t *testing.T) {
	var failed error

	client := &protocol.Client{
		HTTP:   func(spiffeid.TrustDomain) *http.Client { return &http.Client{Transport: unreachable{}} },
		Failed: func(_ protocol.Node, err error) { failed = err },
	}
	node := protocol.Node{Domain: spiffeid.RequireTrustDomainFromString("beta.test"), Base: "https://beta.test:8443"}

	_, got := client.Get(t.Context(), node, protocol.PathPages, url.Values{"since": {"17"}}, 1024)
	_, posted := client.Post(t.Context(), node, protocol.PathRecords, []byte("{}"), "")

	for _, err := range []error{got, posted} {
		const want = "ask https://beta.test:8443: use of closed network connection"
		if err == nil || err.Error() != want || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	if failed == nil || !strings.Contains(failed.Error(), "closed") {
		t.Errorf("reported %v", failed)
	}
}

// An answer names the node by the certificate that it presented, also if the answer is empty or a refusal, or if the
// node rejects this node's certificate.
//
// Requirement: SEC-019
func TestAnAnswerNamesItsNode(t *testing.T) {
	id := spiffeid.RequireFromString("spiffe://beta.test/roster/node/1")
	statuses := map[string]int{"/full": http.StatusOK, "/empty": http.StatusNoContent, "/denied": http.StatusForbidden}

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(statuses[r.URL.Path])
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificateOf(t, id)}}
	server.StartTLS()
	t.Cleanup(server.Close)

	strict := httptest.NewUnstartedServer(nil)
	strict.EnableHTTP2 = true
	strict.TLS = &tls.Config{Certificates: server.TLS.Certificates, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: x509.NewCertPool()}
	strict.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	strict.StartTLS()
	t.Cleanup(strict.Close)

	transport := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: server.TLS.Certificates}}
	t.Cleanup(transport.CloseIdleConnections)

	client := &protocol.Client{
		HTTP:     func(spiffeid.TrustDomain) *http.Client { return &http.Client{Transport: transport} },
		Traffic:  &protocol.Traffic{},
		Answered: func(protocol.Node, http.Header) error { return nil },
		Failed:   func(protocol.Node, error) {},
	}

	for path, base := range map[string]string{
		"/full": server.URL, "/empty": server.URL, "/denied": server.URL, "/rejected": strict.URL,
	} {
		answer, err := client.Ask(t.Context(), protocol.Node{Domain: id.TrustDomain(), Base: base}, path, nil, 1024)
		if answer.By != id {
			t.Errorf("%s is by %q (%v)", path, answer.By, err)
		}
	}
}

// certificateOf returns a certificate of a node that it signed itself.
func certificateOf(t *testing.T, id spiffeid.ID) tls.Certificate {
	t.Helper()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)

	template := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: []*url.URL{id.URL()},
		NotAfter: time.Now().Add(time.Hour)}

	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	must(t, err)

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

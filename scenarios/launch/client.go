package launch

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
)

// Client returns a client that speaks as one of a domain's identities, such as agent/ada, or as nobody if who is
// empty.
func Client(t testing.TB, d *dev.Domain, who string) *http.Client {
	t.Helper()

	transport := &http.Transport{TLSClientConfig: configOf(t, d, who), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)

	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// Agent starts an agent's server, which shows the certificate of one of a domain's identities.
func Agent(t testing.TB, d *dev.Domain, who string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()

	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, Certificates: configOf(t, d, who).Certificates,
	}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)

	return server
}

// configOf returns the TLS configuration of a client.
func configOf(t testing.TB, d *dev.Domain, who string) *tls.Config {
	t.Helper()

	authorities, err := os.ReadFile(d.Bundle)
	if err != nil {
		t.Fatal(err)
	}

	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authorities)

	for _, id := range d.Identities {
		if id.SPIFFEID != "spiffe://"+d.TrustDomain+"/"+who {
			continue
		}

		pair, err := tls.LoadX509KeyPair(id.Cert, id.Key)
		if err != nil {
			t.Fatal(err)
		}

		config.Certificates = []tls.Certificate{pair}
	}

	if len(config.Certificates) == 0 && who != "" {
		t.Fatalf("%s has no identity %s", d.TrustDomain, who)
	}

	return config
}

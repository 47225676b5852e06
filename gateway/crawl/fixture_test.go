package crawl_test

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/roster-mesh/roster/gateway"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// serve starts an agent's server with real TLS on loopback.
func serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()

	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)

	return server
}

// newGuard returns a guard that may connect to loopback and trusts the server.
func newGuard(t testing.TB, server *httptest.Server) *gateway.Guard {
	t.Helper()

	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	guard := gateway.NewGuard(gateway.GuardConfig{Allow: loopback, Roots: roots})
	t.Cleanup(guard.Close)

	return guard
}

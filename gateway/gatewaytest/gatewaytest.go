// Package gatewaytest has the helpers that tests of the gateway's packages share: an
// agent's server on loopback and a guard that may reach it.
package gatewaytest

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/gateway"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Serve starts an agent's server with real TLS on loopback.
func Serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()

	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)

	return server
}

// NewGuard returns a guard that may connect to loopback and trusts a server.
func NewGuard(t testing.TB, server *httptest.Server) *gateway.Guard {
	t.Helper()

	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	guard := gateway.NewGuard(gateway.GuardConfig{Allow: loopback, Roots: roots})
	t.Cleanup(guard.Close)

	return guard
}

// WoAAgent is one agent of a Web of Agents document; more is JSON that follows its members.
func WoAAgent(id, more string) string {
	return `{"id":"` + id + `","name":"N","description":"D",` +
		`"inputs":{"type":"object","properties":{"password":{"type":"string","default":"x"}}},` +
		`"outputs":{"type":"object"},"transports":["rest"]` + more + `}`
}

// WoARest are transports of a Web of Agents document.
const WoARest = `{"rest":{"base":"https://api.example.com","invoke_path":"/agents/{agent_id}/invoke"}}`

// WoADocument is a Web of Agents document.
func WoADocument(transports string, agents ...string) string {
	return `{"woa_version":"1","agents":[` + strings.Join(agents, ",") + `],"transports":` + transports + `}`
}

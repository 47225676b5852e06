package probe_test

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
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

// woaAgent is the text of an agent; more are members.
func woaAgent(id, more string) string {
	return `{"id":"` + id + `","name":"N","description":"D","inputs":{"type":"object","properties":{"password":{"type":"string","default":"x"}}},"outputs":{"type":"object"},"transports":["rest"]` + more + `}`
}

const woaRest = `{"rest":{"base":"https://api.example.com","invoke_path":"/agents/{agent_id}/invoke"}}`

func woaDocument(transports string, agents ...string) string {
	return `{"woa_version":"1","agents":[` + strings.Join(agents, ",") + `],"transports":` + transports + `}`
}

// entry registers a document as that of spiffe://alpha.test/agent/alpha.
func entry(t testing.TB, kind directory.Kind, name, document string) *directory.Entry {
	t.Helper()

	doc, err := directory.ParseDocument(kind, []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	projection, err := directory.Project(name, doc)
	if err != nil {
		t.Fatal(err)
	}

	domain := spiffeid.RequireTrustDomainFromString("alpha.test")
	return &directory.Entry{
		Origin: domain, RID: directory.NewRID(1, [10]byte{}), Agent: name,
		Owner:    directory.IdentityOf(spiffeid.RequireFromPath(domain, "/agent/alpha")),
		Document: doc, Packed: directory.Pack(doc, projection), Statement: 1,
	}
}

package doctor

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/node/config"
)

// Agents trust the gateway of their own domain, so another domain's identity is none.
func TestAGatewayIsOfItsDomain(t *testing.T) {
	d := newDiagnosis(config.Config{TrustDomain: spiffeid.RequireTrustDomainFromString("alpha.test")}, nil)
	d.cfg.Gateway.Enabled = true
	d.gatewaySVID = &x509svid.SVID{ID: spiffeid.RequireFromString("spiffe://beta.test/roster/gateway/1"),
		Certificates: []*x509.Certificate{{}}}

	const want = "spiffe://beta.test/roster/gateway/1 is not a gateway's identity"

	d.gateway(t.Context())

	if len(d.findings) != 1 || d.findings[0].Status != StatusFailed || d.findings[0].Found != want {
		t.Errorf("it finds %+v, want %q", d.findings, want)
	}
}

// A panic is reported from the first one on.
func TestDoctorReportsAPanic(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("roster_panics_contained_total{place=\"record\"} 1\n"))
	}))
	defer node.Close()

	d := newDiagnosis(config.Config{Listen: config.Listen{Admin: node.Listener.Addr().String()}}, nil)
	d.runs = true
	d.health(t.Context())

	if last := d.findings[len(d.findings)-1]; last.Check != "panics" || last.Status != StatusWarning {
		t.Errorf("it finds %+v", d.findings)
	}
}

// An address without authentication that other machines reach is warned of, and no other.
func TestDoctorWarnsOfOpenPorts(t *testing.T) {
	d := newDiagnosis(config.Config{Listen: config.Listen{API: "127.0.0.1:0", Cluster: "127.0.0.1:0",
		Admin: "127.0.0.1:0", Health: "127.0.0.1:0", Metrics: "192.0.2.1:0"}}, nil)
	d.ports(t.Context())

	var warned []string

	for _, f := range d.findings {
		if f.Status == StatusWarning {
			warned = append(warned, f.Check)
		}
	}

	if got := strings.Join(warned, " "); got != "listen.metrics" {
		t.Errorf("it warns of %q", got)
	}
}

package doctor

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
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

// A private key that others than its owner may read, or write, is warned of.
func TestDoctorWarnsOfAKeyThatOthersRead(t *testing.T) {
	domain := spiffeid.RequireTrustDomainFromString("alpha.test")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key")
	bundle := filepath.Join(dir, "bundle.pem")

	ca, err := trust.NewCA(domain, time.Now())
	must(t, err)

	authorities, _ := ca.PEM()
	must(t, os.WriteFile(bundle, authorities, 0o600))

	svid, err := ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(t, err)
	must(t, trust.WriteSVID(svid, cert, key))

	for mode, warned := range map[os.FileMode]bool{
		0o600: false, 0o400: false, 0o640: true, 0o660: true, 0o620: true, 0o604: true, 0o644: true,
	} {
		must(t, os.Chmod(key, mode))

		d := newDiagnosis(config.Config{TrustDomain: domain,
			Identity: config.Identity{Cert: cert, Key: key, Bundle: bundle}}, nil)
		d.identity(t.Context())

		found := slices.ContainsFunc(d.findings, func(f Finding) bool {
			return f.Check == "identity.key" && f.Status == StatusWarning && strings.Contains(f.Do, "chmod 600 "+key)
		})
		if found != warned {
			t.Errorf("of mode %v: %+v", mode, d.findings)
		}
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

package attacks

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// An agent shows its own SVID, which names the host of the directory, and answers in the
// directory's place. Host names don't make a node: the client accepts the node prefix of the
// directory's domain alone. A node without host names is accepted.
//
// Requirement: TRUST-001
func TestAnAgentDoesNotPoseAsTheDirectory(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("alpha.test")
	ca, err := trust.NewCA(td, time.Now())
	must(t, err)
	pem, _ := ca.PEM()
	bundle := writeFile(t, t.TempDir(), "bundle.pem", pem)

	for path, want := range map[string]int{"/roster/node/1": 0, "/agent/eve": 12, "/roster/gateway/1": 12} {
		asked := 0
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++

			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"agents":[]}`)
		}))
		svid, err := ca.Issue(path, time.Hour, time.Now())
		must(t, err)
		source := trust.NewSource(svid)
		server.TLS = trust.ServerTLS(source, trust.NewBundles(), nil)
		server.TLS.Certificates = append(server.TLS.Certificates, *source.Certificate())
		server.StartTLS()
		defer server.Close()

		code, _, errs := runProgram(t, "lookup", "--address", server.URL, "--bundle", bundle)
		if code != want || (asked > 0) != (want == 0) {
			t.Errorf("%s: exit code %d, %d requests: %s", path, code, asked, errs)
		}

		if want != 0 && !strings.Contains(errs, "is not a node of alpha.test") {
			t.Errorf("%s: %s", path, errs)
		}
	}
}

// Sixteen hostile invocations at once cost a node a bounded amount of memory, and other
// callers' lookups stay fast (finding 3).
//
// Requirement: SEC-005
func TestHostileInputsCostOthersLittle(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	})

	var attacks []attack

	for i, hostile := range hostileJudgements() {
		name := fmt.Sprintf("hostile-%d", i)
		m.registerAgent(0, "agent/ada", name, server.URL, `"input_schema":`+hostile.schema)
		attacks = append(attacks, attack{hostile.name, "/agents/" + name + "/invoke", []byte(hostile.value)})
	}

	m.withstands(attacks)
}

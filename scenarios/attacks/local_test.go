package attacks

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/trust"
)

// Finding 23: an invitation was a long secret on the command line. It is now a short word
// that the command reads from a file or standard input. A local user who gets hold of it
// after its use makes no other domain a peer with it, and a changed one leads nowhere.
//
// Requirement: MESH-024
func TestAnInvitationIsOfUseOnce(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	alpha, beta := m.operator(0), m.operator(1)

	m.mustRun(append(alpha, "peer", "remove", "beta.test"))

	word := strings.TrimSpace(m.mustRun(append(alpha, "peer", "invite", "beta.test")))
	if len(word) > 160 {
		t.Errorf("the invitation has %d characters: %s", len(word), word)
	}

	token, err := operator.ParseToken(word)
	must(t, err)

	// A bundle other than that of the hash is refused, before any secret is shown.
	forged := token
	forged.BundleHash = sha256.Sum256([]byte("another"))

	code, _, errs := runProgram(t, append(beta, "peer", "accept", "@"+m.file([]byte(forged.String())))...)
	if code == 0 || !strings.Contains(errs, "SHA-256") {
		t.Errorf("another bundle: exit code %d: %s", code, errs)
	}

	file := "@" + m.file([]byte(word+"\n"))
	m.mustRun(append(beta, "peer", "accept", file))
	m.mustRun(append(beta, "peer", "accept", file)) // again: nothing changes

	// The secret after its use: by the same domain with another bundle, and by another domain.
	for _, domain := range []string{"beta.test", "gamma.test"} {
		ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString(domain), time.Now())
		must(t, err)
		bundle, err := ca.Bundle().Marshal()
		must(t, err)
		body, err := json.Marshal(map[string]any{
			"domain": domain, "secret": token.Secret, "bundle": json.RawMessage(bundle),
			"addresses": []string{"https://127.0.0.1:1"}, "describe": true,
		})
		must(t, err)

		status, answer, err := ask(t.Context(), m.as(0, "agent/eve"), http.MethodPost,
			m.Domains[0].Nodes[0].API+"/v1/peerings", body)
		if err != nil || status != http.StatusForbidden {
			t.Errorf("the used invitation as %s: %d %s %v", domain, status, answer, err)
		}
	}
}

// operator returns the flags of a domain's operator.
func (m *runningMesh) operator(domain int) []string {
	m.t.Helper()
	d := m.Domains[domain]

	for _, id := range d.Identities {
		if strings.HasSuffix(id.SPIFFEID, "/ops/operator") {
			return []string{"--address", d.Nodes[0].API, "--domain", d.TrustDomain, "--bundle", d.Bundle,
				"--cert", id.Cert, "--key", id.Key}
		}
	}

	m.t.Fatalf("%s has no operator", d.TrustDomain)

	return nil
}

// mustRun runs the real binary, and returns its data.
func (m *runningMesh) mustRun(args []string) string {
	m.t.Helper()

	code, out, errs := runProgram(m.t, args...)
	if code != 0 {
		m.t.Fatalf("%q: exit code %d: %s", args, code, errs)
	}

	return out
}

// file writes a file of the test, and returns its path.
func (m *runningMesh) file(text []byte) string {
	m.t.Helper()

	file, err := os.CreateTemp(m.t.TempDir(), "")
	must(m.t, err)

	_, err = file.Write(text)
	must(m.t, err)
	must(m.t, file.Close())

	return file.Name()
}

package attacks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
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

	// Beta isn't told that the peering ended, and has alpha as its peer when it accepts.
	m.mustRun(append(alpha, "peer", "set", "beta.test", "--nodes", "https://127.0.0.1:1"))
	m.mustRun(append(alpha, "peer", "remove", "beta.test"))

	word := strings.TrimSpace(m.mustRun(append(alpha, "peer", "invite", "beta.test")))
	if len(word) > 160 {
		t.Errorf("the invitation has %d characters: %s", len(word), word)
	}

	parts := strings.Split(word, "~") // prefix, domain, address, end, hash, secret
	if len(parts) != 6 {
		t.Fatalf("the invitation is %s", word)
	}

	// A bundle other than that of the hash is refused, before any secret is shown.
	another := sha256.Sum256([]byte("another"))
	forged := slices.Clone(parts)
	forged[4] = directory.B64.EncodeToString(another[:])

	code, _, errs := runProgram(t, append(beta, "peer", "accept", "@"+m.file([]byte(strings.Join(forged, "~"))))...)
	if code == 0 || !strings.Contains(errs, "SHA-256") {
		t.Errorf("another bundle: exit code %d: %s", code, errs)
	}

	file := "@" + m.file([]byte(word+"\n"))

	exports := func() bool {
		var shown struct{ Exported bool }
		must(t, json.Unmarshal([]byte(m.mustRun(append(beta, "peer", "show", "alpha.test", "-o", "json"))), &shown))

		return shown.Exported
	}

	if !exports() {
		t.Fatal("beta exports nothing to alpha before")
	}

	// Alpha has ended the former peering, and beta's exports with it.
	m.mustRun(append(beta, "peer", "accept", file))

	if exports() {
		t.Error("beta exports to the peer of a new agreement what it exported by the former one")
	}

	// Again: nothing changes.
	m.mustRun(append(beta, "peer", "export", "alpha.test"))
	m.mustRun(append(beta, "peer", "accept", file))

	if !exports() {
		t.Error("the repetition of an acceptance has ended the export")
	}

	// The secret after its use: by the same domain with another bundle, and by another domain.
	for _, domain := range []string{"beta.test", "gamma.test"} {
		ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString(domain), time.Now())
		must(t, err)
		bundle, err := ca.Bundle().Marshal()
		must(t, err)
		body, err := json.Marshal(map[string]any{
			"domain": domain, "secret": parts[5], "bundle": json.RawMessage(bundle),
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

// another is an account of the host that isn't the node's.
const another = 65534

// Another account of the host can't read keys, state and logs of a node, nor take its
// profiles: the data directory, which was open to all before, is its own, and so is the
// socket for profiles. The admin listener has none, and answers to no name that a web page
// could have (finding 15).
//
// Requirement: SEC-016
func TestOtherAccountsReadNothing(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]
	socket := filepath.Join(node.Data, "debug.sock")

	for path, mode := range map[string]fs.FileMode{
		node.Data:                               fs.ModeDir | 0o700,
		socket:                                  fs.ModeSocket | 0o600,
		filepath.Join(node.Data, "audit.jsonl"): 0o600,
	} {
		info, err := os.Stat(path)
		must(t, err)

		if info.Mode() != mode {
			t.Errorf("%s has mode %s, want %s", path, info.Mode(), mode)
		}
	}

	keys := filepath.Dir(node.Config)
	must(t, filepath.WalkDir(keys, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".key") {
			return err
		}

		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}

		return err
	}))

	if os.Geteuid() == 0 {
		cmd := exec.Command("/bin/ls", node.Data)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: another, Gid: another}}

		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("another account lists the data directory: %s", out)
		}
	}

	client := &http.Client{Timeout: 10 * time.Second}

	for path, want := range map[string]int{"/debug/pprof/": 404, "/debug/pprof/heap": 404, "/debug/pprof/trace": 404,
		"/metrics": 200, "/healthz": 200} {
		if status, _, err := ask(t.Context(), client, "GET", node.Admin+path, nil); err != nil || status != want {
			t.Errorf("%s: %d %v, want %d", path, status, err, want)
		}
	}

	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", node.Admin+path, nil)
		must(t, err)

		req.Host = "rebound.example"
		resp, err := client.Do(req)
		must(t, err)
		must(t, resp.Body.Close())

		if media := resp.Header.Get("Content-Type"); resp.StatusCode != 421 || media != "application/problem+json" {
			t.Errorf("%s as rebound.example: %d %s", path, resp.StatusCode, media)
		}
	}

	own := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	defer own.CloseIdleConnections()

	status, profile, err := ask(t.Context(), own, "GET", "http://localhost/debug/pprof/heap?gc=1", nil)
	if err != nil || status != 200 || len(profile) == 0 {
		t.Errorf("the node's own account: %d %v", status, err)
	}

	for who, want := range map[string]int{"agent/ada": 403, "audit/auditor": 403, "ops/operator": 200} {
		status, _, err := ask(t.Context(), m.as(0, who), "GET", node.API+"/v1/operator/debug/pprof/heap", nil)
		if err != nil || status != want {
			t.Errorf("%s: %d %v, want %d", who, status, err, want)
		}
	}
}

package attacks

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mustRun runs the real binary, and returns its data.
func (m *runningMesh) mustRun(args []string) string {
	m.t.Helper()

	code, out, errs := runProgram(m.t, args...)
	if code != 0 {
		m.t.Fatalf("%q: exit code %d: %s", args, code, errs)
	}

	return out
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

	client := &http.Client{Timeout: time.Minute}

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

	own := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
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

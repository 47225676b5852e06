package attacks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// A runningMesh is a development mesh of real processes, sockets and disks.
type runningMesh struct {
	t *testing.T
	*dev.Mesh
}

// startMesh runs roster dev with processes of their own for its nodes and with the
// limits of production, and waits until it is ready.
func startMesh(t *testing.T, flags ...string) *runningMesh {
	t.Helper()

	m, _ := startMeshIn(t, t.TempDir(), flags)

	return m
}

// startMeshWith is startMesh with other configurations of the nodes: a mesh is laid out,
// stopped, and started again after change has seen the text of each node's configuration.
func startMeshWith(t *testing.T, change func(text string) string, flags ...string) *runningMesh {
	t.Helper()

	dir := t.TempDir()
	m, stop := startMeshIn(t, dir, flags)
	stop()

	for _, domain := range m.Domains {
		for _, n := range domain.Nodes {
			text, err := os.ReadFile(n.Config)
			must(t, err)
			must(t, os.WriteFile(n.Config, []byte(change(string(text))), 0o600))
		}
	}

	m, _ = startMeshIn(t, dir, flags)

	return m
}

// startMeshIn is startMesh in a directory. stop ends the mesh before the test ends.
func startMeshIn(t *testing.T, dir string, flags []string) (m *runningMesh, stop func()) {
	t.Helper()

	if !directorytest.Full() {
		t.Skip("a long story; make stories runs it")
	}

	process, mesh, err := launch.Mesh(t.Context(), programPath, dir, append([]string{"--limits"}, flags...)...)
	must(t, err)

	stop = sync.OnceFunc(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)

	return &runningMesh{t, mesh}, stop
}

// as returns a client that speaks as one of a domain's identities, such as agent/ada.
func (m *runningMesh) as(domain int, who string) *http.Client {
	return launch.Client(m.t, &m.Domains[domain], who)
}

// flags returns the flags by which the program asks a domain's first node as one of its
// identities.
func (m *runningMesh) flags(domain int, who string) []string {
	m.t.Helper()
	d := m.Domains[domain]

	for _, id := range d.Identities {
		if id.SPIFFEID == "spiffe://"+d.TrustDomain+"/"+who {
			return []string{"--address", d.Nodes[0].API, "--domain", d.TrustDomain, "--bundle", d.Bundle,
				"--cert", id.Cert, "--key", id.Key}
		}
	}

	m.t.Fatalf("%s has no identity %s", d.TrustDomain, who)

	return nil
}

// ask does one request, with more header fields, and returns its status and body.
func ask(ctx context.Context, client *http.Client, method, url string, body []byte, header ...string) (status int,
	answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}

	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}

	for i := 0; i < len(header); i += 2 {
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}

	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))

	return resp.StatusCode, answer, err
}

// operatorOf returns a client that speaks as the operator of a node's domain.
func (m *runningMesh) operatorOf(n dev.Node) *http.Client {
	for domain := range m.Domains {
		if strings.HasPrefix(n.ID, "spiffe://"+m.Domains[domain].TrustDomain+"/") {
			return m.as(domain, "ops/operator")
		}
	}

	m.t.Fatalf("%s is of no domain", n.ID)

	return nil
}

// mostMemory returns how much a node's resident set may grow: the bar of the threat model if STORY_LONG asks for
// it, on a machine that does nothing else, and three times as much beside other tests, which keep the collector
// from its work.
func mostMemory(bar int64) int64 {
	if os.Getenv("STORY_LONG") == "" {
		return 3 * bar
	}

	return bar
}

// memory is the memory of a node's process, in bytes.
type memory struct {
	live     int64 // of the heap, after a collection
	resident int64 // of the process
}

func (m memory) String() string {
	return fmt.Sprintf("%.1f MiB live, %.1f MiB resident", float64(m.live)/(1<<20), float64(m.resident)/(1<<20))
}

func (m memory) minus(o memory) memory { return memory{m.live - o.live, m.resident - o.resident} }

// memoryOf collects a node's garbage and returns the memory in use.
func (m *runningMesh) memoryOf(n dev.Node) (is memory) {
	m.t.Helper()

	target := n.API + "/v1/operator/debug/pprof/heap?gc=1"

	status, _, err := ask(m.t.Context(), m.operatorOf(n), http.MethodGet, target, nil)
	if err != nil || status != http.StatusOK {
		m.t.Fatalf("a collection at %s: %d %v", n.ID, status, err)
	}

	is.live = int64(m.metric(n, "go_gc_heap_live_bytes"))
	is.resident = m.residentOf(n)

	return is
}

// residentOf returns the resident memory of a node's process, in bytes.
func (m *runningMesh) residentOf(n dev.Node) int64 {
	m.t.Helper()
	process, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID))
	must(m.t, err)

	resident := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(process)
	if resident == nil {
		m.t.Fatalf("no VmRSS in %s", process)
	}

	kilobytes, err := strconv.ParseInt(string(resident[1]), 10, 64)
	must(m.t, err)

	return kilobytes << 10
}

// metric returns the value of a series, by its name with its labels.
func (m *runningMesh) metric(n dev.Node, series string) float64 {
	m.t.Helper()
	admin := &http.Client{Timeout: time.Minute}
	_, page, err := ask(m.t.Context(), admin, http.MethodGet, n.Admin+"/metrics", nil)
	must(m.t, err)

	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(page)
	if line == nil {
		m.t.Fatalf("%s has no series %s", n.ID, series)
	}

	value, err := strconv.ParseFloat(string(line[1]), 64)
	must(m.t, err)

	return value
}

package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// runDev runs a development mesh in the background and returns its description
// once it is ready, what it printed, and its end.
func runDev(tb testing.TB, o Options) (m *Mesh, printed func() string, stop func() error) {
	tb.Helper()

	var out syncBuffer
	o.Out, o.Program = &out, "roster"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	stop = sync.OnceValue(func() error {
		cancel()

		select {
		case err := <-done:
			return err
		case <-time.After(node.CloseTimeout + 5*time.Second):
			return fmt.Errorf("dev did not end")
		}
	})
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})

	deadline := time.After(readyTimeout)
	for {
		if m, err := ReadMesh(o.Dir); err == nil && m.Ready {
			return m, out.String, stop
		}

		select {
		case err := <-done:
			done <- err
			tb.Fatalf("dev ended early: %v\n%s", err, out.String())
		case <-deadline:
			tb.Fatalf("dev was not ready in time:\n%s", out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// syncBuffer is a buffer that is written and read at once.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.b.String()
}

func reader(tb testing.TB, d Domain, node int) *apiclient.Client {
	tb.Helper()

	c, err := d.client(d.Nodes[node].API, "/client/reader")
	must(tb, err)

	return c
}

// One command runs three domains, and a lookup at one finds with verified
// provenance what was registered at another; its proof holds offline. The same
// directory brings the same mesh back.
//
// Requirement: OPS-001, OPS-002, MESH-001
func TestDevIsAMesh(t *testing.T) {
	dir := t.TempDir()
	o := Options{Domains: 3, Nodes: 1, Port: 0, Dir: dir, Sample: 12}
	m, printed, stop := runDev(t, o)
	requireCrossing(t, m)

	if i, j := strings.Index(printed(), "roster lookup"), strings.Index(printed(), "curl -K"); i < 0 || i > j {
		t.Errorf("dev suggests its own commands after curl's:\n%s", printed())
	}

	for _, want := range []string{"curl -K " + filepath.Join(dir, "curlrc"), "/ad/l?agent=", "/discovery/query' -H ",
		"/proof'", "roster verify --bundle"} {
		if !strings.Contains(printed(), want) {
			t.Errorf("dev prints no %q:\n%s", want, printed())
		}
	}

	must(t, stop())

	for _, d := range m.Domains {
		for _, n := range d.Nodes {
			addr := strings.TrimPrefix(n.API, "https://")

			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatalf("%s is still taken after dev ended: %v", addr, err)
			}

			must(t, l.Close())
		}
	}

	again, _, _ := runDev(t, o)
	if again.Domains[0].Nodes[0].API != m.Domains[0].Nodes[0].API {
		t.Errorf("the mesh came back at %s, not at %s", again.Domains[0].Nodes[0].API, m.Domains[0].Nodes[0].API)
	}

	requireCrossing(t, again)
}

// A mesh that starts again leaves peerings as operators left them: a frozen peer stays frozen, and a
// removed one is none.
//
// Requirement: OPS-002
func TestDevLeavesPeeringsToOperators(t *testing.T) {
	o := Options{Domains: 3, Nodes: 1, Port: 0, Dir: t.TempDir(), Sample: 3}
	m, _, stop := runDev(t, o)
	alpha, beta, gamma := m.Domains[0], m.Domains[1], m.Domains[2]

	frozen, err := beta.peering()
	must(t, err)

	frozen.State = directory.PeeringFrozen

	must(t, operatorOf(t, alpha).SetPeering(t.Context(), operator.WirePeering(frozen)))

	must(t, operatorOf(t, gamma).ChangePeering(t.Context(), "alpha.test", apiclient.PeerRemove))

	must(t, stop())

	_, printed, _ := runDev(t, o)

	for _, of := range []struct {
		domain     Domain
		peer, want string
	}{{alpha, "beta.test", "frozen"}, {gamma, "alpha.test", "terminated"}, {gamma, "beta.test", "active"}} {
		peers, _, err := operatorOf(t, of.domain).Peers(t.Context())
		must(t, err)

		state := "terminated" // an ended peering is not shown after a restart
		for _, peer := range peers {
			if peer.Domain == of.peer {
				state = peer.Agreed
			}
		}

		if state != of.want {
			t.Errorf("%s has %s as %s, want %s", of.domain.TrustDomain, of.peer, state, of.want)
		}
	}

	if !strings.Contains(printed(), "as their operators left them") {
		t.Errorf("dev doesn't say why not every agent is shown:\n%s", printed())
	}
}

func operatorOf(t *testing.T, d Domain) *apiclient.Operator {
	t.Helper()

	c, err := d.client(d.Nodes[0].API, "/ops/operator")
	must(t, err)

	return c.Operator()
}

// requireCrossing fails unless gamma.test shows an agent of alpha.test with
// verified provenance, and a proof that holds.
func requireCrossing(t *testing.T, m *Mesh) {
	t.Helper()
	alpha, gamma := m.Domains[0], m.Domains[2]
	c := reader(t, gamma, 0)

	page, err := c.Lookup(t.Context(), apiclient.LookupOptions{Agent: "invoice-reader"})
	must(t, err)

	if len(page.Agents) != 1 {
		t.Fatalf("gamma.test shows %d invoice-readers, want 1", len(page.Agents))
	}

	p := page.Agents[0].Provenance
	if p.Authority != "alpha.test" || p.Verification.State != "verified" || p.Service != alpha.Nodes[0].API {
		t.Errorf("its provenance is %+v", p)
	}

	proof, err := c.Proof(t.Context(), page.Agents[0].Href)
	must(t, err)

	bundle, err := bundleOf(alpha.Bundle, alpha.TrustDomain)
	must(t, err)

	report, err := trust.Verify(proof.Body, trust.VerifyOptions{Bundle: bundle, At: time.Now()})
	if err != nil {
		t.Fatalf("the proof does not hold: %v\n%+v", err, report)
	}
}

// A leader that is lost while the mesh begins doesn't end the start, and a refusal does.
//
// Requirement: OPS-001
func TestASampleAgentRegistersAgainAfterALostLeader(t *testing.T) {
	answers := []string{
		`{"type":"problems/unavailable","status":503}`,
		`{"type":"problems/outcome-unknown","status":503}`,
		`{"type":"problems/forbidden","status":403}`,
	}

	var asked atomic.Int32

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")

		answer := answers[min(int(asked.Add(1)), len(answers))-1]
		if strings.Contains(answer, "503") {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			w.WriteHeader(http.StatusForbidden)
		}

		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)

	client := apiclient.NewDirect(server.URL, server.Client())
	agent := sampleAgent{Agent: "helper", Document: []byte(`{}`), client: client}

	err := agent.register(t.Context())
	if !errors.Is(err, apiclient.ErrForbidden) || asked.Load() != 3 {
		t.Errorf("after %d requests: %v; want the refusal of the third", asked.Load(), err)
	}
}

// A port that is taken is named, with what to do.
//
// Requirement: OPS-002
func TestDevNamesATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port

	err = Run(t.Context(), Options{Domains: 1, Nodes: 1, Port: port, Dir: t.TempDir(), Out: &syncBuffer{}})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(port)) || !strings.Contains(err.Error(), "--port") {
		t.Errorf("got %v, want the port and --port", err)
	}

	if _, linux := os.Stat("/proc/net/tcp"); linux == nil &&
		!strings.Contains(err.Error(), fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("got %v, want the process that listens there", err)
	}
}

// Without --limits a mesh for trying things refuses nobody for a rate or a quota; with
// it the nodes have the limits of roster serve.
//
// Requirement: FORM-005
func TestLimitsAreThoseOfServeOrNone(t *testing.T) {
	for limited, want := range map[bool]config.Limits{false: {}, true: config.Default().Limits} {
		mesh, ports, err := (&Options{Domains: 1, Nodes: 1, Dir: t.TempDir(), Limits: limited}).plan()
		must(t, err)

		ports.close()

		config, err := config.Load(mesh.Domains[0].Nodes[0].Config)
		must(t, err)

		got := config.Limits
		if got.BytesPerOwner != want.BytesPerOwner || got.RegistrationsPerOwner != want.RegistrationsPerOwner ||
			got.RegistrationsPerDomain != want.RegistrationsPerDomain || got.BytesPerDomain != want.BytesPerDomain ||
			got.RecordsPerPeer != want.RecordsPerPeer || got.BytesPerPeer != want.BytesPerPeer ||
			got.Queries != want.Queries {
			t.Errorf("limits %v: a node has %+v, want %+v", limited, got, want)
		}
	}
}

// A minted identity works at once and stands in mesh.json.
func TestMint(t *testing.T) {
	dir := t.TempDir()
	runDev(t, Options{Domains: 1, Nodes: 1, Port: 0, Dir: dir})

	id, err := Mint(dir, "alpha.test", "/agent/zoe")
	must(t, err)

	m, err := ReadMesh(dir)
	must(t, err)

	d := m.Domains[0]
	if !slices.Contains(d.Identities, *id) || !m.Ready {
		t.Errorf("mesh.json lacks %v, or is no longer ready", id)
	}

	c, err := d.client(d.Nodes[0].API, "/agent/zoe")
	must(t, err)

	if _, err := c.Register(t.Context(), "zoe", []byte(`{"base":"https://zoe.alpha.test/"}`),
		apiclient.RegisterOptions{}); err != nil {
		t.Error(err)
	}

	running := &runningMesh{Mesh: m, opt: Options{Dir: dir}}

	var minting sync.WaitGroup
	for i := range 8 { // at once, while the mesh writes its state, and none is lost
		minting.Go(func() {
			if _, err := Mint(dir, "alpha.test", fmt.Sprint("/agent/twin-", i)); err != nil {
				t.Error(err)
			}
		})
	}

	for range 8 {
		if err := running.save(true); err != nil {
			t.Error(err)
		}
	}

	minting.Wait()

	after, err := ReadMesh(dir)
	if err != nil || len(after.Domains[0].Identities) != len(d.Identities)+8 {
		t.Errorf("%d identities before 8 more, %d after: %v", len(d.Identities), len(after.Domains[0].Identities), err)
	}

	for _, bad := range []struct{ domain, path string }{{"omega.test", "/agent/x"}, {"alpha.test", "agent"},
		{"alpha.test", "/a/../b"}} {
		if _, err := Mint(dir, bad.domain, bad.path); err == nil {
			t.Errorf("minted %s%s", bad.domain, bad.path)
		}
	}

	if leftovers, _ := filepath.Glob(filepath.Join(dir, ".mesh.json.*")); len(leftovers) > 0 {
		t.Errorf("left behind: %v", leftovers)
	}

	other := t.TempDir()
	if _, err := Mint(other, "alpha.test", "/agent/x"); err == nil || !strings.Contains(err.Error(), other) {
		t.Errorf("minted in a directory without a mesh: %v", err)
	}

	if files, err := os.ReadDir(other); err != nil || len(files) > 0 {
		t.Errorf("a refused mint left %v: %v", files, err)
	}

	if _, err := os.Stat(id.Key); err != nil {
		t.Error(err)
	}
}

func awaitAgent(b testing.TB, c *apiclient.Client, name string) {
	again := time.Tick(time.Millisecond)
	for range 10_000 {
		page, err := c.Lookup(b.Context(), apiclient.LookupOptions{Agent: name})
		must(b, err)

		if len(page.Agents) > 0 {
			return
		}

		<-again
	}

	b.Fatalf("%s is not visible", name)
}

// What stays at home has a record there, no proof, and nothing anywhere else.
func TestWhatStaysAtHome(t *testing.T) {
	m, _, _ := runDev(t, Options{Domains: 2, Nodes: 1, Port: 0, Dir: t.TempDir()})

	ada, err := m.Domains[0].client(m.Domains[0].Nodes[0].API, "/agent/ada")
	must(t, err)

	document := []byte(`{"base":"https://home.alpha.test/"}`)

	at, err := ada.Register(t.Context(), "stays", document, apiclient.RegisterOptions{Visibility: "domain"})
	must(t, err)

	if _, err := ada.Register(t.Context(), "goes", document, apiclient.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}

	record, err := ada.Record(t.Context(), at.RID)
	must(t, err)

	var refused *apiclient.Error
	if _, err := ada.Proof(t.Context(), at.RID); !errors.As(err, &refused) || refused.Status != 404 ||
		!strings.Contains(refused.Detail, "is not exported") {
		t.Errorf("its proof: %v", err)
	}

	beta := reader(t, m.Domains[1], 0)
	awaitAgent(t, beta, "goes") // which came later

	// Its record is verified by the domain's key document, which every proof holds.
	other, err := ada.Proof(t.Context(), "goes")
	must(t, err)

	proof, err := trust.ParseProof(other.Body)
	must(t, err)

	report, err := trust.Verify(bytes.TrimSpace(record.Body), trust.VerifyOptions{Keys: proof.Keys})
	if err != nil || !report.Authentic {
		t.Errorf("its record: %v\n%s", err, report)
	}

	page, err := beta.Lookup(t.Context(), apiclient.LookupOptions{Agent: "stays"})
	if err != nil || len(page.Agents) != 0 {
		t.Errorf("at beta: %v, %v", page, err)
	}
}

var must = directorytest.Must

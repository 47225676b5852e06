package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// Bars of a hostile endpoint.
const (
	endpointMemory = 128 << 20 // bytes that all exchanges with it may add to a node's resident set
	endpointLog    = 256 << 10
	endpointTime   = time.Minute // of one invocation; its timeout is 3 s here
	endpointRounds = 4           // invocations of each kind at once
)

// shipped is a node's configuration with the shipped policy, a short timeout of invocations,
// and a prober and a crawler that may reach loopback. ca certifies the crawler's origin.
func shipped(origin, ca string) func(text string) string {
	return func(text string) string {
		for _, change := range [][2]string{
			{"policy: development", "policy: shipped"},
			{"    timeout: 30s\n", "    timeout: 3s\n"},
		} {
			text = strings.Replace(text, change[0], change[1], 1)
		}

		text = withoutBlock(withoutBlock(text, "probe"), "crawl")

		return text + fmt.Sprintf("probe: {enabled: true, every: 1m, concurrent: 8, allow: [127.0.0.0/8]}\n"+
			"crawl: {as: %q, origins: [%q], allow: [127.0.0.0/8], ca: %q}\n",
			"spiffe://alpha.test/agent/crawler", origin, ca)
	}
}

// withoutBlock removes a top-level block from a configuration.
func withoutBlock(text, name string) string {
	var kept []string

	within := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			within = strings.HasPrefix(line, name+":")
		}

		if !within {
			kept = append(kept, line)
		}
	}

	return strings.Join(kept, "")
}

// A hostileEndpoint answers with what costs its caller most, by the first segment of the
// path, until the caller gives up.
type hostileEndpoint struct {
	*httptest.Server
	away   atomic.Value   // where redirects lead to
	mu     sync.Mutex     // guards the next two
	asked  map[string]int // requests by the last segment of the path
	shown  map[string]bool
	broken chan struct{} // closed when the test ends
}

func newHostileEndpoint(t *testing.T) *hostileEndpoint {
	t.Helper()

	h := &hostileEndpoint{asked: map[string]int{}, shown: map[string]bool{}, broken: make(chan struct{})}
	h.Server = httptest.NewUnstartedServer(h)
	h.Server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	h.EnableHTTP2 = true
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	h.StartTLS()
	t.Cleanup(func() {
		close(h.broken)
		h.CloseClientConnections()
		h.Close()
	})

	return h
}

// hostileKinds are the endpoints, by path. Each is invoked, and described for the prober.
var hostileKinds = []string{"silent", "drip", "bomb", "large", "headers", "redirect", "plain-redirect",
	"metadata-redirect", "events", "deep", "garbage"}

func (h *hostileEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.asked[path.Base(r.URL.Path)]++

	for _, cert := range r.TLS.PeerCertificates {
		h.shown[fmt.Sprint(cert.URIs)] = true
	}

	h.mu.Unlock()

	kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/json")

	switch kind {
	case "silent":
		h.wait(r)
	case "drip", ".well-known": // the crawler's document drips, too
		h.endless(w, r, []byte(" "), 10*time.Millisecond)
	case "bomb":
		w.Header().Set("Content-Encoding", "gzip")
		h.endless(w, r, make([]byte, 64<<10), 0)
	case "large":
		h.endless(w, r, bytes.Repeat([]byte("[1],"), 16<<10), 0)
	case "headers":
		for i := range 900 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
		}
	case "redirect":
		http.Redirect(w, r, h.away.Load().(string), http.StatusTemporaryRedirect)
	case "plain-redirect":
		http.Redirect(w, r, strings.Replace(h.away.Load().(string), "https", "http", 1), http.StatusPermanentRedirect)
	case "metadata-redirect":
		http.Redirect(w, r, "https://169.254.169.254/latest/meta-data/", http.StatusFound)
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		h.endless(w, r, []byte("data: "+strings.Repeat("x", 32<<10)+"\n\n"), time.Millisecond)
	case "deep":
		_, _ = io.WriteString(w, strings.Repeat(`{"a":`, 100_000))
	default:
		_, _ = w.Write(bytes.Repeat([]byte{0xff, 0, '{'}, 1000))
	}
}

func (h *hostileEndpoint) wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-h.broken:
	}
}

// endless writes a part again and again.
func (h *hostileEndpoint) endless(w http.ResponseWriter, r *http.Request, part []byte, pause time.Duration) {
	for r.Context().Err() == nil {
		if _, err := w.Write(part); err != nil {
			return
		}

		_ = http.NewResponseController(w).Flush()

		select {
		case <-h.broken:
			return
		case <-time.After(pause):
		}
	}
}

// A hostile endpoint is invoked, probed and crawled at once: by slow and endless answers,
// packed ones, huge headers, redirects to the inside and garbage. Each exchange ends in its
// time, nothing behind a redirect is reached, what it costs the node is bounded, and the
// endpoint sees the gateway's identity and never the node's (findings 4 and 14).
//
// Requirement: SEC-009, SEC-010, WOA-018, AI-017
func TestAHostileEndpointCostsANodeLittle(t *testing.T) {
	endpoint := newHostileEndpoint(t)
	inside := newHostileEndpoint(t)
	endpoint.away.Store(inside.URL + "/garbage")

	// The endpoint's certificate is of no trust domain: web PKI certifies it by its host.
	authority := writeFile(t, t.TempDir(), "ca.pem",
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw}))
	m := startMeshWith(t, func(text string) string {
		text = shipped(endpoint.URL, authority)(text)
		return strings.Replace(text, "allow: [127.0.0.0/8]}", "allow: [127.0.0.0/8], ca: "+authority+"}", 1)
	}, "--domains", "1")
	node := m.Domains[0].Nodes[0]

	// For the gateway the agent shows an SVID of the domain, which is what it certifies.
	agents := m.agentServer(0, "agent/ada", endpoint.ServeHTTP)

	for _, kind := range hostileKinds {
		m.registerAgent(0, "agent/ada", kind, agents.URL+"/"+kind, `"input_schema":{"type":"object"}`)
		m.registerCard(kind, endpoint.URL+"/"+kind)
	}

	before, logBefore := m.memoryOf(node), logSize(t, node)
	caller := m.as(0, "agent/bob")

	var calls sync.WaitGroup

	for _, kind := range hostileKinds {
		for range endpointRounds {
			calls.Go(func() { m.invokeHostile(caller, kind) })
		}
	}

	calls.Wait()

	admin := &http.Client{Timeout: time.Minute}

	// The prober takes a card at a time from one host, for 10 s at most.
	launch.Eventually(t, "the endpoint is probed, found unreachable, and crawled", func() error {
		endpoint.mu.Lock()
		defer endpoint.mu.Unlock()

		for _, part := range []string{"agent-card.json", "woa.json", "silent", "events"} {
			if endpoint.asked[part] == 0 {
				return fmt.Errorf("nothing asked for %s", part)
			}
		}

		_, page, err := ask(t.Context(), admin, http.MethodGet, node.Admin+"/metrics", nil)

		found := regexp.MustCompile(`(?m)^roster_probes_total\{state="unreachable"\} ([3-9]|\d\d)`).Match(page)
		if err == nil && !found {
			err = fmt.Errorf("%s", regexp.MustCompile(`(?m)^roster_prob.*$`).FindAll(page, -1))
		}

		return err
	})

	cost, logged := m.memoryOf(node).minus(before), logSize(t, node)-logBefore

	endpoint.mu.Lock()
	defer endpoint.mu.Unlock()
	inside.mu.Lock()
	defer inside.mu.Unlock()

	t.Logf("requests %v cost %s and %d bytes of log", endpoint.asked, cost, logged)

	if cost.resident > mostMemory(endpointMemory) || logged > endpointLog {
		t.Errorf("it cost %s and %d bytes of log", cost, logged)
	}

	if len(inside.asked) > 0 {
		t.Errorf("requests reached what a redirect led to: %v", inside.asked)
	}

	if len(endpoint.shown) != 1 || !endpoint.shown["[spiffe://alpha.test/roster/gateway/1]"] {
		t.Errorf("the endpoint was shown %v", endpoint.shown)
	}
}

// invokeHostile invokes a hostile agent, which must fail in its time.
func (m *runningMesh) invokeHostile(caller *http.Client, kind string) {
	began := time.Now()

	ctx, cancel := context.WithTimeout(m.t.Context(), 2*endpointTime)
	defer cancel()

	status, answer, err := ask(ctx, caller, http.MethodPost,
		m.Domains[0].Nodes[0].API+"/agents/"+kind+"/invoke", []byte(`{"a":1}`))

	failed := err == nil && status >= 400
	if kind == "events" { // which are passed on until their time is over, and then cut off
		failed = failed || err != nil
	}

	if !failed || strings.Contains(string(answer), "169.254") {
		m.t.Errorf("%s: %d %.200s %v", kind, status, answer, err)
	}

	if took := time.Since(began); took > endpointTime {
		m.t.Errorf("%s took %s", kind, took)
	}
}

// registerCard registers an A2A agent at a base, for the prober.
func (m *runningMesh) registerCard(name, base string) {
	m.t.Helper()

	document := fmt.Appendf(nil, `{"base":%q,"protocols":["a2a"]}`, base)
	target := m.Domains[0].Nodes[0].API + "/ad/r?lt=3600&agent=card-" + name

	status, _, answer, err := m.register(m.as(0, "agent/ada"), target, document)
	if err != nil || status != http.StatusCreated {
		m.t.Fatalf("%s: %d %s %v", name, status, answer, err)
	}
}

func logSize(t *testing.T, n dev.Node) int64 {
	t.Helper()

	info, err := os.Stat(filepath.Join(filepath.Dir(n.Config), "node.log"))
	must(t, err)

	return info.Size()
}

// The holder of a gateway's key, which is what an endpoint would have if a gateway gave its
// identity away, gets nothing of a directory by it, at its own domain and at a peer: not a
// read, not a route of nodes or operators, not a connection of the cluster or of gossip. The
// node's own identity is never in a gateway's hands (finding 4).
//
// Requirement: SEC-009
func TestAGatewaysIdentityOpensNothing(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	folder := filepath.Dir(m.Domains[0].Nodes[0].Config)
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "gateway.pem"), filepath.Join(folder, "gateway.key"))
	must(t, err)

	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)

	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}

	for domain, d := range m.Domains {
		for _, request := range [][2]string{
			{"GET", "/ad/l"}, {"GET", "/agents"}, {"POST", "/discovery/query"}, {"POST", "/ad/r?agent=mine"},
			{"POST", "/mcp"}, {"GET", "/v1/operator/members"}, {"PUT", "/v1/operator/policy"},
			{"GET", "/federation/v1/heads?origin=alpha.test"}, {"GET", "/federation/v1/keys?origin=alpha.test"},
			{"POST", "/federation/v1/records"},
		} {
			var body []byte
			if request[0] != http.MethodGet {
				body = []byte(`{"query":"a"}`)
			}

			status, answer, err := ask(t.Context(), client, request[0], d.Nodes[0].API+request[1], body)
			if err != nil || status != http.StatusForbidden {
				t.Errorf("%s %s at domain %d: %d %.200s %v", request[0], request[1], domain, status, answer, err)
			}
		}

		for name, address := range map[string]string{"cluster": d.Nodes[0].Raft, "gossip": d.Nodes[0].Gossip} {
			if err := shakesHands(config, address); err == nil {
				t.Errorf("the %s listener of domain %d takes a gateway", name, domain)
			}
		}

		m.refusesVia(d.Nodes[0])
	}
}

// refusesVia asks a node's admin listener through an intermediary.
func (m *runningMesh) refusesVia(n dev.Node) {
	m.t.Helper()

	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, n.Admin+path, nil)
		must(m.t, err)
		request.Header.Set("Via", "1.1 roster-gateway")

		resp, err := (&http.Client{Timeout: time.Minute}).Do(request)
		must(m.t, err)
		resp.Body.Close()

		if resp.StatusCode != http.StatusForbidden {
			m.t.Errorf("%s through a gateway: %d", path, resp.StatusCode)
		}
	}
}

// shakesHands connects with a certificate, and reads: a server that refuses it says so then.
func shakesHands(config *tls.Config, address string) error {
	for _, protocol := range []string{"h2", "http/1.1", "roster-raft/1", ""} {
		config := config.Clone()
		if config.NextProtos = nil; protocol != "" {
			config.NextProtos = []string{protocol}
		}

		conn, err := tls.Dial("tcp", address, config)
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}

		if err == nil || os.IsTimeout(err) {
			return nil
		}
	}

	return fmt.Errorf("refused")
}

// problemOf returns the detail of a problem.
func problemOf(answer []byte) string {
	var problem struct{ Detail string }

	_ = json.Unmarshal(answer, &problem)

	return problem.Detail
}

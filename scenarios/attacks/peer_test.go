package attacks

import (
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/trust"
)

// A peer's agents have hostile output schemas, and answer with what costs most to judge by
// them (finding 3).
//
// Requirement: SEC-005
func TestHostileOutputsOfAPeerCostOthersLittle(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	answers := map[string]string{}
	server := m.agentServer(1, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[r.URL.Path])
	})

	var attacks []attack

	for i, hostile := range hostileJudgements()[:2] {
		name := fmt.Sprintf("hostile-%d", i)
		answers["/"+name] = hostile.value
		m.registerAgent(1, "agent/ada", name, server.URL+"/"+name, `"output_schema":`+hostile.schema)
		attacks = append(attacks, attack{hostile.name, "/agents/" + name + "/invoke", []byte(`{}`)})
	}

	reader := m.as(0, "agent/eve")
	eventually(t, time.Minute, "the agents are known in the other domain", func() error {
		for _, of := range attacks {
			status, answer, err := ask(t.Context(), reader, http.MethodPost, m.Domains[0].Nodes[0].API+of.path, of.body)
			if err == nil && status == http.StatusNotFound {
				err = errors.New(string(answer))
			}

			if err != nil {
				return err
			}
		}

		return nil
	})

	m.withstands(attacks)
}

// A peer whose configuration calls this domain's identities and token issuer its own registers
// for them, so that they would appear as verified owners and registrants here. Its records that
// name them are refused and counted, and the rest of their page applies; what it says of other
// domains' identities is shown as claimed, on every surface (finding 5).
//
// Requirement: SEC-006, SEC-008
func TestAPeerSpeaksForItsOwnIdentitiesAlone(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	must(t, err)

	key := base64.RawURLEncoding.EncodeToString(public)
	keys := writeFile(t, t.TempDir(), "jwks.json",
		[]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","use":"sig","alg":"EdDSA","x":"`+key+`"}]}`))
	m := startMeshWith(t, func(text string) string {
		ours := "\n    oauth: [{issuer: https://login.alpha.test, jwks: " + keys + ", own: true}]"
		text = strings.Replace(text, "\n    oauth: []", ours, 1)

		if strings.Contains(text, "trust_domain: beta.test") {
			wimse := "\n    wimse: [{domain: \"spiffe://alpha.test\", jwks: " + keys + ", own: true}," +
				" {domain: \"wimse://alpha.test\", jwks: " + keys + ", own: true}," +
				" {domain: \"spiffe://gamma.test\", jwks: " + keys + ", own: true}]"
			text = strings.Replace(text, "\n    wimse: []", wimse, 1)
		}

		return text
	}, "--domains", "2")

	everything := m.file([]byte(`@id("all") permit (principal, action, resource);`))
	m.mustRun(append(m.operator(1), "policy", "apply", everything))

	from, reader := m.Domains[1].Nodes[0].API, m.as(0, "agent/eve")
	at := m.Domains[0].Nodes[0]
	tool := m.as(1, "tool/commissioner")
	register := func(name, owner string) string {
		t.Helper()

		target := from + "/ad/r?lt=3600&visibility=mesh&agent=" + name
		if owner != "" {
			target += "&owner=" + url.QueryEscape(owner)
		}

		status, location, answer, err := m.register(tool, target,
			[]byte(`{"base":"https://evil.example/`+name+`","description":"`+name+`"}`))
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d %s %v", owner, status, answer, err)
		}

		return strings.TrimPrefix(location, "/ad/r/")
	}

	forged := map[string]string{
		"forgedspiffe": "spiffe://alpha.test/agent/ada", "forgedwimse": "wimse://alpha.test/agent/ada",
		"forgedoauth": "oauth:https://login.alpha.test#ada",
	}
	rids := map[string]string{}

	for name, owner := range forged {
		rids[name] = register(name, owner)
	}

	moved := register("forgedmoved", "spiffe://gamma.test/agent/ann")
	rids["forgedmoved"] = moved
	m.mustRun(append(m.operator(1), "transfer", moved, "--force", "--to", "spiffe://alpha.test/agent/ada"))

	claimed := register("claimedowner", "spiffe://gamma.test/agent/ann")
	honest := register("honestowner", "")

	for _, rid := range []string{claimed, honest} {
		eventually(t, time.Minute, rid+" is shown", func() error {
			status, answer, err := ask(t.Context(), reader, http.MethodGet, at.API+"/ad/r/beta.test/"+rid, nil)
			if err == nil && status != http.StatusOK {
				err = errors.New(string(answer))
			}

			return err
		})
	}

	for name, rid := range rids {
		for where, text := range m.surfaces(reader, at.API, name, "beta.test/"+rid, name) {
			if strings.Contains(text, "evil.example/"+name) {
				t.Errorf("%s shows %s: %s", where, name, text)
			}
		}
	}

	counted := `roster_federation_messages_total{code="owner_foreign",origin="beta.test"}`
	if n := m.metric(at, counted); n < float64(len(rids)) {
		t.Errorf("%v forgeries are counted, want %d", n, len(rids))
	}

	for rid, want := range map[string][]string{
		claimed: {"claimedowner", `"registrant":"spiffe://beta.test/tool/commissioner","registrant_state":"claimed"`,
			`"owner":"spiffe://gamma.test/agent/ann"`},
		honest: {"honestowner", `"registrant":"spiffe://beta.test/tool/commissioner","registrant_state":"verified"`},
	} {
		for where, text := range m.surfaces(reader, at.API, want[0], "beta.test/"+rid, want[0]) {
			if where == "GET /.well-known/woa.json" || strings.HasSuffix(where, "/record") {
				continue // of anonymous callers, and the signed bytes
			}

			for _, part := range want[1:] {
				if !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), part) {
					t.Errorf("%s doesn't say %s: %s", where, part, text)
				}
			}
		}
	}
}

// identities is how many identities a peer makes: more than it needs to have all shares if
// each had its own.
const identities = 1000

// A peer with many identities gets at most twice the rate and the watches of one of them, and
// the operator of the domain is answered fast meanwhile (finding 7).
//
// Requirement: SEC-004
func TestAPeerHasTheShareOfTwoIdentities(t *testing.T) {
	m := startMesh(t, "--domains", "3")
	node := m.Domains[0].Nodes[0]

	one := m.queries(node, m.foreign(1, "/agent", 1))

	many := make(chan float64, 1)
	clients := m.foreign(2, "/agent", identities)
	m.connect(node, clients)

	go func() { many <- m.queries(node, clients) }()

	p50, p99 := m.operatorTakes(node, floodTime)
	all := <-many

	t.Logf("one identity gets %.1f queries a second, all of a domain %.1f; the operator waits %s, %s at p99", one, all, p50, p99)

	if all > 2.1*one {
		t.Errorf("a domain with %d identities gets %.1f queries a second, one with a single identity %.1f", identities, all, one)
	}

	if most := within(operatorWaits); p50 > most {
		t.Errorf("the operator waits %s, want at most %s", p50, most)
	}

	// Shares of 1,024 watches.
	if of := m.watches(node, clients[:1]); of != 64 {
		t.Errorf("one identity has %d watches, want a sixteenth", of)
	}

	if of := m.watches(node, clients[1:9]); of != 64 {
		t.Errorf("all others of its domain have %d watches, want a sixteenth as well", of)
	}

	if of := m.watches(node, m.foreign(1, "/agent", 1)); of != 64 {
		t.Errorf("an identity of another domain has %d watches", of)
	}

	if of := m.watches(node, []*http.Client{m.as(0, "agent/bob")}); of != 128 {
		t.Errorf("an identity of the domain has %d watches, want an eighth", of)
	}
}

// A peer with twenty identities holds an eighth of the places of an agent by streams that it doesn't
// read, and others invoke the agent meanwhile (finding 35).
//
// Requirement: SEC-004
func TestAPeerHoldsFewPlacesOfAnAgent(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	api := m.Domains[0].Nodes[0].API
	over := make(chan struct{})

	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()

		select {
		case <-over:
		case <-r.Context().Done():
		}
	})

	t.Cleanup(func() { close(over) }) // before the server's, which waits for its handlers

	m.registerAgent(0, "agent/ada", "slow", server.URL, `"input_schema":{}`)

	stream := func(client *http.Client) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/agents/slow/invoke",
			strings.NewReader(`{}`))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "text/event-stream")

		answer, err := client.Do(req)
		must(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })

		return answer.StatusCode
	}

	held := 0

	for _, client := range m.foreign(1, "/agent", 20) {
		for stream(client) == http.StatusOK {
			held++
		}
	}

	if held != 8 {
		t.Errorf("a peer holds %d of an agent's 64 places, want 8", held)
	}

	if status := stream(m.as(0, "agent/bob")); status != http.StatusOK {
		t.Errorf("an identity of the domain is answered %d", status)
	}
}

// foreign returns clients of the first domain that show identities of another, below a path.
func (m *runningMesh) foreign(domain int, path string, count int) (clients []*http.Client) {
	m.t.Helper()

	certificate, err := os.ReadFile(m.Domains[domain].Bundle)
	must(m.t, err)
	key, err := os.ReadFile(m.Domains[domain].CAKey)
	must(m.t, err)
	ca, err := trust.LoadCA(certificate, key)
	must(m.t, err)

	for i := range count {
		svid, err := ca.Issue(fmt.Sprintf("%s/%d", path, i), time.Hour, time.Now())
		must(m.t, err)

		clients = append(clients, m.client(&tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{*trust.NewSource(svid).Certificate()},
		}, &net.Dialer{}))
	}

	return clients
}

// connect opens the connections of clients, so that their handshakes, half of which this
// machine does as the client, are not measured.
func (m *runningMesh) connect(n dev.Node, clients []*http.Client) {
	m.t.Helper()

	for _, client := range clients {
		if _, _, err := ask(m.t.Context(), client, http.MethodGet, n.API+"/.well-known/ad", nil); err != nil {
			m.t.Fatal(err)
		}
	}
}

// floodTime is how long a peer sends all that it can.
const floodTime = 4 * time.Second

// queries returns how many queries of clients are answered in a second, of the flood's time and
// the ten seconds before it whose requests may be made at once.
func (m *runningMesh) queries(n dev.Node, clients []*http.Client) float64 {
	var (
		all      sync.WaitGroup
		answered atomic.Int64
	)

	began := time.Now()

	for _, client := range clients {
		all.Go(func() {
			for time.Since(began) < floodTime {
				status, _, err := ask(m.t.Context(), client, http.MethodPost, n.API+"/discovery/query",
					[]byte(`{"query":"anything"}`))
				if err == nil && status == http.StatusOK {
					answered.Add(1)
				}

				if status == http.StatusTooManyRequests {
					time.Sleep(500 * time.Millisecond)
				}
			}
		})
	}

	all.Wait()

	return float64(answered.Load()) / (10 + time.Since(began).Seconds())
}

// watches returns how many watches clients get, one after the other until all were refused.
func (m *runningMesh) watches(n dev.Node, clients []*http.Client) (opened int) {
	m.t.Helper()

	for _, client := range clients {
		for {
			req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, n.API+"/ad/watch", nil)
			must(m.t, err)

			client.Timeout = 0
			answer, err := client.Do(req)
			must(m.t, err)
			m.t.Cleanup(func() { _ = answer.Body.Close() })

			if answer.StatusCode != http.StatusOK {
				break
			}

			opened++
		}
	}

	return opened
}

package attacks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/launch"
)

const (
	answerShare  = 32 << 20  // of limits.answer_bytes, for one identity of the domain
	answerMemory = 192 << 20 // bytes that all answers may add to a node's resident set
)

// An agent's answers take no more than the share of the identity that invokes it, however they
// come: to many invocations at once, each of which the agent holds back its last byte; to a few
// batches of a hundred inputs; and to calls of a tool. The agent and its caller are one attacker
// (finding 29).
//
// Requirement: SEC-001, SEC-002
func TestAnswersOfAgentsAreBounded(t *testing.T) {
	t.Setenv("GOGC", "20") // to measure what is held, not garbage

	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]

	answer := `"` + strings.Repeat("x", 1<<20-64)
	over := make(chan struct{})
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		in, _ := io.ReadAll(r.Body)

		w.Header().Set("Content-Type", "application/json")

		if strings.HasPrefix(r.URL.Path, "/events") {
			w.Header().Set("Content-Type", "text/event-stream")

			_, _ = io.WriteString(w, "data: ")
		}

		_, _ = io.WriteString(w, answer)
		_ = http.NewResponseController(w).Flush()

		if !bytes.Contains(in, []byte("at once")) {
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}

		_, _ = io.WriteString(w, "\"\n\n")
	})

	t.Cleanup(func() { close(over) }) // before the server's, which waits for its handlers

	const agents = 16 // each has 8 places for one identity

	for i := range agents {
		m.registerAgent(0, "agent/ada", fmt.Sprintf("hoard-%d", i), server.URL, `"input_schema":{}`)
		m.registerAgent(0, "agent/ada", fmt.Sprintf("events-%d", i), server.URL+"/events", `"input_schema":{}`)
	}

	batch := []byte("[" + strings.Repeat(`{"a":"at once"},`, 99) + `{"a":1}]`)
	tool := func(agent, input string) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"invoke_agent",`+
			`"arguments":{"agent":%q,"input":{"a":%q}}}}`, agent, input)
	}

	for _, attack := range []struct {
		name     string
		requests int
		request  func(i int) (path string, body []byte)
	}{
		{"answers without an end", 120, func(i int) (string, []byte) {
			return fmt.Sprintf("/agents/hoard-%d/invoke", i%agents), []byte(`{"a":1}`)
		}},
		{"batches", 4, func(i int) (string, []byte) { return fmt.Sprintf("/agents/hoard-%d/invoke", i%agents), batch }},
		{"calls of a tool", 120, func(i int) (string, []byte) {
			return "/mcp", tool(fmt.Sprintf("hoard-%d", i%agents), "")
		}},
		{"streams to a tool", 120, func(i int) (string, []byte) {
			return "/mcp", tool(fmt.Sprintf("events-%d", i%agents), "")
		}},
	} {
		m.hoards(node.API, attack.name, attack.requests, attack.request)
	}

	// An honest stream is the result of a tool as a text.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, node.API+"/mcp",
		bytes.NewReader(tool("events-0", "at once")))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")

	resp, err := m.as(0, "agent/ada").Do(req)
	must(t, err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	must(t, err)

	if want := `"structuredContent":{"output":"xxx`; !bytes.Contains(said, []byte(want)) {
		t.Errorf("a stream of a tool: %d %.300s, want %s", resp.StatusCode, said, want)
	}
}

// hoards sends requests whose answers don't end, and checks what they take of the first node.
func (m *runningMesh) hoards(api, name string, requests int, request func(i int) (path string, body []byte)) {
	m.t.Helper()

	node := m.Domains[0].Nodes[0]
	before := m.memoryOf(node)
	ctx, stop := context.WithTimeout(m.t.Context(), launch.Patience)

	var (
		all  sync.WaitGroup
		mu   sync.Mutex // guards said
		said = map[string]int{}
	)

	clients := []*http.Client{m.as(0, "agent/ada"), m.as(0, "agent/ada")}
	for i := range requests {
		all.Go(func() {
			path, body := request(i)

			req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+path, bytes.NewReader(body))
			if err != nil {
				return
			}

			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")

			answer, err := clients[i%2].Do(req)
			if err != nil {
				return
			}
			defer answer.Body.Close()

			text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))

			mu.Lock()
			defer mu.Unlock()
			said[fmt.Sprintf("%d %.40s", answer.StatusCode, problemOf(text))]++
		})
	}

	var held, resident int64

	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || held == 0 && ctx.Err() == nil; {
		time.Sleep(50 * time.Millisecond)

		held = max(held, int64(m.metric(node, "roster_answer_bytes_unread")))
		resident = max(resident, m.residentOf(node)-before.resident)
	}

	stop()
	all.Wait()
	m.t.Logf("%s: %.1f MiB of answers are counted, %.1f MiB resident more; answers %v", name,
		float64(held)/(1<<20), float64(resident)/(1<<20), said)

	if held > answerShare || held == 0 || resident > mostMemory(answerMemory) {
		m.t.Errorf("%s: %d bytes of answers are counted and %d more resident; %d and %d are allowed", name, held, resident,
			answerShare, mostMemory(answerMemory))
	}

	launch.Eventually(m.t, "all is given back", func() error {
		if left := m.metric(node, "roster_answer_bytes_unread"); left != 0 {
			return fmt.Errorf("%.0f bytes are counted", left)
		}

		return nil
	})
}

// A caller has its own text repeated to it by no more than 64 bytes at a time, wherever in a request
// it stands.
//
// Requirement: SEC-018
func TestAnswersQuoteLittle(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1")
	api, ada := m.Domains[0].Nodes[0].API, m.as(0, "agent/ada")
	long := strings.Repeat("Z", 3000)

	document := []byte(`{"base":"https://a.example"}`)

	status, location, answer, err := m.register(ada, api+"/ad/r?agent=quoted", document)
	if err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, answer, err)
	}

	for _, request := range [][3]string{
		{"GET", "/ad/r/LONG"}, {"GET", "/ad/r/LONG/LONG"}, {"GET", "/agents/LONG"}, {"GET", "/discovery/agents/LONG"},
		{"GET", "/problems/LONG"}, {"GET", "/schemas/LONG.json"}, {"GET", "/bundles/LONG"}, {"GET", "/ad/l?min=LONG"},
		{"GET", "/ad/l?limit=LONG"}, {"GET", "/ad/l?consistency=LONG"},
		{"POST", "/ad/r?agent=a&lt=LONG", `{}`}, {"POST", "/ad/r?agent=LONG", `{"base":"https://a.example"}`},
		{"POST", "/ad/r?agent=a&visibility=LONG", `{"base":"https://a.example"}`},
		{"POST", "/ad/r?agent=a&owner=LONG", `{"base":"https://a.example"}`},
		{"POST", "/ad/r?agent=a", `{"base":"LONG"}`}, {"POST", "/ad/r?agent=a&kind=LONG", `{}`},
		{"POST", location + "/transfer", `{"LONG":1}`}, {"POST", location + "/transfer", `{"owner":"LONG"}`},
		{"POST", "/ad/refresh", `[{"id":"LONG"}]`}, {"POST", "/ad/refresh", `[{"LONG":1}]`},
		{"POST", "/agents/search", `{"query":"a","filters":{"LONG":1}}`},
		{"POST", "/discovery/query", `{"query":"a","LONG":1}`},
		{"POST", "/agents/resolve", `{"agent":"LONG","LONG":1}`}, {"POST", "/agents", `{"LONG":"LONG"}`},
		{"POST", "/discovery/agents", `{"id":"LONG"}`}, {"POST", "/v1/peerings", `{"domain":"LONG","LONG":1}`},
	} {
		put := strings.NewReplacer("LONG", long)

		var body []byte
		if request[2] != "" {
			body = []byte(put.Replace(request[2]))
		}

		status, answer, err := ask(t.Context(), ada, request[0], api+put.Replace(request[1]), body)
		must(t, err)

		if quoted := longestRun(answer, 'Z'); quoted > 64 {
			t.Errorf("%s %s %s: %d, an answer that quotes %d bytes", request[0], request[1], request[2], status, quoted)
		}
	}
}

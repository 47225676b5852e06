package attacks

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/node/dev"
)

// Bars of callers of /mcp that open sessions.
const (
	mcpSessions = 2000
	mcpMemory   = 2 << 20 // bytes that all of them leave behind
	mcpSeries   = 4 * 17  // of metrics: a histogram of the route for each method and status below
)

// A directory has no MCP sessions: whoever opens one after the other leaves nothing behind, and the ID of
// another's opens nothing. Who calls a tool is who the connection shows.
//
// Requirement: OPS-022, SEC-003
func TestSessionsOfMCPAreNothingToSteal(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]
	ada, eve := m.as(0, "agent/ada"), m.as(0, "agent/eve")

	const stolen = "00000000000000000000000000000001"

	message := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	}
	hello := message("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},`+
		`"clientInfo":{"name":"x","version":"1"}}`)
	register := message("tools/call", `{"name":"register_agent","arguments":{"agent":"taken",`+
		`"document":{"base":"https://agent.example/"}}}`)

	m.mcp(ada, node, http.MethodPost, stolen, hello)

	// Of a session that another one has begun, and under the identity that it names.
	_, answer := m.mcp(eve, node, http.MethodPost, stolen, register)
	if strings.Contains(answer, `"isError":true`) {
		t.Fatalf("a tool is not called: %s", answer)
	}

	_, shown, err := ask(t.Context(), ada, http.MethodGet, node.API+"/ad/r/taken", nil)
	if err != nil || !strings.Contains(string(shown), `"registrant":"spiffe://alpha.test/agent/eve"`) {
		t.Errorf("the registration is of %s: %v", shown, err)
	}

	for _, method := range []string{http.MethodGet, http.MethodDelete} { // a stream, and the end of a session
		if status, answer := m.mcp(eve, node, method, stolen, ""); status != http.StatusMethodNotAllowed {
			t.Errorf("%s /mcp: %d %s", method, status, answer)
		}
	}

	stranger := m.stranger("")
	before := m.footprintOf(node)
	statuses := map[int]int{}

	for i := range mcpSessions {
		caller := []*http.Client{eve, stranger}[i%2]
		status, answer := m.mcp(caller, node, http.MethodPost, fmt.Sprintf("%032x", i), hello)
		statuses[status]++

		if strings.Contains(answer, "Mcp-Session-Id") {
			t.Fatalf("a session is opened: %s", answer)
		}
	}

	grown := m.footprintOf(node).minus(before)
	t.Logf("%d sessions, answered by %v: %s", mcpSessions, statuses, grown)

	if grown.live > mcpMemory || grown.series > mcpSeries {
		t.Errorf("%s; at most %d MiB live and %d series are allowed", grown, mcpMemory>>20, mcpSeries)
	}
}

// mcp sends a message of a session, and returns the answer with its header.
func (m *runningMesh) mcp(client *http.Client, n dev.Node, method, session, body string) (status int, answer string) {
	m.t.Helper()

	req, err := http.NewRequestWithContext(m.t.Context(), method, n.API+"/mcp", bytes.NewBufferString(body))
	must(m.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)

	resp, err := client.Do(req)
	must(m.t, err)

	defer resp.Body.Close()

	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	must(m.t, err)

	if opened := resp.Header.Get("Mcp-Session-Id"); opened != "" {
		answer = "Mcp-Session-Id: " + opened + "\n"
	}

	return resp.StatusCode, answer + string(text)
}

package mesh

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A surface is one request by which a node shows registrations. In path and body, {rid},
// {name} and {origin} are an agent's.
type surface struct{ method, path, body string }

// surfaces are all ways to read registrations, and to invoke them.
var surfaces = []surface{
	{http.MethodGet, "/ad/l", ""},
	{http.MethodGet, "/ad/l?agent={name}", ""},
	{http.MethodGet, "/ad/l?tag=story", ""},
	{http.MethodGet, "/ad/r/{rid}", ""},
	{http.MethodGet, "/ad/r/{origin}/{rid}", ""},
	{http.MethodGet, "/agents", ""},
	{http.MethodGet, "/agents/{rid}", ""},
	{http.MethodGet, "/agents/{name}", ""},
	{http.MethodGet, "/discovery/agents/{rid}", ""},
	{http.MethodGet, "/discovery/agents/{name}", ""},
	{http.MethodGet, "/.well-known/woa.json", ""},
	{http.MethodPost, "/agents/search", `{"query":"work","top":100}`},
	{http.MethodPost, "/agents/search", `{"filters":{"tags":["story"]},"top":100}`},
	{http.MethodPost, "/agents/resolve", `{"intent":"{name} work","top":20}`},
	{http.MethodPost, "/discovery/query", `{"query":"{name} work","limit":100}`},
	{http.MethodPost, "/discovery/query", `{"required_tags":["story"],"query":"work","limit":100}`},
	{http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"lookup_agents",` +
		`"arguments":{"agent":"{name}"}}}`},
	{http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"discover_agents",` +
		`"arguments":{"query":"{name} work","limit":20}}}`},
	{http.MethodPost, "/agents/{rid}/invoke", `{}`},
}

// shows reports whether a node's answer on a surface has an agent, by its rid.
func (n *Node) shows(s surface, agent *Agent) (bool, error) {
	fill := strings.NewReplacer("{rid}", agent.RID, "{name}", agent.Name, "{origin}", agent.Domain)

	ctx, cancel := request()
	defer cancel()

	body := strings.NewReader(fill.Replace(s.body))

	req, err := http.NewRequestWithContext(ctx, s.method, n.URL()+fill.Replace(s.path), body)
	if err != nil {
		return false, err
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")

	resp, err := n.HTTP(reader).Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()

	answer, err := io.ReadAll(resp.Body)

	switch {
	case err != nil:
		return false, err
	case resp.StatusCode == http.StatusOK:
		return bytes.Contains(answer, []byte(agent.RID)), nil
	case resp.StatusCode == http.StatusNotFound:
		return false, nil
	case strings.HasSuffix(s.path, "/invoke"):
		return true, nil // it was called, or refused for another reason
	}

	return false, fmt.Errorf("%s %s%s: %d %s", s.method, n.Name, req.URL.Path, resp.StatusCode, answer)
}

// Deadline returns an agent's deadline, as a node of its domain shows it.
func (m *Mesh) Deadline(agent *Agent) time.Time {
	m.T.Helper()

	all, err := m.Lookup(m.Domain(agent.Domain).Nodes[0])
	m.must(err)

	return all[agent.RID].Provenance.ExpiresAt
}

// ShownOnSurfaces fails the test unless every living node shows an agent on all surfaces,
// or on none.
func (m *Mesh) ShownOnSurfaces(agent *Agent, want bool) {
	m.T.Helper()

	for _, n := range m.Living() {
		for _, s := range surfaces {
			asked := time.Now()

			shown, err := n.shows(s, agent)
			if err != nil {
				m.T.Error(err)
				continue
			}

			if shown != want {
				m.T.Errorf("%s at %s: %s %s shows %s: %t, want %t; its deadline is %s", n.Name, asked, s.method, s.path,
					agent.Name, shown, want, agent.Until)
			}
		}
	}
}

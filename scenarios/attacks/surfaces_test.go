package attacks

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// watchTime is how long a stream of changes is read before it counts as silent.
const watchTime = 2 * time.Second

// surfaces asks a node for a registration on every surface that shows registrations. It is
// asked for by its name and its id, its rid or a mirror path, and by a word of its description.
func (m *runningMesh) surfaces(client *http.Client, api, name, id, word string) map[string]string {
	m.t.Helper()

	shown := map[string]string{}

	for _, path := range []string{
		"/ad/r/" + id, "/ad/r/" + name, "/ad/r/" + id + "/record", "/ad/l?agent=" + name, "/agents?name=" + name,
		"/agents/" + name, "/discovery/agents/" + name, "/.well-known/woa.json",
	} {
		_, answer, err := ask(m.t.Context(), client, http.MethodGet, api+path, nil)
		must(m.t, err)

		shown["GET "+path] = string(answer)
	}

	for path, body := range map[string]string{
		"/agents/search":   `{"query":"` + word + `"}`,
		"/agents/resolve":  `{"intent":"` + word + `"}`,
		"/discovery/query": `{"query":"` + word + `"}`,
	} {
		_, answer, err := ask(m.t.Context(), client, http.MethodPost, api+path, []byte(body))
		must(m.t, err)

		shown["POST "+path] = string(answer)
	}

	for tool, arguments := range map[string]string{
		"get_agent": `{"agent":"` + name + `"}`, "lookup_agents": `{"agent":"` + name + `"}`,
		"discover_agents": `{"query":"` + word + `"}`,
	} {
		shown["MCP "+tool] = m.callTool(client, api, tool, arguments)
	}

	shown["GET /ad/watch"] = m.watched(client, api, name)

	return shown
}

// callTool calls a tool of a node by MCP and returns the answer as it came.
func (m *runningMesh) callTool(client *http.Client, api, tool, arguments string) string {
	m.t.Helper()

	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool,
		arguments)
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, api+"/mcp", bytes.NewBufferString(body))
	must(m.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")

	resp, err := client.Do(req)
	must(m.t, err)

	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	must(m.t, err)

	return string(answer)
}

// watched returns the first event of a watch of a name; empty if none comes in time.
func (m *runningMesh) watched(client *http.Client, api, name string) string {
	m.t.Helper()

	ctx, cancel := context.WithTimeout(m.t.Context(), watchTime)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/ad/watch?agent="+name, nil)
	must(m.t, err)

	resp, err := client.Do(req)
	must(m.t, err)

	defer resp.Body.Close()

	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok && strings.Contains(data, name) {
			return data
		}
	}

	return ""
}

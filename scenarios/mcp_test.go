package scenarios

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// roundRobin gives each request to the next node, as a balancer before them does.
type roundRobin struct {
	nodes []http.RoundTripper
	hosts []string
	next  int
}

// RoundTrip implements http.RoundTripper.
func (r *roundRobin) RoundTrip(req *http.Request) (*http.Response, error) {
	i := r.next % len(r.nodes)
	r.next++
	req = req.Clone(req.Context())
	req.URL.Host = r.hosts[i]

	return r.nodes[i].RoundTrip(req)
}

// modelClient is a client of the official SDK.
func modelClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "story", Version: "1"}, nil)
}

// called calls a tool, which must not fail, and returns its structured content.
func called(t *testing.T, s *mcp.ClientSession, name string, arguments map[string]any) map[string]any {
	t.Helper()

	got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s %v: %v", name, arguments, err)
	}

	body, _ := got.StructuredContent.(map[string]any)
	if got.IsError {
		t.Fatalf("%s %v: %v", name, arguments, body)
	}

	return body
}

// A model client of the official SDK, certified as an agent, speaks to three nodes
// of one domain in turn: whichever node answers, it is the same directory.
//
// Requirement: OPS-022, AD-045
func TestAnyNodeAnswersAnyMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Nodes: 3})

		nodes := &roundRobin{}
		for _, n := range m.Domains[0].Nodes {
			nodes.nodes = append(nodes.nodes, n.HTTP("/agent/ada").Transport)
			nodes.hosts = append(nodes.hosts, n.URL()[len("https://"):])
		}

		transport := &mcp.StreamableClientTransport{
			Endpoint: m.Domains[0].Nodes[0].URL() + "/mcp", HTTPClient: &http.Client{Transport: nodes},
			DisableStandaloneSSE: true,
		}

		s, err := modelClient().Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(err)
		}

		for range 4 {
			list, err := s.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			var names []string
			for _, tool := range list.Tools {
				if names = append(names, tool.Name); tool.InputSchema == nil || tool.OutputSchema == nil {
					t.Errorf("%s has no schemas", tool.Name)
				}
			}

			slices.Sort(names)

			if want := []string{"deregister_agent", "discover_agents", "get_agent", "lookup_agents", "refresh_agent",
				"register_agent", "verify_agent"}; !slices.Equal(names, want) {
				t.Fatalf("the tools are %v, want %v", names, want)
			}
		}

		for i := range 9 {
			name := fmt.Sprintf("by-tool-%d", i)

			made := called(t, s, "register_agent",
				map[string]any{"agent": name, "lt": 600,
					"document": map[string]any{"base": "https://agents.example/" + name}})
			if made["created"] != true {
				t.Errorf("registering %s: %v", name, made)
			}

			shown := called(t, s, "get_agent", map[string]any{"agent": name, "min": made["roster_index"]})
			if shown["href"] != made["href"] {
				t.Errorf("%s is %v, and was registered as %v", name, shown["href"], made["href"])
			}

			found := called(t, s, "discover_agents", map[string]any{"query": name, "min": made["roster_index"]})
			if best := found["candidates"].([]any)[0].(map[string]any); best["id"] != name &&
				!strings.HasSuffix(made["href"].(string), best["id"].(string)) {
				t.Errorf("the best for %s is %v", name, best)
			}

			listed := called(t, s, "lookup_agents", map[string]any{"agent": "by-tool-*", "consistency": "linearizable"})
			if got := len(listed["agents"].([]any)); got != i+1 {
				t.Errorf("%d agents are listed, want %d", got, i+1)
			}
		}

		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The built program on standard input and output, as a model client starts it, and
// the nodes themselves, offer the same tools.
//
// Requirement: AD-045
func TestModelClientsStartTheProgram(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "2", "--sample", "4", "--insecure-loopback")
	d := p.Domains[0]
	parrot := startParrot(t)
	identity := filepath.Join(filepath.Dir(d.Bundle), "identities", "agent-ada")
	cmd := exec.Command(p.path, "mcp")
	cmd.Env = append(os.Environ(), "ROSTER_ADDRESS="+d.Nodes[0].API, "ROSTER_BUNDLE="+d.Bundle,
		"ROSTER_DOMAIN="+d.TrustDomain,
		"ROSTER_CERT="+identity+".pem", "ROSTER_KEY="+identity+".key")

	local, err := modelClient().Connect(t.Context(),
		&mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}

	remote, err := modelClient().Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: d.Nodes[0].API + "/mcp", HTTPClient: p.http(0, "agent/ada"),
			DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}

	var offered [][]*mcp.Tool
	for i, s := range []*mcp.ClientSession{local, remote} {
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}

		offered = append(offered, list.Tools)
		made := called(t, s, "register_agent", map[string]any{"agent": fmt.Sprint("started-", i),
			"document": map[string]any{"base": "https://agents.example/"}})

		shown := called(t, s, "get_agent", map[string]any{"agent": fmt.Sprint("started-", i)})
		if shown["href"] != made["href"] ||
			shown["provenance"].(map[string]any)["registrant"] != "spiffe://alpha.test/agent/ada" {
			t.Errorf("the registration is shown as %v", shown)
		}

		if got := called(t, s, "lookup_agents", map[string]any{"origin": p.Domains[1].TrustDomain,
			"count": 100}); len(got["agents"].([]any)) == 0 {
			t.Error("no agent of the other domain is found")
		}

		// The program verifies by the bundle that it was given, a node by what the directory holds.
		useEveryTool(t, s, fmt.Sprint("parrot-", i), parrot, []string{"bundle", "directory"}[i])
	}

	if len(offered[0]) != len(offered[1]) {
		t.Fatalf("%d tools and %d", len(offered[0]), len(offered[1]))
	}

	for i, tool := range offered[0] {
		if got, want := fmt.Sprint(tool.Name, tool.Description, tool.InputSchema,
			tool.OutputSchema), fmt.Sprint(offered[1][i].Name, offered[1][i].Description, offered[1][i].InputSchema,
			offered[1][i].OutputSchema); got != want {
			t.Errorf("%s\nis offered at /mcp as\n%s", got, want)
		}
	}

	for _, s := range []*mcp.ClientSession{remote, local} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}

	if state := cmd.ProcessState; state == nil || state.ExitCode() != 0 {
		t.Errorf("the program ended as %v", state)
	}
}

// startParrot starts an A2A agent at plain http that answers with the parts that it got, and
// returns its URL.
func startParrot(t *testing.T) string {
	t.Helper()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Params struct {
				Message struct {
					Parts json.RawMessage `json:"parts"`
				} `json:"message"`
			} `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"1","result":%s}`, call.Params.Message.Parts)
	}))
	t.Cleanup(server.Close)

	return server.URL
}

// useEveryTool registers, verifies, refreshes, invokes and removes an agent by tools.
// notes/users.md: "MCP has discover, get, describe (and register over stdio)".
func useEveryTool(t *testing.T, s *mcp.ClientSession, name, url, anchor string) {
	t.Helper()

	called(t, s, "register_agent", map[string]any{"agent": name, "kind": "a2a", "document": map[string]any{
		"name": "Parrot", "description": "Repeats.", "version": "1", "url": url, "skills": []any{},
	}})

	report := called(t, s, "verify_agent", map[string]any{"agent": name})
	if report["authentic"] != true || report["anchor"] != anchor || len(report["steps"].([]any)) < 8 {
		t.Errorf("%s is verified as %v", name, report)
	}

	if changed := called(t, s, "refresh_agent", map[string]any{"agent": name, "lt": 600}); changed["sunset"] == nil {
		t.Errorf("%s is refreshed as %v", name, changed)
	}

	said := called(t, s, "invoke_agent", map[string]any{"agent": name, "input": "hello"})
	if got := fmt.Sprint(said["output"]); got != "[map[kind:text text:hello]]" {
		t.Errorf("%s said %s", name, got)
	}

	called(t, s, "deregister_agent", map[string]any{"agent": name})

	for _, tool := range []string{"get_agent", "verify_agent", "refresh_agent"} {
		gone, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"agent": name}})
		if err != nil || !gone.IsError {
			t.Errorf("%s after the removal: %v, %v", tool, gone, err)
		}
	}
}

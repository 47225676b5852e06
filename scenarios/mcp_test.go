package scenarios

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

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
		must(t, err)

		for range 4 {
			list, err := s.ListTools(t.Context(), nil)
			must(t, err)

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

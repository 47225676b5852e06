package probe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/gatewaytest"
)

// A description of the registration's kind agrees in all members; another in those that both have,
// and no capability is claimed beyond it.
//
// Requirement: AD-044, AD-073
func TestWhatMustAgree(t *testing.T) {
	tool := func(names ...string) (all []directory.Capability) {
		for _, name := range names {
			all = append(all, directory.Capability{Name: name, Type: "tool"})
		}

		return all
	}
	schema := func(in, out string) []directory.Capability {
		return []directory.Capability{{Name: "a", InputSchema: []byte(in), OutputSchema: []byte(out)}}
	}
	bindings := func(all ...string) (bs []directory.Binding) {
		for i := 0; i < len(all); i += 2 {
			bs = append(bs, directory.Binding{Protocol: all[i], Endpoint: all[i+1]})
		}

		return bs
	}

	type p = directory.Projection

	for name, x := range map[string]struct {
		registered, said p
		all, part        string // members that differ, if all must agree or those that both have
	}{
		"the same":            {p{Name: "A", Version: "1"}, p{Name: "A", Version: "1"}, "", ""},
		"another name":        {p{Name: "A"}, p{Name: "B"}, "name", "name"},
		"an agent's name":     {p{Name: "agent"}, p{Name: "B"}, "name", ""},
		"another description": {p{Description: "A"}, p{Description: "B"}, "description", "description"},
		"a description more":  {p{}, p{Description: "B"}, "description", ""},
		"a description less":  {p{Description: "A"}, p{}, "description", ""},
		"version and vendor": {p{Version: "1", Vendor: "A"}, p{Version: "2", Vendor: "B"}, "version vendor",
			"version vendor"},
		"another endpoint": {p{Bindings: bindings("a2a", "u")}, p{Bindings: bindings("a2a", "v")}, "endpoint",
			"endpoint"},
		"a slash more":     {p{Bindings: bindings("a2a", "u/")}, p{Bindings: bindings("a2a", "u")}, "", ""},
		"another protocol": {p{Bindings: bindings("mcp", "u")}, p{Bindings: bindings("a2a", "v")}, "", ""},
		"one of two endpoints": {p{Bindings: bindings("a2a", "u")}, p{Bindings: bindings("mcp", "v", "a2a", "u")},
			"", ""},
		"the endpoint of another protocol": {p{Bindings: bindings("a2a", "u")},
			p{Bindings: bindings("mcp", "u", "a2a", "v")}, "endpoint", "endpoint"},
		"a capability more": {p{Capabilities: tool("a", "b")}, p{Capabilities: tool("a")}, "capabilities",
			"capabilities"},
		"a capability less": {p{Capabilities: tool("a")}, p{Capabilities: tool("b", "a")}, "capabilities", ""},
		"in another order":  {p{Capabilities: tool("a", "b")}, p{Capabilities: tool("b", "a")}, "", ""},
		"another input": {p{Capabilities: schema(`{"a":1}`, `{}`)}, p{Capabilities: schema(`{"a":2}`, `{}`)},
			"schemas", ""},
		"another output": {p{Capabilities: schema(`{}`, `{}`)}, p{Capabilities: schema(`{}`, `{"a":1}`)},
			"schemas", ""},
		"written otherwise": {p{Capabilities: schema(`{"a":1,"b":2}`, `{}`)},
			p{Capabilities: schema(`{"b":2, "a":1}`, `{ }`)}, "", ""},
		"no schema": {p{Capabilities: tool("a")}, p{Capabilities: schema(`{}`, `{}`)}, "schemas", ""},
		"schemas that break": {p{Capabilities: schema(`{`, `{}`)}, p{Capabilities: schema(`{ `, `{}`)}, "schemas",
			""},
		"an authentication more": {p{}, p{Authentication: []byte(`["mtls"]`)}, "authentication",
			""},
	} {
		for _, all := range []bool{true, false} {
			want := x.part
			if all {
				want = x.all
			}

			if x.registered.Name == "" {
				x.registered.Name, x.said.Name = "agent", "agent"
			}

			var got []string
			for _, d := range compare("agent", &x.registered, &x.said, all) {
				got = append(got, d.Member)

				if d.Registered == "" && d.Said == "" {
					t.Errorf("%s: %+v says nothing", name, d)
				}
			}

			if strings.Join(got, " ") != want {
				t.Errorf("%s, all %t: %q differ, want %s", name, all, got, want)
			}
		}
	}
}

// A card of the registration's kind must agree in all members, unless the registration is known only in part.
//
// Requirement: AD-044, AD-073
func TestARegistrationKnownInPartIsComparedInPart(t *testing.T) {
	const card = `{"name":"A","description":"D","version":"1","url":"https://a.example/a","skills":[]}`

	document, err := directory.ParseDocument(directory.KindA2A, []byte(card))
	must(t, err)

	projection, err := kinds.Project("a", document)
	must(t, err)

	projection.Description = "" // withheld
	described := &Description{kind: directory.KindA2A, body: []byte(card)}

	for whole, want := range map[bool]int{true: 1, false: 0} {
		differences, err := described.Compare("a", document, projection, whole)
		if err != nil || len(differences) != want {
			t.Errorf("whole %t: %+v, %v", whole, differences, err)
		}
	}
}

// An agent that its document lists no more is not taken for another one at the same endpoint, which could
// confirm it in its place.
//
// Requirement: AD-044, AD-073
func TestAnAgentIsNotConfirmedByAnother(t *testing.T) {
	agent := func(id string) directory.Document {
		text := gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent(id, ""))

		document, err := directory.ParseDocument(directory.KindWoA, []byte(text))
		must(t, err)

		return document
	}

	document := agent("gone")

	projection, err := kinds.Project("gone@a.example", document)
	must(t, err)

	described := &Description{kind: directory.KindWoA,
		agents: []crawl.Agent{{Name: "other@a.example", Document: agent("other")}}}

	differences, err := described.Compare("gone@a.example", document, projection, true)
	if err != nil || len(differences) != 1 || differences[0].Said != "(not listed)" {
		t.Errorf("the other agent's description gives %+v, %v", differences, err)
	}
}

// An MCP server has the registration's name, its version if both have one, and its tools if the
// server lists all.
//
// Requirement: AD-044, AD-073
func TestAnMCPServerAgrees(t *testing.T) {
	type s = gateway.MCPServer

	for name, x := range map[string]struct {
		server     s
		agent      string
		kind       directory.Kind
		registered string // its name and version
		want       string
	}{
		"the last part": {s{Name: "Weather", Version: "2"}, "x", directory.KindMCP, "io.test/weather 2",
			""},
		"the title":                {s{Name: "w", Title: "weather"}, "x", directory.KindMCP, "io.test/weather 2", ""},
		"the whole name":           {s{Name: "io.test/weather"}, "x", directory.KindMCP, "io.test/weather ", ""},
		"another name":             {s{Name: "bank"}, "x", directory.KindMCP, "io.test/weather 2", "name"},
		"no name":                  {s{}, "x", directory.KindMCP, "io.test/ 2", "name"},
		"an agent's name":          {s{Name: "bank"}, "x", directory.KindAD, "x 2", ""},
		"a server's, as an agent":  {s{Name: "bank"}, "x", directory.KindMCP, "x 2", "name"},
		"another name of an agent": {s{Name: "bank"}, "x", directory.KindAD, "y 2", "name"},
		"another version":          {s{Name: "x", Version: "3"}, "x", directory.KindMCP, "x 2", "version"},
		"no version registered":    {s{Name: "x", Version: "3"}, "x", directory.KindMCP, "x ", ""},
		"no version said":          {s{Name: "x"}, "x", directory.KindMCP, "x 2", ""},
		"its tools": {s{Name: "x", Tools: []gateway.MCPTool{{Name: "a"}, {Name: "t"}}, AllTools: true}, "x",
			directory.KindMCP, "x 2 t", ""},
		"tools that it has not": {s{Name: "x", Tools: []gateway.MCPTool{{Name: "a"}}, AllTools: true}, "x",
			directory.KindMCP, "x 2 t", "capabilities"},
		"tools not listed": {s{Name: "x", Tools: []gateway.MCPTool{{Name: "a"}}}, "x", directory.KindMCP, "x 2 t", ""},
	} {
		parts := strings.Split(x.registered, " ")

		projection := &directory.Projection{Name: parts[0], Version: parts[1],
			Capabilities: []directory.Capability{{Name: "no tool", Type: "skill"}}}
		if len(parts) > 2 {
			projection.Capabilities = append(projection.Capabilities, directory.Capability{Name: parts[2],
				Type: "tool"})
		}

		var got []string
		for _, d := range compareMCP(&x.server, x.agent, x.kind, projection) {
			got = append(got, d.Member)
		}

		if strings.Join(got, " ") != x.want {
			t.Errorf("%s: %q differ, want %s", name, got, x.want)
		}
	}
}

// The source is at the base: of the protocols there the one that describes agents best. A server
// shows the owner's SVID only if the registration declares it.
//
// Requirement: AD-044
func TestTheSourceIsAtTheBase(t *testing.T) {
	owner := spiffeid.RequireFromString("spiffe://alpha.test/agent/ada")

	for name, x := range map[string]struct {
		base, authentication string
		bindings             []string // protocol and endpoint
		kind                 directory.Kind
		want                 string // the kind, URL, host and places
	}{
		"a card": {base: "https://a.example/x", bindings: []string{"a2a https://a.example/x/y"},
			want: "a2a https://a.example/x/y https://a.example:443 https://a.example/x/y/.well-known/agent-card.json " +
				"https://a.example/.well-known/agent-card.json https://a.example/.well-known/agent.json"},
		"a card at the origin": {base: "https://a.example", bindings: []string{"a2a https://a.example"},
			want: "a2a https://a.example https://a.example:443 https://a.example/.well-known/agent-card.json " +
				"https://a.example/.well-known/agent.json"},
		"a binding elsewhere": {base: "https://a.example/x", bindings: []string{"a2a https://b.example/y"},
			want: "a2a https://a.example/x https://a.example:443 https://a.example/x/.well-known/agent-card.json " +
				"https://a.example/.well-known/agent-card.json https://a.example/.well-known/agent.json"},
		"a broken binding": {base: "https://a.example/x", bindings: []string{"mcp https://[/"},
			want: "mcp https://a.example/x https://a.example:443 https://a.example/x"},
		"a card before a server": {base: "https://a.example/", bindings: []string{"mcp https://a.example/m",
			"a2a https://a.example/"},
			want: "a2a https://a.example/ https://a.example:443 https://a.example/.well-known/agent-card.json " +
				"https://a.example/.well-known/agent.json"},
		"HTTPS": {base: "https://A.example:8443/x", bindings: []string{"https https://a.example:8443/x"},
			want: "woa https://A.example:8443/.well-known/woa.json https://a.example:8443 " +
				"https://A.example:8443/.well-known/woa.json"},
		"a WoA document": {base: "https://a.example/", bindings: []string{"a2a https://a.example/"},
			kind: directory.KindWoA,
			want: "woa https://a.example/.well-known/woa.json https://a.example:443 " +
				"https://a.example/.well-known/woa.json"},
		"mutual TLS": {base: "https://a.example/", authentication: `["mtls"]`,
			bindings: []string{"mcp https://a.example/"},
			want:     "mcp https://a.example/ https://a.example:443 https://a.example/ mutual"},
		"no base":         {base: "", bindings: []string{"mcp https://a.example/"}},
		"a broken base":   {base: "https://[/", bindings: []string{"mcp https://a.example/"}},
		"no host":         {base: "https:///x", bindings: []string{"mcp https://a.example/"}},
		"no HTTPS":        {base: "http://a.example/", bindings: []string{"mcp https://a.example/"}},
		"a password":      {base: "https://u:p@a.example/", bindings: []string{"mcp https://a.example/"}},
		"other protocols": {base: "https://a.example/", bindings: []string{"grpc https://a.example/"}},
		"no binding":      {base: "https://a.example/"},
	} {
		projection := &directory.Projection{Base: x.base, Authentication: []byte(x.authentication)}

		for _, b := range x.bindings {
			protocol, endpoint, _ := strings.Cut(b, " ")
			projection.Bindings = append(projection.Bindings, directory.Binding{Protocol: protocol,
				Endpoint: endpoint})
		}

		doc := directory.LoadDocument(directory.KindAD, []byte(`{}`))
		if x.kind != "" {
			doc = directory.LoadDocument(x.kind, []byte(`{}`))
		}

		got := ""

		source, ok := SourceOf(owner, doc, projection)
		if ok {
			got = fmt.Sprint(source.Kind, " ", source.URL, " ", source.Host(), " ", strings.Join(source.places(),
				" "))
		}

		if source.MutualTLS {
			got += " mutual"
		}

		if ok != (x.want != "") || got != x.want || ok && source.Registrant != owner {
			t.Errorf("%s: %s\nwant %s", name, got, x.want)
		}

		if source, _ := SourceOf(spiffeid.ID{}, doc, projection); source.MutualTLS {
			t.Errorf("%s: a source of no owner must show an SVID", name)
		}
	}
}

var must = directorytest.Must

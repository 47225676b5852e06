package kinds_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// card is an A2A agent card with all that is projected.
const card = `{"protocolVersion":"0.3.0","name":"Route Planner","description":"Plans routes.","url":"https://Planner.test:8443/a2a/v1/",
	"preferredTransport":"GRPC","additionalInterfaces":[{"url":"https://Planner.test:8443/a2a/v1/","transport":"GRPC"},{"url":"https://planner.test/json","transport":"HTTP+JSON"}],
	"version":"3.1","provider":{"organization":"Planner Ltd","url":"https://planner.test"},"capabilities":{"streaming":true},
	"defaultInputModes":["text/plain"],"securitySchemes":{"bearer":{"type":"http"}},"security":[{"bearer":[]}],
	"skills":[{"id":"plan","name":"Plan a route","description":"From A to B","tags":["maps","travel"],"examples":["From Ulm to Bern"]},{"id":"avoid","name":"Avoid","tags":[]}],
	"registryTags":["demo"]}`

func TestProjectA2A(t *testing.T) {
	d := mustDocument(t, directory.KindA2A, card)
	media := []string{"text/plain"}

	want := &directory.Projection{
		Name: "Route Planner", Description: "Plans routes.", Base: "https://Planner.test:8443/a2a/v1/",
		Protocols: []string{"a2a"},
		Bindings: []directory.Binding{
			{Protocol: "a2a", Endpoint: "https://Planner.test:8443/a2a/v1/", MediaTypes: media, Transport: "GRPC"},
			{Protocol: "a2a", Endpoint: "https://planner.test/json", MediaTypes: media, Transport: "HTTP+JSON"},
		},
		Capabilities: []directory.Capability{
			{Name: "plan", Type: "skill", Description: "From A to B", Tags: []string{"maps", "travel"}},
			{Name: "avoid", Type: "skill"},
		},
		Examples:       []directory.Example{{ID: "plan-1", Text: "From Ulm to Bern", Tags: []string{"maps", "travel"}}},
		Authentication: []byte(`{"securitySchemes":{"bearer":{"type":"http"}},"security":[{"bearer":[]}]}`),
		Status:         "active", Version: "3.1", Vendor: "Planner Ltd",
	}
	if p := mustProject(t, "x", d); !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	if name, err := kinds.DefaultName(d); name != "planner.test:8443/a2a/v1" || err != nil {
		t.Errorf("its name is %q, %v", name, err)
	}

	plain := mustProject(t, "x", mustDocument(t, directory.KindA2A, `{"name":"n","url":"https://a.test"}`))
	if plain.Bindings[0].Transport != "JSONRPC" || plain.Authentication != nil {
		t.Errorf("a bare card: %+v", plain)
	}
}

func TestNamesOfCards(t *testing.T) {
	for url, want := range map[string]string{
		"https://a.test": "a.test", "https://a.test:443/": "a.test", "http://a.test:80/x": "a.test/x",
		"http://a.test:443":           "a.test:443",
		"https://A.test/X%20y/?q=1#f": "a.test/X%20y",
	} {
		name, err := kinds.DefaultName(mustDocument(t, directory.KindA2A, `{"name":"n","url":"`+url+`"}`))
		if name != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", url, name, err, want)
		}
	}

	_, err := kinds.DefaultName(mustDocument(t, directory.KindA2A, `{"name":"n","url":"https://a.test/x*"}`))
	wantRefusal(t, err, directory.BadName, "")
	_, err = kinds.DefaultName(mustDocument(t, directory.KindA2A, `{"name":"n","url":"a.test"}`))
	wantRefusal(t, err, directory.BadDocument, "/url")
}

// Requirement: AD-062
func TestProjectA2ARefuses(t *testing.T) {
	card := func(members string) string { return `{"name":"n","url":"https://a.test",` + members + `}` }
	for _, c := range []struct{ body, pointer string }{
		{`{"url":"https://a.test"}`, "/name"},
		{`{"name":"n"}`, "/url"},
		{`{"name":"n","url":"//a.test"}`, "/url"},
		{card(`"version":1`), "/version"},
		{card(`"provider":"x"`), "/provider"},
		{card(`"provider":{"organization":null}`), "/provider/organization"},
		{card(`"skills":{}`), "/skills"},
		{card(`"skills":[{"name":"x"}]`), "/skills/0/id"},
		{card(`"skills":[{"id":"x"},{"id":"x"}]`), "/skills/1/id"},
		{card(`"skills":[{"id":"x*"}]`), "/skills/0/id"},
		{card(`"skills":[{"id":"x","examples":[1]}]`), "/skills/0/examples/0"},
		{card(`"skills":[{"id":"x","name":[]}]`), "/skills/0/name"},
		{card(`"additionalInterfaces":[{"transport":"GRPC"}]`), "/additionalInterfaces/0/url"},
		{card(`"capabilities":null`), "/capabilities"},
		{card(`"skills":null`), "/skills"},
		{card(`"provider":{"organization":"x","url":null}`), "/provider/url"},
		{card(`"skills":[{"id":"x","tags":null}]`), "/skills/0/tags"},
		{card(`"skills":[{"id":"x","examples":[null]}]`), "/skills/0/examples/0"},
		{card(`"supportedInterfaces":[{"url":"https://a.test","protocolVersion":null}]`),
			"/supportedInterfaces/0/protocolVersion"},
		{card(`"securitySchemes":[]`), "/securitySchemes"},
		{card(`"security":{}`), "/security"},
		{card(`"description":"` + strings.Repeat("x", 4097) + `"`), "/description"},
	} {
		_, err := kinds.Project("x", mustDocument(t, directory.KindA2A, c.body))
		wantRefusal(t, err, directory.BadDocument, c.pointer)
	}
}

// Requirement: FLD-016
func TestProjectMCP(t *testing.T) {
	server := func(members string) *directory.Projection {
		return mustProject(t, "x", mustDocument(t, directory.KindMCP, `{"name":"io.github.ada/maps-mcp",`+members+`}`))
	}
	p := server(`"description":"Maps.","version":"1.2.3","status":"deprecated","packages":[{"registryType":"npm","identifier":"maps","version":"1"}],
		"remotes":[{"type":"streamable-http","url":"https://maps.test/mcp","headers":[{"name":"Authorization","value":"secret"},{"name":"X-Key"}]},{"type":"sse","url":"https://maps.test/sse"}]`)

	want := &directory.Projection{
		Name: "io.github.ada/maps-mcp", Description: "Maps.", Base: "https://maps.test/mcp", Protocols: []string{"mcp"},
		Bindings: []directory.Binding{{Protocol: "mcp", Endpoint: "https://maps.test/mcp",
			Transport: "streamable-http"}, {Protocol: "mcp", Endpoint: "https://maps.test/sse", Transport: "sse"}},
		Authentication: []byte(`{"headers":["Authorization","X-Key"]}`), Status: "deprecated", Version: "1.2.3",
		Vendor: "io.github",
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	seed := server(`"version_detail":{"version":"0.0.1-seed"},"remotes":[{"transport_type":"sse","url":"https://maps.test/sse"}],"packages":[{"registry_name":"pypi","name":"maps"}]`)
	if seed.Version != "0.0.1-seed" || seed.Base != "https://maps.test/sse" || seed.Bindings[0].Transport != "sse" {
		t.Errorf("the seed's shape: %+v", seed)
	}

	for members, base := range map[string]string{
		`"packages":[{"registry_name":"npm","name":"@21st-dev/magic","version":"0.0.46"}]`:                         "pkg:npm/%4021st-dev/magic@0.0.46",
		`"packages":[{"registryType":"pypi","identifier":"Maps_MCP","version":"1.0+b 1"}]`:                         "pkg:pypi/maps-mcp@1.0%2Bb%201",
		`"packages":[{"registry_name":"docker","name":"mcp/fetch","version":""}]`:                                  "pkg:docker/mcp/fetch",
		`"packages":[{"registryType":"oci","identifier":"docker.io/x/y:0.1.0","version":"0.1.0"}]`:                 "pkg:oci/y?repository_url=docker.io/x/y&tag=0.1.0",
		`"packages":[{"registryType":"oci","identifier":"ghcr.io/x/Y@sha256:ab"}]`:                                 "pkg:oci/y@sha256%3Aab?repository_url=ghcr.io/x/y",
		`"packages":[{"registryType":"oci","identifier":"r.test:5000/y","version":"2"}]`:                           "pkg:oci/y?repository_url=r.test:5000/y&tag=2",
		`"packages":[{"registryType":"docker","identifier":"r.test/x/y:1"}]`:                                       "pkg:docker/x/y@1?repository_url=r.test",
		`"remotes":[{"type":"sse","url":"https://{a}.test"}],"packages":[{"registryType":"npm","identifier":"y"}]`: "pkg:npm/y",
		`"version":"1","remotes":[{"type":"sse","url":"https://{a}.test","variables":{"a":{"isRequired":true}}}]`:  "pkg:generic/io.github.ada/maps-mcp@1",
		`"packages":[{"registryType":"mcpb","identifier":"https://x.test/a.mcpb"}]`:                                "pkg:generic/a.mcpb?download_url=https://x.test/a.mcpb",
		`"packages":[{"registry_name":"unknown","name":"x"},{"registry_name":"npm","name":"y"}]`:                   "pkg:npm/y",
		`"packages":[{"registry_name":"unknown","name":"x"}],"repository":{"url":"https://git.test/maps"}`:         "https://git.test/maps",
		`"packages":[],"remotes":[],"repository":{"url":"https://git.test/maps","source":"github"}`:                "https://git.test/maps",
	} {
		p := server(members)
		if p.Base != base {
			t.Errorf("%s: base is %s, want %s", members, p.Base, base)
		}

		if purl := strings.HasPrefix(base, "pkg:"); purl != (len(p.Bindings) == 1 && p.Bindings[0].Endpoint == base) ||
			!purl && len(p.Bindings) != 0 {
			t.Errorf("%s: bindings are %+v", members, p.Bindings)
		}
	}

	name, err := kinds.DefaultName(mustDocument(t, directory.KindMCP, `{"name":"io.github.ada/maps-mcp"}`))
	if name != "io.github.ada/maps-mcp" || err != nil {
		t.Errorf("its name is %q, %v", name, err)
	}
}

func TestProjectMCPRefuses(t *testing.T) {
	for _, c := range []struct{ body, pointer string }{
		{`{"repository":{"url":"https://git.test/x"}}`, "/name"},
		{`{"name":"x"}`, ""},
		{`{"name":"x","packages":[{"registry_name":"unknown","name":"x"}],"repository":{"url":""}}`, ""},
		{`{"name":"x","repository":{"url":"git@git.test:x/y"}}`, "/repository/url"},
		{`{"name":"x","repository":"https://git.test/x"}`, "/repository"},
		{`{"name":"x","remotes":[{"type":"sse"}]}`, "/remotes/0/url"},
		{`{"name":"x","remotes":[{"url":"https://a.test/?key=<YOUR_TOKEN>"}]}`, "/remotes/0/url"},
		{`{"name":"x","remotes":[{"url":"https://a.test"},{"url":"b"}]}`, "/remotes/1/url"},
		{`{"name":"x","remotes":[{"url":"https://a.test","headers":["Authorization"]}]}`, "/remotes/0/headers/0"},
		{`{"name":"x","packages":[{"registry_name":1}]}`, "/packages/0/registry_name"},
		{`{"name":"x","version_detail":"1"}`, "/version_detail"},
		{`{"name":"x","version":null}`, "/version"},
	} {
		_, err := kinds.Project("x", mustDocument(t, directory.KindMCP, c.body))
		wantRefusal(t, err, directory.BadDocument, c.pointer)
	}
}

// Requirement: FLD-004
func TestATemplateIsNoBinding(t *testing.T) {
	for remotes, want := range map[string]string{
		`{"type":"t","url":"https://{a}.test"},{"type":"t","url":"https://b.test"}`:                     "https://b.test",
		`{"type":"t","url":"https://{a}.test/{p}","variables":{"a":{"default":"x"},"p":{"value":"m"}}}`: "https://x.test/m",
	} {
		p := mustProject(t, "x", mustDocument(t, directory.KindMCP, `{"name":"n/x","remotes":[`+remotes+`]}`))
		if p.Base != want || len(p.Bindings) != 1 || p.Bindings[0].Endpoint != want {
			t.Errorf("%s: %+v", remotes, p)
		}
	}

	doc := mustDocument(t, directory.KindMCP, `{"name":"n","remotes":[{"url":"https://{.test"}]}`)

	_, err := kinds.Project("x", doc)
	wantRefusal(t, err, directory.BadDocument, "/remotes/0/url")
}

// Null in an optional member of a card is its absence, as ProtoJSON has it.
//
// Requirement: FLD-011
func TestNullInACardIsAbsence(t *testing.T) {
	body := `{"name":"n","description":"d","version":"1","url":null,"preferredTransport":null,"provider":null,
		"supportedInterfaces":[{"url":"https://a.test","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":null}],
		"additionalInterfaces":null,"securitySchemes":null,"securityRequirements":null,"security":null,"signatures":null,
		"capabilities":{"streaming":null},"skills":[{"id":"s","name":"S","description":"d","tags":["x"],"examples":null}]}`
	document := mustDocument(t, directory.KindA2A, body)

	p := mustProject(t, "x", document)
	if p.Base != "https://a.test" || len(p.Bindings) != 1 || p.Bindings[0].Transport != "JSONRPC" ||
		!strings.Contains(string(document.Bytes()), `"tenant":null`) {
		t.Errorf("%+v", p)
	}

	if name, err := kinds.DefaultName(document); name != "a.test" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}

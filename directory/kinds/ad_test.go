package kinds_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// jimenez41 is the example of draft-jimenez-agent-directory-01, 4.1.
const jimenez41 = `{
  "base": "https://agents.example.com/summarizer-v2",
  "description": "Summarizes documents and extracts named entities",
  "protocols": ["a2a"],
  "capabilities": [
    {
      "name": "summarize",
      "type": "tool",
      "description": "Summarize a document or text passage",
      "input_schema": {"type": "object", "properties": {"text": {"type": "string"}, "max_length": {"type": "integer"}}, "required": ["text"]}
    },
    {"name": "extract_entities", "type": "tool", "description": "Extract named entities from text"}
  ],
  "version": "2.1.0",
  "vendor": "Example Corp",
  "identity": "https://registry.example.com/agents/summarizer-v2",
  "identity_type": "aip"
}`

// Requirement: AD-004, AD-012, AD-013, AD-015
func TestProjectAD(t *testing.T) {
	p := mustProject(t, "summarizer-v2", mustDocument(t, directory.KindAD, jimenez41))

	want := &directory.Projection{
		Name: "summarizer-v2", Description: "Summarizes documents and extracts named entities",
		Base:      "https://agents.example.com/summarizer-v2",
		Protocols: []string{"a2a"},
		Bindings:  []directory.Binding{{Protocol: "a2a", Endpoint: "https://agents.example.com/summarizer-v2"}},
		Status:    "active", Version: "2.1.0", Vendor: "Example Corp",
		Capabilities: []directory.Capability{
			{
				Name: "summarize", Type: "tool", Description: "Summarize a document or text passage",
				InputSchema: []byte(`{"type": "object", "properties": {"text": {"type": "string"}, "max_length": {"type": "integer"}}, "required": ["text"]}`),
			},
			{Name: "extract_entities", Type: "tool", Description: "Extract named entities from text"},
		},
	}
	for i := range p.Capabilities {
		if !strings.Contains(jimenez41, string(p.Capabilities[i].Raw)) || len(p.Capabilities[i].Raw) < 50 {
			t.Errorf("capability %d as written is %s", i, p.Capabilities[i].Raw)
		}

		p.Capabilities[i].Raw = nil
	}

	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}
}

func TestProjectADExtensions(t *testing.T) {
	p := mustProject(t, "a", mustDocument(t, directory.KindAD,
		`{"base":"https://a.test/x","tags":["top"],"supported_languages":["en","de"],
		"examples":[{"id":"e1","text":"Do it","language":"en","tags":["t"]},{"text":"And this"}],
		"bindings":[{"protocol":"grpc","endpoint":"grpc://a.test:9","media_types":["application/grpc"],"interaction_model":"stream"}],
		"authentication":{ "type":"oauth2"},"constraints":[1],"status":"testing","capabilities":[{"name":"c","type":"x-own","tags":["own"]}]}`))

	want := &directory.Projection{
		Name: "a", Base: "https://a.test/x", Tags: []string{"top"}, Languages: []string{"en", "de"}, Status: "testing",
		Examples: []directory.Example{{ID: "e1", Text: "Do it", Language: "en", Tags: []string{"t"}},
			{Text: "And this"}},
		Bindings: []directory.Binding{{Protocol: "grpc", Endpoint: "grpc://a.test:9",
			MediaTypes: []string{"application/grpc"}, InteractionModel: "stream"}},
		Authentication: []byte(`{ "type":"oauth2"}`), Constraints: []byte(`[1]`),
		Capabilities: []directory.Capability{{Name: "c", Type: "x-own", Tags: []string{"own"},
			Raw: []byte(`{"name":"c","type":"x-own","tags":["own"]}`)}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	bare := mustProject(t, "a", mustDocument(t, directory.KindAD, `{"base":"HTTPS://a.test"}`))
	if len(bare.Bindings) != 1 || !reflect.DeepEqual(bare.Bindings[0],
		directory.Binding{Protocol: "https", Endpoint: "HTTPS://a.test"}) {
		t.Errorf("without protocols: %+v", bare.Bindings)
	}
}

// Requirement: AD-012, AD-013, AD-014, AD-015, AD-027, AD-042, AD-050, AD-052, AD-062
func TestProjectADRefuses(t *testing.T) {
	capability := func(members string) string {
		return `{"base":"https://a.test","capabilities":[{"name":"ok","type":"tool"},{` + members + `}]}`
	}
	repeat := func(n int, f func(i int) string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = f(i)
		}

		return "[" + strings.Join(out, ",") + "]"
	}

	tag := func(int) string { return `"t"` }
	for _, c := range []struct{ name, body, pointer string }{
		{"no base", `{}`, "/base"},
		{"a null base", `{"base":null}`, "/base"},
		{"an empty base", `{"base":""}`, "/base"},
		{"a base of another type", `{"base":["https://a.test"]}`, "/base"},
		{"Base is not base", `{"Base":"https://a.test"}`, "/base"},
		{"a relative base", `{"base":"/summarizer"}`, "/base"},
		{"a base without a scheme", `{"base":"a.test/x"}`, "/base"},
		{"a base without a host", `{"base":"https:///x"}`, "/base"},
		{"a base with a port alone", `{"base":"https://:8443/x"}`, "/base"},
		{"an opaque http base", `{"base":"http:x"}`, "/base"},
		{"a base with a space", `{"base":"https://a.test/a b"}`, "/base"},
		{"a base with a placeholder", `{"base":"https://{host}/x"}`, "/base"},
		{"a base outside ASCII", `{"base":"https://ä.test"}`, "/base"},
		{"a base with half an escape", `{"base":"https://a.test/%2"}`, "/base"},
		{"a base with half an escape in its query", `{"base":"https://a.test/?x=%zz"}`, "/base"},
		{"a scheme alone", `{"base":"x:"}`, "/base"},
		{"a port beyond the last", `{"base":"https://a.test:65536"}`, "/base"},
		{"port 0", `{"base":"https://a.test:0/x"}`, "/base"},
		{"a host with a final dot", `{"base":"https://a.test.:8443/x"}`, "/base"},
		{"a host with escapes", `{"base":"https://b%C3%BCcher.test"}`, "/base"},
		{"an invisible character in a type", capability(`"name":"a","type":"to\ufe0fol"`), "/capabilities/1/type"},
		{"an invisible character in a name", capability(`"name":"a\u180b","type":"tool"`), "/capabilities/1/name"},
		{"a line break", `{"base":"https://a.test/\n"}`, "/base"},
		{"a description of another type", `{"base":"https://a.test","description":1}`, "/description"},
		{"a null description", `{"base":"https://a.test","description":null}`, "/description"},
		{"a long description", `{"base":"https://a.test","description":"` + strings.Repeat("x", 4097) + `"}`,
			"/description"},
		{"protocols of another type", `{"base":"https://a.test","protocols":"a2a"}`, "/protocols"},
		{"null protocols", `{"base":"https://a.test","protocols":null}`, "/protocols"},
		{"a protocol of another type", `{"base":"https://a.test","protocols":["a2a",null]}`, "/protocols/1"},
		{"a version of another type", `{"base":"https://a.test","version":2}`, "/version"},
		{"a vendor of another type", `{"base":"https://a.test","vendor":{}}`, "/vendor"},
		{"an identity of another type", `{"base":"https://a.test","identity":true}`, "/identity"},
		{"an identity type of another type", `{"base":"https://a.test","identity_type":[]}`, "/identity_type"},
		{"a status of another type", `{"base":"https://a.test","status":1}`, "/status"},
		{"null authentication", `{"base":"https://a.test","authentication":null}`, "/authentication"},
		{"capabilities of another type", `{"base":"https://a.test","capabilities":{}}`, "/capabilities"},
		{"null capabilities", `{"base":"https://a.test","capabilities":null}`, "/capabilities"},
		{"a capability of another type", `{"base":"https://a.test","capabilities":["x"]}`, "/capabilities/0"},
		{"a capability without a name", capability(`"type":"tool"`), "/capabilities/1/name"},
		{"a capability with an empty name", capability(`"name":"","type":"tool"`), "/capabilities/1/name"},
		{"a capability without a type", capability(`"name":"x"`), "/capabilities/1/type"},
		{"a null type", capability(`"name":"x","type":null`), "/capabilities/1/type"},
		{"a long type", capability(`"name":"x","type":"` + strings.Repeat("t", 65) + `"`), "/capabilities/1/type"},
		{"a type with a control character", capability(`"name":"x","type":"a\u0007"`), "/capabilities/1/type"},
		{"a name twice", capability(`"name":"ok","type":"skill"`), "/capabilities/1/name"},
		{"a name with a *", capability(`"name":"purge*","type":"tool"`), "/capabilities/1/name"},
		{"tags of another type", capability(`"name":"x","type":"tool","tags":"t"`), "/capabilities/1/tags"},
		{"a tag of another type", capability(`"name":"x","type":"tool","tags":[{}]`), "/capabilities/1/tags/0"},
		{"65 tags", capability(`"name":"x","type":"tool","tags":` + repeat(65, tag)), "/capabilities/1/tags"},
		{"a long tag", capability(`"name":"x","type":"tool","tags":["t","` + strings.Repeat("t", 129) + `"]`),
			"/capabilities/1/tags/1"},
		{"65 top-level tags", `{"base":"https://a.test","tags":` + repeat(65, tag) + `}`, "/tags"},
		{"a long capability description",
			capability(`"name":"x","type":"tool","description":"` + strings.Repeat("x", 4097) + `"`),
			"/capabilities/1/description"},
		{"a schema that is a string", capability(`"name":"x","type":"tool","input_schema":"{}"`),
			"/capabilities/1/input_schema"},
		{"a schema that is a boolean", capability(`"name":"x","type":"tool","input_schema":true`),
			"/capabilities/1/input_schema"},
		{"a null schema", capability(`"name":"x","type":"tool","output_schema":null`), "/capabilities/1/output_schema"},
		{"a schema of an unknown type", capability(`"name":"x","type":"tool","input_schema":{"type":"text"}`),
			"/capabilities/1/input_schema/type"},
		{"a bad schema within",
			capability(`"name":"x","type":"tool","output_schema":{"properties":{"a/b":{"minLength":-1}}}`),
			"/capabilities/1/output_schema/properties/a~1b/minLength"},
		{"a bad schema that names 2020-12",
			capability(`"name":"x","type":"tool","input_schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","required":"a"}`), "/capabilities/1/input_schema/required"},
		{"a dialect of another type", capability(`"name":"x","type":"tool","input_schema":{"$schema":1}`),
			"/capabilities/1/input_schema/$schema"},
		{"an example without a text", `{"base":"https://a.test","examples":[{"id":"x"}]}`, "/examples/0/text"},
		{"a binding without an endpoint", `{"base":"https://a.test","bindings":[{"protocol":"x"}]}`,
			"/bindings/0/endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kinds.Project("a", mustDocument(t, directory.KindAD, c.body))
			wantRefusal(t, err, directory.BadDocument, c.pointer)
		})
	}

	many := func(n int) string {
		return `{"base":"https://a.test","capabilities":` + repeat(n, func(i int) string {
			return fmt.Sprintf(`{"name":"c%d","type":"tool"}`, i)
		}) + `}`
	}
	_, err := kinds.Project("a", mustDocument(t, directory.KindAD, many(129)))
	wantRefusal(t, err, directory.TooManyCapabilities, "/capabilities")

	for name, body := range map[string]string{
		"128 capabilities":     many(128),
		"a URI without a host": `{"base":"urn:example:agent"}`,
		"a mail address":       `{"base":"mailto:agent@a.test"}`,
		"a socket":             `{"base":"unix:///run/agent.sock"}`,
		"an IPv6 host":         `{"base":"https://[::1]:8443/x?y=%20#z"}`,
		"an unusual protocol":  `{"base":"https://a.test","protocols":["MCP/1.0","*"]}`,
		"64 tags of 128 bytes": capability(`"name":"x","type":"` + strings.Repeat("t", 64) + `","tags":` + repeat(64,
			func(int) string {
				return `"` + strings.Repeat("t", 128) + `"`
			})),
		"names that differ in case":             capability(`"name":"OK","type":"tool"`),
		"a schema of another draft":             capability(`"name":"x","type":"tool","input_schema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"text"}`),
		"a schema that refers to its own parts": capability(`"name":"x","type":"tool","input_schema":{"$id":"https://a.test/s","$ref":"#/$defs/a","$defs":{"a":{"$ref":"b"},"b":{"$id":"b","const":{"$ref":"https://elsewhere.test"}}}}`),
		"a property called $ref":                capability(`"name":"x","type":"tool","input_schema":{"properties":{"$ref":{"type":"string","default":"https://elsewhere.test"}}}`),
		"a schema with annotations":             capability(`"name":"x","type":"tool","input_schema":{"type":"object","x-own":1,"pattern":"(?!a)"}`),
		"an empty schema":                       capability(`"name":"x","type":"tool","input_schema":{},"output_schema":{}`),
		"a description of 4096": `{"base":"https://a.test","description":"` + strings.Repeat("x",
			4096) + `"}`,
		"unknown members, even null": `{"base":"https://a.test","x":null,"name":5,"capabilities":[{"name":"x","type":"y","z":null}]}`,
	} {
		t.Run(name, func(t *testing.T) { mustProject(t, "a", mustDocument(t, directory.KindAD, body)) })
	}
}

func TestCapabilityNamesAreUniqueInNFC(t *testing.T) {
	_, err := kinds.Project("a", mustDocument(t, directory.KindAD,
		`{"base":"https://a.test","capabilities":[{"name":"\u00e9","type":"t"},{"name":"e\u0301","type":"t"}]}`))
	wantRefusal(t, err, directory.BadDocument, "/capabilities/1/name")
}

// What was accepted once is read again whatever this release thinks of it.
func TestReprojectRefusesNothing(t *testing.T) {
	d := mustDocument(t, directory.KindAD,
		`{"base":7,"description":"kept","protocols":["a2a",1],"capabilities":[{"type":"t"},5,{"name":"x*","type":"t"}],"status":null}`)

	p, err := kinds.Reproject("a", d)
	if err != nil || p.Description != "kept" || p.Base != "" || len(p.Capabilities) != 2 || p.Status != "active" ||
		len(p.Protocols) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}

	good := mustDocument(t, directory.KindAD, jimenez41)
	if p, err = kinds.Reproject("a", good); err != nil || !reflect.DeepEqual(p, mustProject(t, "a", good)) {
		t.Errorf("got %+v, %v", p, err)
	}

	for _, project := range []func(string, directory.Document) (*directory.Projection, error){kinds.Project,
		kinds.Reproject} {
		_, err := project("a", directory.LoadDocument("later", []byte(`{}`)))
		wantRefusal(t, err, directory.BadDocument, "")
	}
}

// Requirement: AD-009
func TestADDocumentsBringNoName(t *testing.T) {
	_, err := kinds.DefaultName(mustDocument(t, directory.KindAD, jimenez41))
	wantRefusal(t, err, directory.BadName, "")
	_, err = kinds.DefaultName(directory.LoadDocument("later", []byte(`{}`)))
	wantRefusal(t, err, directory.BadDocument, "")
}

package kinds_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// gaikwadB is the example of draft-gaikwad-woa, appendix B.
const gaikwadB = `{"woa_version":"1","agents":[{"id":"summarizer","name":"Document Summarizer","description":"Summarizes English text.","version":"1.0.0",
	"capabilities":["https://example.com/capability/summarization"],
	"inputs":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"text":{"type":"string"},"max_words":{"type":"integer","minimum":10}},"required":["text"]},
	"outputs":{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"]},
	"transports":["rest"],"operations":[{"name":"default","description":"Default summarization operation."}]}],
	"transports":{"rest":{"base":"https://api.example.com","invoke_path":"/agents/{agent_id}/invoke"}}}`

// woa is a document with these members of its agent and these transports.
func woa(members, transports string) string {
	return `{"woa_version":"1","agents":[{"id":"a","name":"A","description":"d","inputs":{},"outputs":{"x":1},` +
		members + `}],"transports":{` + transports + `}}`
}

const (
	onRest  = `"transports":["rest"]`
	theRest = `"rest":{"base":"https://a.test","invoke_path":"/x"}`
)

// Requirement: WOA-002, WOA-003, WOA-004, WOA-017, WOA-022
func TestProjectWoA(t *testing.T) {
	d := mustDocument(t, directory.KindWoA, gaikwadB)
	p := mustProject(t, "x", d)

	tool := p.Capabilities[1]
	if !strings.HasPrefix(string(tool.InputSchema), `{"$schema"`) ||
		!strings.HasSuffix(string(tool.OutputSchema), `"required":["summary"]}`) {
		t.Errorf("its schemas are %s and %s", tool.InputSchema, tool.OutputSchema)
	}

	const summarization = "https://example.com/capability/summarization"

	want := &directory.Projection{
		Name: "Document Summarizer", Description: "Summarizes English text.", Base: "https://api.example.com",
		Protocols: []string{"https"},
		Bindings: []directory.Binding{{Protocol: "https", Endpoint: "https://api.example.com/agents/summarizer/invoke",
			MediaTypes: []string{"application/json"}, InteractionModel: "request-response", Envelope: "woa"}},
		Capabilities: []directory.Capability{
			{Name: summarization, Type: "skill"},
			{Name: "summarizer", Type: "tool", Operation: "default", Description: "Default summarization operation.",
				InputSchema: tool.InputSchema, OutputSchema: tool.OutputSchema},
		},
		Tags: []string{summarization}, Status: "active", Version: "1.0.0",
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	if name, err := kinds.DefaultName(d); name != "summarizer@api.example.com" || err != nil {
		t.Errorf("its name is %q, %v", name, err)
	}
}

// Requirement: WOA-005, WOA-006, WOA-021, WOA-025
func TestTransportsOfWoA(t *testing.T) {
	for _, c := range []struct{ agent, transports, name, protocols, base, endpoints string }{
		{`"transports":["rest"]`,
			`"rest":{"base":"https://A.test:8443/x/","invoke_path":"/{agent_id}?id={agent_id}&ID={AGENT_ID}"}`, "", "",
			"", ""},
		{`"transports":["rest"]`, `"rest":{"base":"https://A.test:8443/x/","invoke_path":"/{agent_id}?id={agent_id}"}`,
			"a@a.test:8443", "https", "https://A.test:8443/x/", "https://A.test:8443/x/a?id=a"},
		{`"transports":["mcp","rest","mcp"]`,
			`"mcp":{"server":"https://b.test/mcp","tool_namespace":"n","tool_field":"agent"},"rest":{"base":"https://a.test:443","invoke_path":"/i"}`,
			"a@b.test", "mcp https", "https://a.test:443", "https://b.test/mcp https://a.test:443/i"},
		{`"transports":["mcp"]`, `"mcp":{"server":"https://b.test/mcp","tool_namespace":"n","tool_field":"agent"}`,
			"a@b.test", "mcp", "https://b.test/mcp", "https://b.test/mcp"},
		{`"transports":["com.example.q","quic","rest"]`,
			`"com.example.q":{},"quic":{},"rest":{"base":"http://127.0.0.1:80","invoke_path":"/i"}`,
			"a@127.0.0.1:80", "com.example.q https", "http://127.0.0.1:80", "http://127.0.0.1:80/i"},
	} {
		d := mustDocument(t, directory.KindWoA, woa(c.agent, c.transports))

		p, err := kinds.Project("x", d)
		if c.name == "" {
			wantRefusal(t, err, directory.BadDocument, "/transports/rest/invoke_path") // no other placeholder is known
			continue
		}

		if err != nil {
			t.Errorf("%s: %v", c.transports, err)
			continue
		}

		var endpoints []string
		for _, b := range p.Bindings {
			endpoints = append(endpoints, b.Endpoint)
		}

		name, err := kinds.DefaultName(d)

		got := []string{name, strings.Join(p.Protocols, " "), p.Base, strings.Join(endpoints, " ")}
		if want := []string{c.name, c.protocols, c.base, c.endpoints}; !reflect.DeepEqual(got, want) || err != nil {
			t.Errorf("%s: got %q, %v\nwant %q", c.transports, got, err, want)
		}
	}
}

// Requirement: WOA-022
func TestOperationsOfWoA(t *testing.T) {
	for members, want := range map[string]string{
		`"capabilities":["s","s"]`: `s skill,a tool(default) {} {"x":1}`,
		`"capabilities":["one","s"],"operations":[{"name":"one","description":"d","inputs":{"type":"object"}},{"name":"default","description":"d","outputs":{}}]`: `s skill,one tool {"type":"object"} {"x":1},a tool(default) {} {}`,
	} {
		p := mustProject(t, "x", mustDocument(t, directory.KindWoA, woa(members+","+onRest, theRest)))

		var got []string
		for _, c := range p.Capabilities {
			s := c.Name + " " + c.Type
			if c.Operation != "" {
				s += "(" + c.Operation + ")"
			}

			if c.InputSchema != nil {
				s += fmt.Sprintf(" %s %s", c.InputSchema, c.OutputSchema)
			}

			got = append(got, s)
		}

		if strings.Join(got, ",") != want {
			t.Errorf("%s:\n got %s\nwant %s", members, strings.Join(got, ","), want)
		}
	}

	for from, want := range map[string]string{
		woa(`"authz":{"scheme":"south"},`+onRest, theRest):                       `{"scheme":"south"}`,
		strings.Replace(woa(onRest, theRest), `{"woa`, `{"authz":"see","woa`, 1): `"see"`,
	} {
		if p := mustProject(t, "x", mustDocument(t, directory.KindWoA, from)); string(p.Authentication) != want {
			t.Errorf("%s: authentication is %s", from, p.Authentication)
		}
	}
}

// Requirement: WOA-002, WOA-003, WOA-019, WOA-020, WOA-035, AD-062
func TestProjectWoARefuses(t *testing.T) {
	agent := func(members string) string { return woa(members+","+onRest, theRest) }

	rest := func(members string) string { return woa(onRest, `"rest":{`+members+`}`) }
	for _, c := range []struct{ body, pointer string }{
		{`{}`, "/woa_version"},
		{strings.Replace(agent(`"x":1`), `"1"`, `1`, 1), "/woa_version"},
		{strings.Replace(agent(`"x":1`), `"1"`, `"2"`, 1), "/woa_version"},
		{`{"woa_version":"1","agents":[],"transports":{}}`, "/agents"},
		{`{"woa_version":"1","agents":[{"id":"a"},{"id":"b"}],"transports":{}}`, "/agents"},
		{strings.Replace(agent(`"x":1`), `"id":"a"`, `"id":"a b"`, 1), "/agents/0/id"},
		{strings.Replace(agent(`"x":1`), `"id":"a"`, `"id":"ä"`, 1), "/agents/0/id"},
		{strings.Replace(agent(`"x":1`), `"name":"A",`, ``, 1), "/agents/0/name"},
		{strings.Replace(agent(`"x":1`), `"description":"d",`, ``, 1), "/agents/0/description"},
		{strings.Replace(agent(`"x":1`), `"inputs":{},`, ``, 1), "/agents/0/inputs"},
		{strings.Replace(agent(`"x":1`), `"inputs":{}`, `"inputs":{"type":"thing"}`, 1), "/agents/0/inputs/type"},
		{strings.Replace(agent(`"x":1`), `"outputs":{"x":1},`, ``, 1), "/agents/0/outputs"},
		{agent(`"capabilities":["x*"]`), "/agents/0/capabilities"},
		{agent(`"operations":[{"name":"x"}]`), "/agents/0/operations/0/description"},
		{agent(`"operations":[{"description":"x"}]`), "/agents/0/operations/0/name"},
		{agent(`"operations":[{"name":"x*","description":"x"}]`), "/agents/0/operations/0/name"},
		{agent(`"operations":[{"name":"x","description":"x"},{"name":"x","description":"x"}]`),
			"/agents/0/operations/1/name"},
		{agent(`"operations":[{"name":"x","description":"x","inputs":[]}]`), "/agents/0/operations/0/inputs"},
		{woa(`"transports":[]`, theRest), "/agents/0/transports"},
		{woa(`"transports":["rest","mcp"]`, theRest), "/agents/0/transports"},
		{woa(`"transports":["com.example.q"]`, `"com.example.q":{}`), "/agents/0/transports"},
		{woa(`"transports":["mcp"]`, `"mcp":{"server":"s","tool_field":"agent"}`), "/transports/mcp/tool_namespace"},
		{woa(`"transports":["mcp"]`, `"mcp":{"server":"s","tool_namespace":"n"}`), "/transports/mcp/tool_field"},
		{woa(`"transports":["mcp"]`, `"mcp":{"server":"s","tool_namespace":"n","tool_field":"agent"}`),
			"/transports/mcp/server"},
		{rest(`"invoke_path":"/x"`), "/transports/rest/base"},
		{rest(`"base":"https://a.test"`), "/transports/rest/invoke_path"},
		{rest(`"base":"http://a.test","invoke_path":"/x"`), "/transports/rest/base"},
		{rest(`"base":"https://a.test?x=1","invoke_path":"/x"`), "/transports/rest/base"},
		{rest(`"base":"https://a.test#x","invoke_path":"/x"`), "/transports/rest/base"},
		{rest(`"base":"https://a.test","invoke_path":"x"`), "/transports/rest/invoke_path"},
	} {
		_, err := kinds.Project("x", mustDocument(t, directory.KindWoA, c.body))
		wantRefusal(t, err, directory.BadDocument, c.pointer)
	}

	_, err := kinds.DefaultName(mustDocument(t, directory.KindWoA,
		woa(`"transports":["mcp"]`, `"mcp":{"server":"urn:x","tool_namespace":"n","tool_field":"agent"}`)))
	wantRefusal(t, err, directory.BadName, "")
}

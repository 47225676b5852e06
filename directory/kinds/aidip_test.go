package kinds_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// cui3 is the example of draft-cui-ai-agent-discovery-invocation, 3.
const cui3 = `{
  "id": "agent-12345",
  "name": "Chinese-English Translator",
  "description": "Translates text between Chinese and English with high accuracy using a fine-tuned model.",
  "version": "1.2.0",
  "publisher": "ExampleAI Inc.",
  "capabilities": ["translation"],
  "tags": ["nlp", "chinese", "english", "cloud"],
  "endpoint": "https://api.example.com/agents/translate",
  "supported_languages": ["en", "zh"],
  "authentication": {"type": "api_key", "instructions": "Include 'X-API-Key' header with your API key."},
  "status": "active",
  "operations": [
    {
      "name": "translateText",
      "description": "Translates text from source language to target language.",
      "inputs": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
      "outputs": {"type": "object", "properties": {"translated_text": {"type": "string"}}},
      "examples": [{"input": {"text": "你好世界", "source_language": "zh"}, "output": {"translated_text": "Hello World"}}]
    }
  ]
}`

// Requirement: AI-001, AI-020, AI-022
func TestProjectAIDIP(t *testing.T) {
	doc := mustDocument(t, directory.KindAIDIP, cui3)
	p := mustProject(t, "agent-12345", doc)
	inputs := []byte(`{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}`)
	outputs := []byte(`{"type": "object", "properties": {"translated_text": {"type": "string"}}}`)
	want := &directory.Projection{
		Name:        "Chinese-English Translator",
		Description: "Translates text between Chinese and English with high accuracy using a fine-tuned model.",
		Base:        "https://api.example.com/agents/translate", Protocols: []string{"https"},
		Bindings: []directory.Binding{{Protocol: "https", Endpoint: "https://api.example.com/agents/translate"}},
		Capabilities: []directory.Capability{
			{Name: "translation", Type: "skill"},
			{Name: "translateText", Type: "tool",
				Description: "Translates text from source language to target language.", InputSchema: inputs,
				OutputSchema: outputs},
		},
		Tags: []string{"nlp", "chinese", "english", "cloud"}, Languages: []string{"en", "zh"},
		Examples: []directory.Example{{
			ID: "translateText-1", Text: `{"text":"你好世界","source_language":"zh"}`, Tags: []string{"translateText"},
			InputSchema: inputs, OutputSchema: outputs,
		}},
		Authentication: []byte(`{"type": "api_key", "instructions": "Include 'X-API-Key' header with your API key."}`),
		Status:         "active", Version: "1.2.0", Vendor: "ExampleAI Inc.",
	}

	p.Capabilities[1].Raw = nil
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	if name, err := kinds.DefaultName(doc); name != "agent-12345" || err != nil {
		t.Errorf("its name is %q (%v)", name, err)
	}
}

// What the draft leaves open: no operations but inputs and outputs, no id, other
// protocols, members that nobody knows, members that are the directory's own.
//
// Requirement: AI-020, AI-021, AI-024
func TestProjectAIDIPOpenly(t *testing.T) {
	doc := mustDocument(t, directory.KindAIDIP,
		`{"name":"Text","description":"Makes text.","endpoint":"https://a.test/x","inputs":{},"outputs":{"type":"string"},
		"protocols":["a2a","https"],"price":{"per_call":"0.10"},"provenance":{"verification":{"state":"verified"}},"gateway":"/x","revision":9}`)
	if got := string(doc.Bytes()); !strings.Contains(got, `"price":{"per_call":"0.10"}`) ||
		strings.Contains(got, "verified") || strings.Contains(got, "gateway") {
		t.Errorf("kept is %s", got)
	}

	p := mustProject(t, "", doc)
	if len(p.Bindings) != 2 || p.Bindings[0].Protocol != "a2a" || p.Bindings[0].Endpoint != "https://a.test/x" ||
		len(p.Capabilities) != 0 {
		t.Errorf("got %+v", p)
	}

	if p.Status != "active" || p.Authentication != nil {
		t.Errorf("status %q, authentication %s", p.Status, p.Authentication)
	}
}

// An operation has its name before a capability string; the view lists the
// string still.
func TestAIDIPNamesAreUnique(t *testing.T) {
	doc := mustDocument(t, directory.KindAIDIP,
		`{"name":"N","description":"D","endpoint":"https://a.test","capabilities":["sum","add","sum"],"tags":["math"],
		"operations":[{"name":"sum","description":"Adds.","inputs":{},"outputs":{}}]}`)
	p := mustProject(t, "", doc)

	var names []string
	for _, c := range p.Capabilities {
		names = append(names, c.Name+" "+c.Type)
	}

	if !slices.Equal(names, []string{"add skill", "sum tool"}) || !slices.Equal(p.Tags, []string{"math", "sum"}) {
		t.Errorf("capabilities %v, tags %v", names, p.Tags)
	}

	if got := kinds.ListedCapabilities(doc, p); !slices.Equal(got, []string{"sum", "add", "sum"}) {
		t.Errorf("listed are %v", got)
	}
}

// Requirement: AI-001, AI-020, AI-021, AI-022
func TestProjectAIDIPRefuses(t *testing.T) {
	with := func(members string) string {
		return `{"name":"N","description":"D","endpoint":"https://a.test","inputs":{},"outputs":{},` + members + `}`
	}

	operation := func(members string) string {
		return `{"name":"N","description":"D","endpoint":"https://a.test","operations":[{` + members + `}]}`
	}
	for _, c := range []struct{ name, body, pointer string }{
		{"no endpoint", `{"name":"N","description":"D","inputs":{},"outputs":{}}`, "/endpoint"},
		{"a relative endpoint",
			`{"name":"N","description":"D","endpoint":"/agents/n/invoke","inputs":{},"outputs":{}}`, "/endpoint"},
		{"no name", `{"description":"D","endpoint":"https://a.test","inputs":{},"outputs":{}}`, "/name"},
		{"no description", `{"name":"N","endpoint":"https://a.test","inputs":{},"outputs":{}}`, "/description"},
		{"a long description", `{"name":"N","description":"` + strings.Repeat("x",
			4097) + `","endpoint":"https://a.test","inputs":{},"outputs":{}}`, "/description"},
		{"neither operations nor inputs and outputs", `{"name":"N","description":"D","endpoint":"https://a.test"}`,
			"/operations"},
		{"no operations", `{"name":"N","description":"D","endpoint":"https://a.test","operations":[]}`, "/operations"},
		{"inputs alone", `{"name":"N","description":"D","endpoint":"https://a.test","inputs":{}}`, "/outputs"},
		{"outputs alone", `{"name":"N","description":"D","endpoint":"https://a.test","outputs":{}}`, "/inputs"},
		{"inputs of another type",
			`{"name":"N","description":"D","endpoint":"https://a.test","inputs":true,"outputs":{}}`, "/inputs"},
		{"an operation without a name", operation(`"description":"D","inputs":{},"outputs":{}`), "/operations/0/name"},
		{"an operation without a description", operation(`"name":"n","inputs":{},"outputs":{}`),
			"/operations/0/description"},
		{"an operation without inputs", operation(`"name":"n","description":"D","outputs":{}`), "/operations/0/inputs"},
		{"an operation without outputs", operation(`"name":"n","description":"D","inputs":{}`),
			"/operations/0/outputs"},
		{"an operation that is called invoke", operation(`"name":"invoke","description":"D","inputs":{},"outputs":{}`),
			"/operations/0/name"},
		{"an operation that is no segment", operation(`"name":"a/b","description":"D","inputs":{},"outputs":{}`),
			"/operations/0/name"},
		{"an operation that is a dot segment", operation(`"name":"..","description":"D","inputs":{},"outputs":{}`),
			"/operations/0/name"},
		{"inputs that are no schema", operation(`"name":"n","description":"D","inputs":{"type":"text"},"outputs":{}`),
			"/operations/0/inputs/type"},
		{"an example without input",
			operation(`"name":"n","description":"D","inputs":{},"outputs":{},"examples":[{"output":1}]`),
			"/operations/0/examples/0/input"},
		{"two operations of one name",
			`{"name":"N","description":"D","endpoint":"https://a.test","operations":[{"name":"n","description":"D","inputs":{},"outputs":{}},{"name":"n","description":"D","inputs":{},"outputs":{}}]}`, "/operations/1/name"},
		{"a capability with an asterisk", with(`"capabilities":["a","b*"]`), "/capabilities/1"},
		{"a capability without a name", with(`"capabilities":[""]`), "/capabilities/0"},
		{"a capability of another type", with(`"capabilities":[{"name":"a"}]`), "/capabilities/0"},
		{"an id with an asterisk", with(`"id":"a*"`), "/id"},
		{"an id of a registration's form", with(`"id":"01JWNTC0000000000000000A1P"`), "/id"},
		{"an id that is a route", with(`"id":"search"`), "/id"},
		{"another route", with(`"id":"resolve"`), "/id"},
		{"an id of another type", with(`"id":7`), "/id"},
		{"a version of another type", with(`"version":1`), "/version"},
		{"null languages", with(`"supported_languages":null`), "/supported_languages"},
		{"an API key", with(`"authentication":{"type":"api_key","value":"s3cr3t"}`), "/authentication/value"},
		{"a client's secret", with(`"authentication":{"type":"oauth2_bearer","Client_Secret":"s3cr3t"}`),
			"/authentication/Client_Secret"},
		{"scopes of another type", with(`"authentication":{"scopes":"all"}`), "/authentication/scopes"},
		{"authentication of another type", with(`"authentication":"none"`), "/authentication"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kinds.Project("", mustDocument(t, directory.KindAIDIP, c.body))
			wantRefusal(t, err, directory.BadDocument, c.pointer)
		})
	}

	_, err := kinds.Project("another", mustDocument(t, directory.KindAIDIP, cui3))
	wantRefusal(t, err, directory.BadDocument, "/id")
	_, err = kinds.Project("search", mustDocument(t, directory.KindAIDIP, with(`"id":"search"`)))
	wantRefusal(t, err, directory.BadDocument, "/id")
	own := rid(1).String()
	mustProject(t, own, mustDocument(t, directory.KindAIDIP, with(`"id":"`+own+`"`)))
}

// One refusal names all that is wrong, each once, and not without end.
//
// Requirement: AI-025
func TestAllViolationsAreNamed(t *testing.T) {
	violations := func(body string) []string {
		_, err := kinds.Project("", mustDocument(t, directory.KindAIDIP, body))

		var e *directory.Error
		if !errors.As(err, &e) || len(e.Violations) == 0 ||
			e.Violations[0] != (directory.Violation{Pointer: e.Pointer, Detail: e.Detail}) {
			t.Fatalf("got %+v", err)
		}

		var at []string
		for _, v := range e.Violations {
			at = append(at, v.Pointer)
		}

		return at
	}
	got := violations(`{"name":7,"endpoint":"nowhere","tags":["a",1],"operations":[{"name":"a/b","inputs":{"type":"x"},"outputs":1}]}`)
	slices.Sort(got)

	want := []string{"/description", "/endpoint", "/name", "/operations/0/description", "/operations/0/inputs/type",
		"/operations/0/name", "/operations/0/outputs", "/tags/1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}

	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `,%d`, i)
	}

	if got := violations(`{"tags":[` + many.String()[1:] + `]}`); len(got) != directory.MaxViolations {
		t.Errorf("%d violations are named", len(got))
	}
}

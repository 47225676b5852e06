package kinds_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// xu131 is the minimal metadata of draft-xu, 13.1.
const xu131 = `{
  "id": "https://example.net/agents/minimal",
  "name": "Minimal Agent",
  "description": "Answers short factual questions.",
  "bindings": [{"protocol": "https", "endpoint": "https://example.net/agent/invoke"}]
}`

// Requirement: XU-001, XU-028, XU-036
func TestProjectMinimalProfile(t *testing.T) {
	doc := mustDocument(t, directory.KindProfile, xu131)

	name, err := kinds.DefaultName(doc)
	if name != "https://example.net/agents/minimal" || err != nil {
		t.Errorf("its name is %q, %v", name, err)
	}

	want := &directory.Projection{
		Name: "Minimal Agent", Description: "Answers short factual questions.",
		Base:      "https://example.net/agent/invoke",
		Protocols: []string{"https"},
		Bindings:  []directory.Binding{{Protocol: "https", Endpoint: "https://example.net/agent/invoke"}},
		Status:    "active",
	}
	if p := mustProject(t, name, doc); !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	if d := kinds.DatesOf(doc); d != (kinds.Dates{}) {
		t.Errorf("it says %+v of its age", d)
	}
}

// Requirement: XU-006, XU-007, XU-036, XU-039, XU-041, XU-042, XU-044, XU-046
func TestProjectProfile(t *testing.T) {
	doc := mustDocument(t, directory.KindProfile, `{
		"id": "Caf\u0065\u0301", "name": "The best agent", "description": "Perfect and guaranteed.",
		"tags": ["hr", "HR", "hr", "payroll"],
		"examples": [{"text": "One", "language": "de-AT", "input_schema": {"type": 7}, "x": 1}, {"id": "e", "text": "Two", "language": "no language", "tags": ["t"]}],
		"bindings": [
			{"protocol": "grpc", "endpoint": "grpc://late", "com.example/x": true},
			{"protocol": "mcp", "endpoint": "second", "priority": 7, "interaction_model": "of-its-own"},
			{"protocol": "https", "endpoint": "https://first", "priority": -1, "media_types": ["application/json"]},
			{"protocol": "mcp", "endpoint": "third", "priority": 7}],
		"auth": {"type": "none"}, "constraints": {"region": "apac"}, "status": "retired", "version": "2",
		"updated_at": "2026-05-08T00:00:00.5+02:00", "expires_at": "2030-01-01T00:00:00Z", "signature": {}, "com.example/price": 7}`)
	p := mustProject(t, "Café", doc)

	want := &directory.Projection{
		Name: "The best agent", Description: "Perfect and guaranteed.", Base: "https://first",
		Protocols: []string{"https", "mcp", "grpc"},
		Bindings: []directory.Binding{
			{Protocol: "https", Endpoint: "https://first", MediaTypes: []string{"application/json"}},
			{Protocol: "mcp", Endpoint: "second", InteractionModel: "of-its-own"}, {Protocol: "mcp", Endpoint: "third"},
			{Protocol: "grpc", Endpoint: "grpc://late"},
		},
		Capabilities: []directory.Capability{{Name: "hr", Type: "skill"}, {Name: "HR", Type: "skill"},
			{Name: "payroll", Type: "skill"}},
		Tags: []string{"hr", "HR", "payroll"},
		Examples: []directory.Example{{Text: "One", Language: "de-AT", InputSchema: []byte(`{"type": 7}`)},
			{ID: "e", Text: "Two", Tags: []string{"t"}}},
		Languages:      []string{"de-AT"},
		Authentication: []byte(`{"type": "none"}`), Constraints: []byte(`{"region": "apac"}`), Status: "retired",
		Version: "2",
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v\nwant %+v", p, want)
	}

	d := kinds.DatesOf(doc)
	if !d.Updated.Equal(time.Date(2026, 5, 7, 22, 0, 0, 5e8, time.UTC)) || d.Expires.Year() != 2030 ||
		d.Version != "2" {
		t.Errorf("it says %+v of its age", d)
	}
}

// Requirement: XU-034, XU-035, XU-036, XU-037, XU-038, XU-040, XU-047
func TestProjectProfileRefuses(t *testing.T) {
	const id, name, description, bindings = `"id":"one",`, `"name":"N",`, `"description":"D",`,
		`"bindings":[{"protocol":"p","endpoint":"e"}]`
	for doc, pointer := range map[string]string{
		`{"ID":"one",` + name + description + bindings + `}`:                                    "/id",
		`{"id":"two",` + name + description + bindings + `}`:                                    "/id",
		`{"id":7,` + name + description + bindings + `}`:                                        "/id",
		`{` + id + description + bindings + `}`:                                                 "/name",
		`{` + id + name + bindings + `}`:                                                        "/description",
		`{` + id + name + `"description":"` + strings.Repeat("d", 4097) + `",` + bindings + `}`: "/description",
		`{` + id + name + description + `"x":1}`:                                                "/bindings",
		`{` + id + name + description + `"bindings":[]}`:                                        "/bindings",
		`{` + id + name + description +
			`"bindings":[{"protocol":"p"}]}`: "/bindings/0/endpoint",
		`{` + id + name + description +
			`"bindings":[{"endpoint":"e"}]}`: "/bindings/0/protocol",
		`{` + id + name + description +
			`"bindings":[{"protocol":"p","endpoint":"e","priority":"1"}]}`: "/bindings/0/priority",
		`{` + id + name + description +
			`"bindings":[{"protocol":"p","endpoint":"e","priority":0.5}]}`: "/bindings/0/priority",
		`{` + id + name + description + bindings + `,"tags":"a"}`:                                  "/tags",
		`{` + id + name + description + bindings + `,"tags":["a",""]}`:                             "/tags/1",
		`{` + id + name + description + bindings + `,"tags":["a*"]}`:                               "/tags/0",
		`{` + id + name + description + bindings + `,"tags":["` + strings.Repeat("t", 129) + `"]}`: "/tags/0",
		`{` + id + name + description + bindings +
			`,"examples":[{"id":"x"}]}`: "/examples/0/text",
		`{` + id + name + description + bindings + `,"auth":"none"}`:                         "/auth",
		`{` + id + name + description + bindings + `,"status":null}`:                         "/status",
		`{` + id + name + description + bindings + `,"version":1}`:                           "/version",
		`{` + id + name + description + bindings + `,"updated_at":"yesterday"}`:              "/updated_at",
		`{` + id + name + description + bindings + `,"expires_at":"2027-01-01T00:00:00,5Z"}`: "/expires_at", // FLD-013
		`{` + id + name + description + bindings + `,"expires_at":""}`:                       "/expires_at",
		`{"id":"search",` + name + description + bindings + `}`:                              "/id",
	} {
		d, err := directory.ParseDocument(directory.KindProfile, []byte(doc))
		if err == nil {
			agent := "one"
			if strings.Contains(doc, `"search"`) {
				agent = "search"
			}

			_, err = kinds.Project(agent, d)
		}

		var refusal *directory.Error
		if !errors.As(err, &refusal) || refusal.Pointer != pointer {
			t.Errorf("%.150s: %v, want a refusal at %q", doc, err, pointer)
		}
	}
}

// What is the node's own is dropped, and what nobody knows is kept as it is.
//
// Requirement: XU-003, XU-045
func TestAProfileKeepsWhatNobodyKnows(t *testing.T) {
	doc := mustDocument(t, directory.KindProfile,
		`{"id":"one","provenance":{"forged":true},"lt":60,"rid":"x","gateway":"y","redacted":true,"projected":false,"kind":"ad","revision":7,"href":"h","registered_at":"r",
		"com.example/x": { "a" : 1.0 },"agent":"kept"}`)
	if got, want := string(doc.Bytes()), `{"id":"one","com.example/x":{ "a" : 1.0 },"agent":"kept"}`; got != want {
		t.Errorf("kept is %s, want %s", got, want)
	}
}

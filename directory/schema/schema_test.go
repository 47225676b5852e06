package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/schema"
)

// Schemas of strangers judge values of strangers: what is wrong is named, nothing
// is fetched, and nothing takes for ever.
//
// Requirement: AI-008
func TestValidate(t *testing.T) {
	doubling := `{"$defs": {"d0": {"type": "integer"}`
	for i := range 60 {
		doubling += fmt.Sprintf(`, "d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}`, i+1, i, i)
	}

	doubling += `}, "$ref": "#/$defs/d60"}`
	tree := `{"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}, "n": {"type": "integer"}}}`
	twice := `{"allOf": [{"additionalProperties": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}}]}`

	deep := strings.Repeat(`{"l":`, 60) + `{"n":1}` + strings.Repeat(`}`, 60)
	for _, tc := range []struct {
		name, schema, value, at string
		fails                   bool // it can't be found out
	}{
		{"meets", `{"type": "object", "required": ["a"]}`, `{"a": 1}`, "", false},
		{"breaks", `{"properties": {"a/b": {"items": {"type": "integer"}}}}`, `{"a/b": [1, "x"]}`, "/input/a~1b/1",
			false},
		{"lacks", `{"properties": {"a": {"required": ["b"]}}}`, `{"a": {}}`, "/input/a/b", false},
		{"a deep tree", tree, deep, "", false},
		{"a deep tree's leaf", tree, strings.Replace(deep, "1}", `"x"}`, 1),
			"/input" + strings.Repeat("/l", 60) + "/n", false},
		{"a negative number of more digits", `{"items": {"minimum": 5}}`, `[-100]`, "/input/0", false},
		{"null", `{"type": "null"}`, ` null `, "", false},
		{"nothing", `{"title": "any"}`, ``, "", true},
		{"white space", `{"title": "any"}`, " \n", "", true},
		{"half a value", `{"title": "any"}`, `{"a": [1,`, "", true},
		{"two values", `{"title": "any"}`, `1 2`, "", true},
		{"a name twice", `{"title": "any"}`, `{"a": 1, "a": 2}`, "", true},
		{"a schema elsewhere", `{"$ref": "https://127.0.0.1/schema"}`, `1`, "", true},
		{"a schema in a file", `{"$ref": "file:///etc/passwd"}`, `1`, "", true},
		{"one that is applied to itself", `{"$ref": "#"}`, `1`, "", true},
		{"doubling on the spot", doubling, `1`, "", true},
		{"doubling with depth", twice, deep, "", true},
	} {
		s, err := schema.Compile([]byte(tc.schema))

		var vs []directory.Violation
		if err == nil {
			vs, err = s.Validate([]byte(tc.value), "/input", schema.NewBudget(schema.MaxSteps))
		}

		at := ""
		if len(vs) > 0 {
			at = vs[0].Pointer
		}

		if (err != nil) != tc.fails || at != tc.at {
			t.Errorf("%s: %v, %v; want it at %q", tc.name, vs, err, tc.at)
		}
	}
}

// A member that is missing behind the last violation leaves no mark on that one.
//
// Requirement: AI-008
func TestOnlyAMissingMemberIsMarkedAsMissing(t *testing.T) {
	for _, text := range []string{
		`{"properties": {"a": {"minProperties": 1, "required": ["b"]}}}`,
		`{"properties": {"a": {"const": 1, "required": ["b"]}}}`,
		`{"properties": {"a": {"enum": [1, 2], "required": ["b"]}}}`,
	} {
		s, err := schema.Compile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}

		vs, err := s.Validate([]byte(`{"a": {}}`), "", schema.NewBudget(schema.MaxSteps))
		if err != nil || len(vs) != 1 || vs[0].Pointer != "/a" || vs[0].Missing {
			t.Errorf("%s: violations %+v, %v; want one at /a that is not marked", text, vs, err)
		}
	}
}

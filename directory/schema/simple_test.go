package schema

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What a simple schema takes, package jsonschema finds nothing wrong with.
//
// Requirement: AI-008
func TestSimpleSchemasTakeNothingThatIsWrong(t *testing.T) {
	word := rapid.SampledFrom([]string{`"a"`, `"b"`, `"ab"`, `"é"`, `"\u0061"`, `"c"`})
	number := rapid.SampledFrom([]string{"0", "1", "-1", "2", "1.0", "1.5", "1e1", "1e999999", "9223372036854775808", "-0"})
	var value func(deep int) *rapid.Generator[string]
	value = func(deep int) *rapid.Generator[string] {
		leaf := rapid.OneOf(word, number, rapid.SampledFrom([]string{"null", "true", "false", "{}", "[]", " 1 ", `"`, "1 1"}))
		if deep == 0 {
			return leaf
		}
		within := rapid.Deferred(func() *rapid.Generator[string] { return value(deep - 1) })
		return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) string {
			return "[" + strings.Join(rapid.SliceOfN(within, 0, 3).Draw(t, "items"), ",") + "]"
		}), rapid.Custom(func(t *rapid.T) string {
			var members []string
			for range rapid.IntRange(0, 3).Draw(t, "members") {
				members = append(members, word.Draw(t, "name")+":"+within.Draw(t, "value"))
			}
			return "{" + strings.Join(members, ", ") + "}"
		}))
	}
	var schema func(deep int) *rapid.Generator[string]
	schema = func(deep int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			all := []string{`"title":"T"`}
			sub := func() string {
				if deep == 0 {
					return rapid.SampledFrom([]string{"true", "false", "{}"}).Draw(t, "leaf")
				}
				return schema(deep-1).Draw(t, "sub")
			}
			for _, keyword := range rapid.SliceOfNDistinct(rapid.IntRange(0, 13), 0, 4, rapid.ID).Draw(t, "keywords") {
				all = append(all, [...]func() string{
					func() string {
						return `"type":` + rapid.SampledFrom([]string{`"object"`, `"array"`, `"string"`, `"number"`, `"integer"`, `["integer","null"]`, `["boolean","object"]`, `["number","integer"]`}).Draw(t, "type")
					},
					func() string { return `"properties":{"a":` + sub() + `,"b":` + sub() + `}` },
					func() string {
						return `"required":` + rapid.SampledFrom([]string{`["a"]`, `["a","b"]`, `["c"]`, `[]`}).Draw(t, "required")
					},
					func() string { return `"additionalProperties":` + sub() },
					func() string { return `"additionalProperties":false` },
					func() string { return `"items":` + sub() },
					func() string { return `"minItems":1` },
					func() string { return `"maxItems":2` },
					func() string { return `"minLength":2` },
					func() string { return `"maxLength":1` },
					func() string { return `"minimum":` + rapid.SampledFrom([]string{"0", "1", "0.5"}).Draw(t, "minimum") },
					func() string { return `"maximum":1` },
					func() string {
						return `"enum":` + rapid.SampledFrom([]string{`["a","ab"]`, `["a",1]`, `["é"]`}).Draw(t, "enum")
					},
					func() string {
						return rapid.SampledFrom([]string{`"pattern":"b"`, `"uniqueItems":true`, `"not":` + sub(), `"const":1`, `"multipleOf":2`}).Draw(t, "more")
					},
				}[keyword]())
			}
			return "{" + strings.Join(all, ",") + "}"
		})
	}
	took := 0
	rapid.Check(t, func(t *rapid.T) {
		text, v := schema(2).Draw(t, "schema"), value(2).Draw(t, "value")
		s, err := Compile([]byte(text))
		if err != nil {
			return // a keyword twice
		}
		if !s.simple.takes([]byte(v)) {
			return
		}
		took++
		if vs, err := s.judge([]byte(v), ""); err != nil || len(vs) > 0 {
			t.Fatalf("%s takes %s, which is wrong: %v, %v", text, v, vs, err)
		}
	})
	if took == 0 {
		t.Error("nothing was taken")
	}
}

// What most operations say and get needs no other judge.
func TestSimpleSchemasTakeWhatIsCommon(t *testing.T) {
	const schema = `{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "description": "D",
		"properties": {"text": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 1, "maximum": 20}, "to": {"enum": ["de", "fr"]},
			"score": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2}, "on": {"type": ["boolean", "null"]}},
		"required": ["text"], "additionalProperties": {"type": "object"}}`
	s, err := Compile([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	good := `{"text": "Straße", "n": 20, "to": "fr", "score": 0.5, "tags": ["a", "b"], "on": null, "x": {"any": [1, {"e": 1.5e3}]}}`
	if !s.simple.takes([]byte(good)) {
		t.Errorf("%s is judged at length", good)
	}
	for _, bad := range []string{`{}`, `[]`, `{"text": "0123456789"}`, `{"text": "a", "n": 21}`, `{"text": "a", "n": "1"}`, `{"text": "a", "to": "it"}`, `{"text": "a", "tags": ["a", "b", "c"]}`,
		`{"text": "a", "on": 1}`, `{"text": "a", "x": 1}`, `{"text": "a", "text": "a"}`, `{"text": "a"} 1`, `{"text": "a"`, ``} {
		if s.simple.takes([]byte(bad)) {
			t.Errorf("%s is taken", bad)
		}
	}
}

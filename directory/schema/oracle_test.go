package schema

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	oracle "github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// Random schemas and values are judged as another implementation judges them.
func TestAnotherImplementationAgrees(t *testing.T) {
	judged, valid := 0, 0

	rapid.Check(t, func(t *rapid.T) {
		schema, value := schemas(2).Draw(t, "schema"), values(2).Draw(t, "value")

		want, err := oracleOf(schema)
		if err != nil {
			return // a name stands twice, or a reference leads nowhere
		}

		instance, err := oracle.UnmarshalJSON(strings.NewReader(value))
		if err != nil {
			return
		}

		s, err := compile([]byte(schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}

		got, err := s.validate([]byte(value), rapid.IntRange(1, 8).Draw(t, "violations"), NewBudget(MaxSteps))
		if err != nil {
			return // a name stands twice in the value, or a number has too many digits
		}

		judged++
		wrong := want.Validate(instance)

		if wrong == nil {
			valid++
		}

		if (wrong == nil) != (len(got) == 0) {
			t.Fatalf("%s of %s: %v, but the other says: %v", schema, value, got, wrong)
		}
	})

	if valid == 0 || valid == judged {
		t.Errorf("%d were judged, %d of them valid", judged, valid)
	}
}

// Whether a text is a schema is decided as its metaschema decides it.
func TestTheMetaschemaAgrees(t *testing.T) {
	meta := oracle.NewCompiler().MustCompile(draft2020)
	keywords := strings.Fields("$ref $defs allOf anyOf oneOf not if then else dependentSchemas dependentRequired " +
		"properties " +
		"patternProperties additionalProperties propertyNames prefixItems items contains unevaluatedProperties " +
		"unevaluatedItems type const enum minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength " +
		"maxLength " +
		"minItems maxItems minProperties maxProperties minContains maxContains uniqueItems required pattern title " +
		"description $comment format deprecated readOnly writeOnly examples contentEncoding contentMediaType " +
		"contentSchema")
	of := []string{`"#"`, `{}`, `{"a":{}}`, `{"a":1}`, `{"a":["b"]}`, `{"a":["b","b"]}`, `[]`, `[{}]`, `[1]`, `["a"]`,
		`["a","a"]`,
		`["string"]`, `["string","string"]`, `"string"`, `"a"`, `1`, `-1`, `0`, `1.5`, `1.0`, `1e2`, `true`, `null`,
		`[true]`}

	for _, keyword := range keywords {
		for _, value := range of {
			schema := `{"` + keyword + `":` + value + `}`

			parsed, err := oracle.UnmarshalJSON(strings.NewReader(schema))
			if err != nil {
				t.Fatal(err)
			}

			_, got := compile([]byte(schema))
			if outside := (*remoteError)(nil); errors.As(got, &outside) {
				continue // the metaschema doesn't judge where a reference leads
			}

			if want := meta.Validate(parsed); (want == nil) != (got == nil) {
				t.Errorf("%s: %v, but the metaschema says: %v", schema, got, want)
			}
		}
	}
}

func oracleOf(schema string) (*oracle.Schema, error) {
	parsed, err := oracle.UnmarshalJSON(bytes.NewReader([]byte(schema)))
	if err != nil {
		return nil, err
	}

	compiler := oracle.NewCompiler()
	if err := compiler.AddResource("urn:test", parsed); err != nil {
		return nil, err
	}

	return compiler.Compile("urn:test")
}

var (
	words   = rapid.SampledFrom([]string{`"a"`, `"b"`, `"ab"`, `"é"`, `"\u0061"`, `"c"`, `""`, `"a~/"`})
	numbers = rapid.SampledFrom([]string{"0", "1", "-1", "2", "1.0", "1.5", "1e1", "10", "9223372036854775808", "-0",
		"0.3", "1e-2"})
)

func values(depth int) *rapid.Generator[string] {
	leaf := rapid.OneOf(words, numbers, rapid.SampledFrom([]string{"null", "true", "false", "{}", "[]", " 1 "}))
	if depth == 0 {
		return leaf
	}

	within := rapid.Deferred(func() *rapid.Generator[string] { return values(depth - 1) })

	return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(within, 0, 4).Draw(t, "items"), ",") + "]"
	}), rapid.Custom(func(t *rapid.T) string {
		var members []string
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			members = append(members, words.Draw(t, "name")+":"+within.Draw(t, "value"))
		}

		return "{" + strings.Join(members, ", ") + "}"
	}))
}

func schemas(depth int) *rapid.Generator[string] {
	pick := func(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "of") }

	return rapid.Custom(func(t *rapid.T) string {
		sub := func() string {
			if depth == 0 {
				return pick(t, "true", "false", "{}", `{"type":"string"}`, `{"const":1}`)
			}

			return schemas(depth-1).Draw(t, "sub")
		}
		keywords := []func() string{
			func() string {
				return `"type":` + pick(t, `"object"`, `"array"`, `"string"`, `"number"`, `"integer"`,
					`["integer","null"]`, `["boolean","object"]`)
			},
			func() string { return `"properties":{"a":` + sub() + `,"b":` + sub() + `}` },
			func() string { return `"patternProperties":{"^a":` + sub() + `}` },
			func() string { return `"additionalProperties":` + sub() },
			func() string {
				return `"propertyNames":` + pick(t, `{"maxLength":1}`, `{"pattern":"a"}`, `{"enum":["a","b"]}`)
			},
			func() string { return `"unevaluatedProperties":` + sub() },
			func() string { return `"required":` + pick(t, `["a"]`, `["a","b"]`, `["c"]`, `[]`) },
			func() string { return `"dependentRequired":{"a":["b"]}` },
			func() string { return `"dependentSchemas":{"a":` + sub() + `}` },
			func() string { return `"minProperties":` + pick(t, "1", "2") + `,"maxProperties":3` },
			func() string { return `"prefixItems":[` + sub() + `,` + sub() + `]` },
			func() string { return `"items":` + sub() },
			func() string {
				return `"contains":` + sub() + pick(t, ``, `,"minContains":0`, `,"maxContains":1`, `,"minContains":2`)
			},
			func() string { return `"unevaluatedItems":` + sub() },
			func() string { return `"minItems":` + pick(t, "1", "2") + `,"maxItems":3` },
			func() string { return `"uniqueItems":true` },
			func() string { return `"minLength":1,"maxLength":` + pick(t, "1", "2") },
			func() string { return `"pattern":` + pick(t, `"b"`, `"^a$"`) },
			func() string { return `"minimum":` + pick(t, "0", "1", "0.5", "1.5") },
			func() string { return `"exclusiveMaximum":` + pick(t, "1", "2", "1e1") },
			func() string { return `"multipleOf":` + pick(t, "1", "2", "0.5", "0.1") },
			func() string { return `"enum":` + pick(t, `["a","ab"]`, `["a",1]`, `[{"a":1.0},[1]]`, `[null,{}]`) },
			func() string { return `"const":` + pick(t, `1`, `"a"`, `{"a":1}`, `[1,2]`) },
			func() string { return `"allOf":[` + sub() + `,` + sub() + `]` },
			func() string { return `"anyOf":[` + sub() + `,` + sub() + `]` },
			func() string { return `"oneOf":[` + sub() + `,` + sub() + `]` },
			func() string { return `"not":` + sub() },
			func() string { return `"if":` + sub() + `,"then":` + sub() + `,"else":` + sub() },
			func() string { return `"$defs":{"d":` + sub() + `},"$ref":"#/$defs/d"` },
		}

		var all []string
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(keywords)-1), 0, 4, rapid.ID).
			Draw(t, "keywords") {
			all = append(all, keywords[i]())
		}

		return "{" + strings.Join(all, ",") + "}"
	})
}

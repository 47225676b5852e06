package schema

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// hostile are schemas and values that cost as much as a stranger can make them
// cost. Each ends within its budget.
var hostile = func() map[string][2]string {
	const size = 1 << 20

	doubling := `{"$defs":{"d0":{"type":"integer"}`
	for i := range 60 {
		doubling += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}

	alternatives := strings.Repeat(`{"type":"string","minLength":9},{"required":["a"],"properties":{"a":{"type":"null"}}},`, 40)
	objects := "[" + strings.Repeat(`{"a":1},`, size/8) + `{"a":1}]`
	zeros := "[" + strings.Repeat("0,", size/2) + "0]"
	members := new(strings.Builder)

	for i := range size / 10 {
		fmt.Fprintf(members, `,"%x":0`, i)
	}

	object := "{" + members.String()[1:] + "}"
	distinct := new(strings.Builder)

	for i := range size / 7 {
		fmt.Fprintf(distinct, `,%d`, i)
	}

	return map[string][2]string{
		"doubling":       {doubling + `},"$ref":"#/$defs/d60"}`, "1"},
		"anyOf":          {`{"items":{"anyOf":[` + alternatives + `false]}}`, objects},
		"oneOf":          {`{"items":{"oneOf":[` + alternatives + `false]}}`, objects},
		"nested anyOf":   {`{"$defs":{"a":{"anyOf":[{"items":{"$ref":"#/$defs/a"},"type":"array"},{"items":{"$ref":"#/$defs/a"},"minItems":3}]}},"$ref":"#/$defs/a"}`, strings.Repeat("[", 60) + "0" + strings.Repeat("]", 60)},
		"uniqueItems":    {`{"uniqueItems":true}`, "[" + distinct.String()[1:] + "]"},
		"unique objects": {`{"uniqueItems":true}`, objects},
		"unevaluated":    {`{"items":{"allOf":[{"properties":{"a":true}},{"$ref":"#/$defs/b"}],"unevaluatedProperties":false},"$defs":{"b":{"properties":{"b":true}}}}`, objects},
		"unevaluated items": {`{"allOf":[{"contains":{"const":1}},{"contains":{"const":0}}],"unevaluatedItems":false}`,
			zeros},
		"unevaluated nest": {`{"allOf":[` + strings.Repeat(`{"anyOf":[{"unevaluatedProperties":true},{}]},`,
			200) + `{}]}`, object},
		"pattern":    {`{"pattern":"^(a?){60}$"}`, `"` + strings.Repeat("a", size) + `"`},
		"patterns":   {`{"patternProperties":{"(x+x+)+y":{"type":"null"}}}`, object},
		"names":      {`{"propertyNames":{"anyOf":[{"pattern":"^z"},{"enum":["q"]}]}}`, object},
		"enum":       {`{"items":{"enum":[` + strings.Repeat("[1],", 1000) + `0]}}`, zeros},
		"required":   {`{"items":{"required":["` + strings.Repeat(`","a`, 0) + `a","b","c","d"]}}`, objects},
		"multipleOf": {`{"items":{"multipleOf":1e-300}}`, "[" + strings.Repeat("1e300,", size/6) + "1]"},
		"digits": {`{"items":{"maximum":` + strings.Repeat("9", 400) + `}}`,
			"[" + strings.Repeat(strings.Repeat("8", 399)+",", size/400) + "1]"},
		"contains": {`{"contains":{"anyOf":[` + alternatives + `false]}}`, objects},
		"dynamic":  {`{"$dynamicAnchor":"x","anyOf":[{"items":{"$dynamicRef":"#x"}},{"prefixItems":[{"$dynamicRef":"#x"}]}],"not":{"type":"string"}}`, objects},
		"escapes":  {`{"items":{"minLength":2}}`, "[" + strings.Repeat(`"\u0041",`, size/9) + `"a"]`},
		"depth":    {`{"items":{"$ref":"#"}}`, strings.Repeat("[", 900) + strings.Repeat("]", 900)},
		"trivial":  {`{"type":"array"}`, zeros},
		"simple":   {`{"type":"array","items":{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}}}`, objects},
	}
}()

// A judgement takes at most its budget, whatever the schema: the value is judged, or
// refused with ErrBudget. It allocates a bounded amount. BenchmarkHostile has the times.
//
// Requirement: AI-008
func TestHostileSchemas(t *testing.T) {
	for name, of := range hostile {
		s, err := compile([]byte(of[0]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		var before, after runtime.MemStats

		runtime.ReadMemStats(&before)

		_, err = s.validate([]byte(of[1]), 1, NewBudget(MaxSteps))

		runtime.ReadMemStats(&after)

		if err != nil && !errors.Is(err, ErrBudget) {
			t.Errorf("%s: %v", name, err)
		}

		// All that was allocated, garbage included, is more than it ever held. The short set
		// runs under the race detector too, which empties the pools of package regexp.
		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 64 && !testing.Short() {
			t.Errorf("%s: %d MiB allocated, want at most 64", name, allocated)
		}
	}
}

// Judgements that share a budget end together: neither the steps of a schema nor those of
// reading a value are given anew to each. What takes long costs steps.
//
// Requirement: AI-008
func TestJudgementsShareABudget(t *testing.T) {
	var items, members strings.Builder
	for i := range 100 {
		fmt.Fprintf(&items, ",%d", i)
		fmt.Fprintf(&members, `,"%d":0`, i)
	}

	for name, of := range map[string]struct {
		schema, value string
		least         int // steps
	}{
		"steps of the schema": {`{"items":{"minimum":0}}`, "[1,2,3,4]", 8},
		"bytes of the value":  {`{}`, `"` + strings.Repeat("x", 100*readBytes) + `"`, 100},
		"exact division":      {`{"multipleOf":1e-300}`, "1e300", 600},
		"hashes of items":     {`{"uniqueItems":true}`, "[" + items.String()[1:] + "]", 200},
		"an index of names":   {`{"required":["1"]}`, "{" + members.String()[1:] + "}", 180},
	} {
		s, err := compile([]byte(of.schema))
		if err != nil {
			t.Fatal(err)
		}

		alone := NewBudget(LightSteps)
		if _, err := s.Validate([]byte(of.value), "", alone); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		const judgements = 10

		each := LightSteps - alone.steps
		if each < of.least {
			t.Errorf("%s: a judgement takes %d steps, want at least %d", name, each, of.least)
		}

		shared := NewBudget(judgements * each)

		judged := 0
		for ; err == nil && judged < 100; judged++ {
			_, err = s.Validate([]byte(of.value), "", shared)
		}

		if !errors.Is(err, ErrBudget) || judged != judgements+1 {
			t.Errorf("%s: %d judgements of %d steps by a budget of %d end in %v", name, judged, each,
				judgements*each, err)
		}
	}
}

// hostileSchemas cost as much to compile as a stranger can make them cost: a document of
// 64 KiB carries them.
var hostileSchemas = func() map[string]string {
	const size = maxSchemaBytes - 1<<10

	base := `"$id":"http://a/` + strings.Repeat("x/", size/4) + `"`

	var ids, patterns strings.Builder

	for i := range size / 64 {
		fmt.Fprintf(&ids, `,"i%d":{"$id":"i%d"}`, i, i)
	}

	for i := range size / 20 {
		fmt.Fprintf(&patterns, `"(?i)\\pL%d":{},`, i)
	}

	return map[string]string{
		"small parts":     `{"allOf":[` + strings.Repeat("{},", size/3) + `{}]}`,
		"classes":         `{"pattern":"` + strings.Repeat(`\\pL`, size/4) + `"}`,
		"folded classes":  `{"pattern":"(?i)` + strings.Repeat(`\\pL`, maxPatternBytes/4) + `"}`,
		"many patterns":   `{"patternProperties":{` + patterns.String() + `"z":{}}}`,
		"long URIs":       `{` + base + `,"$defs":{"x":{}` + ids.String() + `}}`,
		"values of enum":  `{"enum":[` + strings.Repeat("1,", size/2) + `1]}`,
		"large repeats":   `{"pattern":"` + strings.Repeat("[ab]{1000}", 8) + `"}`,
		"references back": `{"$defs":{"a":{}},"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/a"},`, size/21) + `{}]}`,
	}
}()

// Compiling takes a bounded amount of memory and time, whatever the schema.
//
// Requirement: SEC-005
func TestHostileSchemasCompile(t *testing.T) {
	for name, text := range hostileSchemas {
		var before, after runtime.MemStats

		runtime.ReadMemStats(&before)

		_, err := compile([]byte(text))

		runtime.ReadMemStats(&after)

		t.Logf("%s: %d KiB allocated, %.100v", name, (after.TotalAlloc-before.TotalAlloc)>>10, err)

		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 24 && !testing.Short() {
			t.Errorf("%s: %d MiB allocated, want at most 24", name, allocated)
		}
	}

	if _, err := compile([]byte(`{"allOf":[` + strings.Repeat("{},", maxSchemaBytes) + `{}]}`)); err == nil {
		t.Error("a schema larger than any document is compiled")
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, of := range hostile {
		s, err := compile([]byte(of[0]))
		if err != nil {
			b.Fatal(err)
		}

		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()

			for b.Loop() {
				_, _ = s.validate([]byte(of[1]), 1, NewBudget(MaxSteps))
			}
		})
	}
}

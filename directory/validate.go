package directory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// A Schema judges JSON values (JSON Schema, 2020-12 where it names no dialect).
type Schema struct{ compiled *jsonschema.Schema }

// compiled keeps the schemas that were used of late; when there are as many as
// may be, all are forgotten.
var compiled = struct {
	sync.Mutex
	schemas map[string]*Schema
}{schemas: map[string]*Schema{}}

// closed loads nothing: no reference out of a registrant's schema is followed.
type closed struct{}

func (closed) Load(url string) (any, error) {
	return nil, fmt.Errorf("%q is outside of the schema", url)
}

// CompileSchema makes a Schema of its JSON. One that refers to others, or to
// itself without end, is an error.
func CompileSchema(raw []byte) (*Schema, error) {
	compiled.Lock()
	s, ok := compiled.schemas[string(raw)]
	compiled.Unlock()
	if ok {
		return s, nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	const here = "urn:roster:schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	if err := c.AddResource(here, v); err != nil {
		return nil, err
	}
	made, err := c.Compile(here)
	if err != nil {
		return nil, err
	}
	s = &Schema{made}
	if len(raw) <= maxKeptSchema {
		compiled.Lock()
		defer compiled.Unlock()
		if len(compiled.schemas) >= maxKeptSchemas {
			clear(compiled.schemas)
		}
		compiled.schemas[string(raw)] = s
	}
	return s, nil
}

// maxJudgements bounds what one value costs: how often a schema may be applied,
// at worst, to some part of it. Schemas can be written whose cost is exponential
// in their length, and both they and the values come from strangers.
const maxJudgements = 1 << 23

// Validate returns what is wrong with a JSON value, at most MaxViolations; at is
// put before the pointers. Its error says that it can't be found out.
func (s *Schema) Validate(value []byte, at string) ([]Violation, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return nil, err
	}
	deep, nodes := measure(v)
	if cost(s.compiled, deep, map[visit]float64{})*float64(nodes) > maxJudgements {
		return nil, errors.New("the schema takes too long to be applied")
	}
	err = s.compiled.Validate(v)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &invalid):
		return nil, err
	}
	return violations(nil, invalid, at), nil
}

// violations appends the innermost faults of e.
func violations(vs []Violation, e *jsonschema.ValidationError, at string) []Violation {
	if len(vs) == MaxViolations {
		return vs
	}
	if len(e.Causes) == 0 {
		where := at
		for _, name := range e.InstanceLocation {
			where = pointer(where, name)
		}
		return append(vs, Violation{where, e.ErrorKind.LocalizedString(message.NewPrinter(language.English))})
	}
	for _, c := range e.Causes {
		vs = violations(vs, c, at)
	}
	return vs
}

// measure returns how deep a value is, and how many values it is.
func measure(v any) (deep, nodes int) {
	each := func(part any) {
		d, n := measure(part)
		deep, nodes = max(deep, d+1), nodes+n
	}
	switch v := v.(type) {
	case map[string]any:
		for _, part := range v {
			each(part)
		}
	case []any:
		for _, part := range v {
			each(part)
		}
	}
	return deep, nodes + 1
}

// A visit is a schema applied to a value that is so deep.
type visit struct {
	s    *jsonschema.Schema
	deep int
}

// cost is how often schemas are applied along one path of a value, at worst,
// where s is applied to its root.
func cost(s *jsonschema.Schema, deep int, known map[visit]float64) float64 {
	if s == nil {
		return 0
	}
	at := visit{s, deep}
	if c, ok := known[at]; ok {
		return c
	}
	known[at] = math.Inf(1) // of a schema that is applied within itself to the same value
	c := 1.0
	for _, sub := range inPlace(s) {
		c += cost(sub, deep, known)
	}
	if deep > 0 {
		for _, sub := range below(s) {
			c += cost(sub, deep-1, known)
		}
		var dearest float64 // a part has one name, or one place: one of these is its schema
		for _, sub := range s.Properties {
			dearest = max(dearest, cost(sub, deep-1, known))
		}
		for _, sub := range s.PrefixItems {
			dearest = max(dearest, cost(sub, deep-1, known))
		}
		c += dearest
	}
	known[at] = c
	return c
}

// inPlace returns the subschemas that s applies to the value itself.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		all = append(all, list...)
	}
	for _, sub := range s.DependentSchemas {
		all = append(all, sub)
	}
	for _, sub := range s.Dependencies {
		all = appendSchemas(all, sub)
	}
	return all
}

// below returns those that it applies to values within the value, of which
// several may apply to the same one.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems}
	for _, sub := range s.PatternProperties {
		all = append(all, sub)
	}
	for _, sub := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		all = appendSchemas(all, sub)
	}
	return all
}

func appendSchemas(all []*jsonschema.Schema, v any) []*jsonschema.Schema {
	switch v := v.(type) {
	case *jsonschema.Schema:
		return append(all, v)
	case []*jsonschema.Schema:
		return append(all, v...)
	}
	return all
}

// Declares reports whether s says something of a member of that name.
func (s *Schema) Declares(name string) bool { _, ok := s.compiled.Properties[name]; return ok }

// TakesArrays reports whether s asks for an array.
func (s *Schema) TakesArrays() bool {
	if s.compiled.Types == nil {
		return false
	}
	for _, t := range s.compiled.Types.ToStrings() {
		if t == "array" {
			return true
		}
	}
	return false
}

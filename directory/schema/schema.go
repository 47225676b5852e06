package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Schema judges JSON values (JSON Schema, 2020-12 where it names no dialect).
type Schema struct {
	compiled *jsonschema.Schema
	simple   *simple // nil where it says more than that
	// costs are what it costs at worst to apply it to a value so deep, for those that
	// are at most MaxDepth, once that has been asked for.
	costs [strictjson.MaxDepth + 1]atomic.Pointer[costs]
}

// costs are of a part of a value, and of a byte of its texts.
type costs struct{ part, text float64 }

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

// Compile makes a Schema of its JSON. One that refers to others, or to
// itself without end, is an error.
func Compile(raw []byte) (*Schema, error) {
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
	if err := wieldy(v); err != nil {
		return nil, err
	}
	const here = "urn:roster:schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	patterns := patterns{known: map[string]pattern{}}
	c.UseRegexpEngine(patterns.compile)
	if err := c.AddResource(here, v); err != nil {
		return nil, err
	}
	made, err := c.Compile(here)
	if err != nil {
		return nil, err
	}
	s = &Schema{compiled: made, simple: simpleOf(made)}
	if len(raw) <= maxKeptSchema && patterns.size <= maxKeptPatterns {
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
func (s *Schema) Validate(value []byte, at string) ([]directory.Violation, error) {
	if s.simple.takes(value) {
		return nil, nil
	}
	return s.judge(value, at)
}

// judge is Validate by package jsonschema.
func (s *Schema) judge(value []byte, at string) ([]directory.Violation, error) {
	d := strictjson.Decoder(value)
	defer strictjson.Release(d)
	v, err := decodeAny(d)
	if err != nil {
		return nil, fmt.Errorf("it is not one JSON value: %w", err)
	}
	if _, err = d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON value")
	}
	var long *unwieldyError
	if errors.As(wieldy(v), &long) {
		return []directory.Violation{{Pointer: at + long.at, Detail: long.Error()}}, nil
	}
	m := measure(v)
	if c := s.costsAt(m.deep); c.part*float64(m.nodes) > maxJudgements || c.text*float64(m.text) > maxMatching {
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

// decodeAny reads a value as package jsonschema takes it: numbers as they are written.
func decodeAny(d *jsontext.Decoder) (any, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		members := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			text := name.String()
			if members[text], err = decodeAny(d); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return members, err
	case '[':
		items := []any{}
		for d.PeekKind() != ']' {
			item, err := decodeAny(d)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err = d.ReadToken()
		return items, err
	case '"':
		return token.String(), nil
	case '0':
		return json.Number(token.String()), nil
	case 'n':
		return nil, nil
	}
	return token.Bool(), nil
}

// costsAt returns what s costs for a value so deep.
func (s *Schema) costsAt(deep int) costs {
	if deep <= strictjson.MaxDepth {
		if c := s.costs[deep].Load(); c != nil {
			return *c
		}
	}
	c := costs{cost(s.compiled, deep, comparisons, map[visit]float64{}), cost(s.compiled, deep, patternsOf, map[visit]float64{})}
	if deep <= strictjson.MaxDepth {
		s.costs[deep].Store(&c)
	}
	return c
}

// violations appends the innermost faults of e.
func violations(vs []directory.Violation, e *jsonschema.ValidationError, at string) []directory.Violation {
	if len(vs) == directory.MaxViolations {
		return vs
	}
	if len(e.Causes) == 0 {
		within := ""
		for _, name := range e.InstanceLocation {
			within = strictjson.Pointer(within, name)
		}
		if r, ok := e.ErrorKind.(*kind.Required); ok {
			return appendMissing(vs, at, within, r.Missing)
		}
		return append(vs, directory.Violation{Pointer: at + within, Detail: e.ErrorKind.LocalizedString(message.NewPrinter(language.English))})
	}
	for _, c := range e.Causes {
		vs = violations(vs, c, at)
	}
	return vs
}

// appendMissing appends a fault for each member that is missing, at its own place and
// in draft-cui's words (cui 5).
func appendMissing(vs []directory.Violation, at, within string, names []string) []directory.Violation {
	for _, name := range names[:min(len(names), directory.MaxViolations-len(vs))] {
		where := strictjson.Pointer(within, name)
		vs = append(vs, directory.Violation{Pointer: at + where, Detail: fmt.Sprintf("Required field '%.200s' is missing.", where[1:]), Missing: true})
	}
	return vs
}

// A measured is how deep a value is, how many values it is, and how many bytes its
// texts have.
type measured struct{ deep, nodes, text int }

func measure(v any) measured {
	m := measured{nodes: 1}
	each := func(part any) {
		of := measure(part)
		m = measured{max(m.deep, of.deep+1), m.nodes + of.nodes, m.text + of.text}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			m.text += len(name)
			each(part)
		}
	case []any:
		for _, part := range v {
			each(part)
		}
	case string:
		m.text = len(v)
	}
	return m
}

// A visit is a schema applied to a value that is so deep.
type visit struct {
	s    *jsonschema.Schema
	deep int
}

// comparisons is what applying s itself costs: what it names is compared with the
// value, which is quicker than to apply another schema.
func comparisons(s *jsonschema.Schema) float64 {
	named := len(s.Required) + len(s.PatternProperties)
	if s.Enum != nil {
		named += len(s.Enum.Values)
	}
	for _, of := range s.DependentRequired {
		named += len(of)
	}
	return 1 + float64(named)/16
}

// cost is what schemas cost along one path of a value, at worst, where s is applied
// to its root; weigh says what each costs by itself.
func cost(s *jsonschema.Schema, deep int, weigh func(*jsonschema.Schema) float64, known map[visit]float64) float64 {
	if s == nil {
		return 0
	}
	at := visit{s, deep}
	if c, ok := known[at]; ok {
		return c
	}
	known[at] = math.Inf(1) // of a schema that is applied within itself to the same value
	c := weigh(s)
	for _, sub := range inPlace(s) {
		c += cost(sub, deep, weigh, known)
	}
	if deep > 0 {
		for _, sub := range below(s) {
			c += cost(sub, deep-1, weigh, known)
		}
		var dearest float64 // a part has one name, or one place: one of these is its schema
		for _, sub := range s.Properties {
			dearest = max(dearest, cost(sub, deep-1, weigh, known))
		}
		for _, sub := range s.PrefixItems {
			dearest = max(dearest, cost(sub, deep-1, weigh, known))
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

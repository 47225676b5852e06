package schema

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// maxSimple is how many bytes a value has, at most, that is judged by a simple schema:
// what such a one costs for it is far from maxJudgements.
const maxSimple = 16 << 10

// A simple is a schema of the keywords that most operations have, read once, so that a
// value that is good can be told so as it is read: an invocation is judged twice, and
// package jsonschema takes longer for that than the rest of the gateway's own work. It
// never finds anything wrong. What it doesn't take is for package jsonschema to judge,
// which has the words for it.
type simple struct {
	types      []byte // jsontext kinds; nil for any
	integer    bool   // of numbers, those that are integers
	members    map[string]member
	required   int
	additional *simple // nil where there may be none
	items      *simple
	enum       []string // nil for any
	// length is of strings, items of arrays, and value of numbers: each from the first to
	// the second.
	length, count, value span
}

type member struct {
	of       *simple
	required bool
}

type span struct {
	from, to int64
	bounded  bool
}

func (s span) has(n int64) bool { return !s.bounded || s.from <= n && n <= s.to }

// anything is a simple that takes any value.
var anything = func() *simple {
	p := &simple{}
	p.additional, p.items = p, p
	return p
}()

// simpleKeywords are the fields of a jsonschema.Schema that simpleOf understands, or that
// say nothing of what is valid.
var simpleKeywords = []string{"DraftVersion", "Location", "Types", "Enum", "Required", "Properties", "AdditionalProperties", "Items2020", "MinItems", "MaxItems",
	"MinLength", "MaxLength", "Minimum", "Maximum", "Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly", "Examples", "Deprecated"}

// simpleOf returns nil where s says more than a simple can.
func simpleOf(s *jsonschema.Schema) *simple {
	if s == nil || s.Bool != nil && *s.Bool {
		return anything
	}
	fields := reflect.ValueOf(s).Elem()
	for i := range fields.NumField() {
		if f := fields.Type().Field(i); f.IsExported() && !fields.Field(i).IsZero() && !slices.Contains(simpleKeywords, f.Name) {
			return nil
		}
	}
	p := &simple{length: spanOf(s.MinLength, s.MaxLength), count: spanOf(s.MinItems, s.MaxItems), members: map[string]member{}, required: len(s.Required)}
	if p.items = simpleOf(s.Items2020); p.items == nil || !p.readTypes(s.Types) || !p.readEnum(s.Enum) || !p.readBounds(s.Minimum, s.Maximum) {
		return nil
	}
	switch a := s.AdditionalProperties.(type) {
	case nil:
		p.additional = anything
	case bool:
		if a {
			p.additional = anything
		}
	case *jsonschema.Schema:
		if a.Bool == nil || *a.Bool {
			if p.additional = simpleOf(a); p.additional == nil {
				return nil
			}
		}
	default:
		return nil
	}
	for name, sub := range s.Properties {
		of := simpleOf(sub)
		if of == nil {
			return nil
		}
		p.members[name] = member{of: of}
	}
	for _, name := range s.Required {
		m, ok := p.members[name]
		if m.required {
			return nil // named twice
		}
		if !ok {
			m.of = p.additional
		}
		p.members[name] = member{m.of, true}
	}
	return p
}

func spanOf(from, to *int) span {
	s := span{to: 1 << 62, bounded: from != nil || to != nil}
	if from != nil {
		s.from = int64(*from)
	}
	if to != nil {
		s.to = int64(*to)
	}
	return s
}

func (p *simple) readTypes(types *jsonschema.Types) bool {
	if types == nil {
		return true
	}
	names := types.ToStrings()
	for _, name := range names {
		switch name {
		case "object":
			p.types = append(p.types, '{')
		case "array":
			p.types = append(p.types, '[')
		case "string":
			p.types = append(p.types, '"')
		case "boolean":
			p.types = append(p.types, 't', 'f')
		case "null":
			p.types = append(p.types, 'n')
		case "number", "integer":
			p.types = append(p.types, '0')
			p.integer = name == "integer" && !slices.Contains(names, "number")
		}
	}
	return p.types != nil
}

func (p *simple) readEnum(e *jsonschema.Enum) bool {
	if e == nil {
		return true
	}
	for _, v := range e.Values {
		text, ok := v.(string)
		if !ok {
			return false
		}
		p.enum = append(p.enum, text)
	}
	return p.enum != nil
}

// readBounds reads those of numbers, which are integers themselves where it can.
func (p *simple) readBounds(from, to *big.Rat) bool {
	p.value = span{-1 << 62, 1 << 62, from != nil || to != nil}
	for _, b := range []struct {
		is   *big.Rat
		into *int64
	}{{from, &p.value.from}, {to, &p.value.to}} {
		if b.is == nil {
			continue
		}
		if !b.is.IsInt() || !b.is.Num().IsInt64() {
			return false
		}
		*b.into = b.is.Num().Int64()
	}
	return true
}

// takes reports whether a value is good for sure.
func (p *simple) takes(value []byte) bool {
	if p == nil || len(value) > maxSimple {
		return false
	}
	d := strictjson.Decoder(value)
	defer strictjson.Release(d)
	if !p.read(d) {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

func (p *simple) read(d *jsontext.Decoder) bool {
	kind := byte(d.PeekKind())
	if p.types != nil && !slices.Contains(p.types, kind) || p.enum != nil && kind != '"' {
		return false
	}
	switch kind {
	case '{':
		return p.readObject(d)
	case '[':
		return p.readArray(d)
	}
	raw, err := d.ReadValue()
	switch {
	case err != nil:
		return false
	case kind == '"':
		return p.takesText(raw)
	case kind == '0':
		return p.takesNumber(raw)
	}
	return true
}

func (p *simple) readObject(d *jsontext.Decoder) bool {
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	required := 0
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil || bytes.IndexByte(name, '\\') >= 0 {
			return false
		}
		m, known := p.members[string(name[1:len(name)-1])]
		if !known {
			m.of = p.additional
		}
		if m.of == nil || !m.of.read(d) {
			return false
		}
		if m.required { // a name that comes twice is the decoder's error
			required++
		}
	}
	_, err := d.ReadToken()
	return err == nil && required == p.required
}

func (p *simple) readArray(d *jsontext.Decoder) bool {
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	n := int64(0)
	for ; d.PeekKind() > 0 && d.PeekKind() != ']'; n++ {
		if !p.items.read(d) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil && p.count.has(n)
}

func (p *simple) takesText(raw []byte) bool {
	if p.enum == nil && !p.length.bounded {
		return true
	}
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 || !p.length.has(int64(utf8.RuneCount(text))) {
		return false
	}
	return p.enum == nil || slices.Contains(p.enum, string(text))
}

// takesNumber takes integers that are written as such, and where any number will do,
// those that are written shortly.
func (p *simple) takesNumber(raw []byte) bool {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return p.value.has(n)
	}
	return !p.integer && !p.value.bounded && !tooManyDigits(string(raw))
}

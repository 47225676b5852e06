package schema

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of patterns. A pattern of ten bytes may be as large as one of a thousand, and
// three bytes name a class of a thousand runes, which takes memory as soon as it is parsed.
const (
	maxPatterns     = 1 << 13 // instructions of all patterns of a schema
	maxPatternBytes = 2 << 10 // of one pattern's text
)

// maxSchemaBytes bounds a schema's text to the size of a document (AD-042). Compiled, a
// schema takes up to two hundred times as much.
const maxSchemaBytes = 64 << 10

// draft2020 names the dialect of a schema that names none.
const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// A draft is a version of JSON Schema, by its differences from 2020-12.
type draft struct {
	id             string // the keyword that identifies a resource
	arrayItems     bool   // items may be an array, and additionalItems is the rest
	dependencies   bool   // dependencies, beside dependentRequired and dependentSchemas
	refAlone       bool   // keywords beside $ref are ignored
	recursive      bool   // $recursiveRef and $recursiveAnchor
	exclusiveFlags bool   // exclusiveMinimum and exclusiveMaximum are booleans
}

var drafts = map[string]draft{
	"":        {id: "$id"},
	draft2020: {id: "$id"},
	"https://json-schema.org/draft/2019-09/schema": {id: "$id", arrayItems: true, dependencies: true, recursive: true},
	"http://json-schema.org/draft-07/schema":       {id: "$id", arrayItems: true, dependencies: true, refAlone: true},
	"http://json-schema.org/draft-06/schema":       {id: "$id", arrayItems: true, dependencies: true, refAlone: true},
	"http://json-schema.org/draft-04/schema": {id: "id", arrayItems: true, dependencies: true, refAlone: true,
		exclusiveFlags: true},
}

// compile reads a schema. Its error is a *schemaError, a *remoteError, or says why
// the text is not JSON.
func compile(raw []byte) (*Schema, error) {
	if len(raw) > maxSchemaBytes {
		return nil, &schemaError{"", fmt.Sprintf("has %d bytes; at most %d are used", len(raw), maxSchemaBytes)}
	}

	doc, err := parse(raw)

	if long, ok := errors.AsType[*numberError](err); ok {
		return nil, &schemaError{long.at, long.Error()}
	}

	if err != nil {
		return nil, err
	}

	c := &compiler{out: &Schema{}, known: map[place]*subschema{}, resources: map[string]scope{},
		scopes: map[*resource]scope{}, anchors: map[string]place{}}

	c.out.root, err = c.document(doc, wholeSchema)
	if err != nil {
		return nil, err
	}

	if err := c.resolve(); err != nil {
		return nil, err
	}

	c.out.bytes = len(raw) + len(c.known)*subschemaBytes + c.out.patternSize*instructionBytes

	return c.out, nil
}

// A compiler makes one Schema.
type compiler struct {
	out       *Schema
	known     map[place]*subschema
	resources map[string]scope // by URI without fragment
	scopes    map[*resource]scope
	anchors   map[string]place // by URI with fragment
	pending   []reference
	patterns  map[string]*pattern
}

// A place is a node of a document: the schema's own or a metaschema.
type place struct {
	doc *document
	at  uint32
}

// A scope is the base of the identifiers and references at a place.
type scope struct {
	place    // of the resource's root
	uri      string
	resource *resource
	draft    draft
}

// document compiles a whole document.
func (c *compiler) document(doc *document, uri string) (*subschema, error) {
	dialect := ""

	if doc.kind(0) == '{' {
		if at, ok, _ := doc.member(0, "$schema"); ok {
			if doc.kind(at) != '"' {
				return nil, &schemaError{"/$schema", "must be a string"}
			}

			dialect = strings.TrimSuffix(string(doc.text(at)), "#")
		}
	}

	draft, ok := drafts[dialect]
	if !ok {
		return nil, &schemaError{"/$schema", fmt.Sprintf("the dialect %.200q is not supported; use %s", dialect,
			draft2020)}
	}

	within := scope{place: place{doc, 0}, uri: uri, resource: &resource{}, draft: draft}
	c.resources[uri], c.scopes[within.resource] = within, within

	return c.subschema(within.place, within, "")
}

// subschema compiles the schema at a place, once.
func (c *compiler) subschema(p place, within scope, at string) (*subschema, error) {
	if s, ok := c.known[p]; ok {
		return s, nil
	}

	s := &subschema{pointer: at, items: span{0, unbounded}, properties: span{0, unbounded},
		length: span{0, unbounded}, containsCount: span{1, unbounded}}
	c.known[p] = s

	switch p.doc.kind(p.at) {
	case 't':
		s.resource = within.resource
		return s, nil
	case 'f':
		s.never, s.resource = true, within.resource
		return s, nil
	case '{':
	default:
		return nil, &schemaError{at, "must be an object or a boolean, got " + nameOf(p.doc.kind(p.at))}
	}

	r := reader{c: c, s: s, place: p, at: at}

	var err error
	if r.scope, err = c.identify(p, within, s, at); err != nil {
		return nil, err
	}

	s.resource = r.scope.resource

	// Parents are read before their parts, so the first schema of a resource is its root.
	s.resource.root = cmp.Or(s.resource.root, s)

	return s, r.read()
}

// A reader reads the keywords of one schema object.
type reader struct {
	c     *compiler
	s     *subschema
	scope scope
	place
	at string // the schema's pointer
}

func (r *reader) read() error {
	if r.scope.draft.refAlone {
		if value, ok, _ := r.doc.member(r.place.at, "$ref"); ok {
			return r.keyword("$ref", value)
		}
	}

	for _, name := range r.doc.children(r.place.at) {
		if err := r.keyword(string(r.doc.text(name)), name+1); err != nil {
			return err
		}
	}

	return nil
}

// keyword reads one keyword of the core, applicator, unevaluated or validation
// vocabulary. Unknown keywords are annotations.
func (r *reader) keyword(name string, value uint32) (err error) {
	s := r.s

	switch name {
	case "$ref":
		return r.reference(name, value)
	case "$dynamicRef":
		return r.reference(name, value)
	case "$recursiveRef":
		if r.scope.draft.recursive {
			return r.reference(name, value)
		}
	case "$defs", "definitions":
		// Definitions assert nothing; they are compiled because references lead to them.
		_, err = r.schemas(name, value)
	case "allOf":
		s.allOf, err = r.list(name, value)
	case "anyOf":
		s.anyOf, err = r.list(name, value)
	case "oneOf":
		s.oneOf, err = r.list(name, value)
	case "not":
		s.not, err = r.sub(name, value)
	case "if":
		s.test, err = r.sub(name, value)
	case "then":
		s.then, err = r.sub(name, value)
	case "else":
		s.otherwise, err = r.sub(name, value)
	case "dependentSchemas":
		err = r.dependentSchemas(name, value)
	case "dependentRequired":
		err = r.dependentRequired(name, value)
	case "dependencies":
		if r.scope.draft.dependencies {
			err = r.dependencies(name, value)
		}
	case "properties":
		s.members, err = r.schemas(name, value)
	case "patternProperties":
		err = r.patternMembers(name, value)
	case "additionalProperties":
		s.additionalMembers, err = r.sub(name, value)
	case "propertyNames":
		s.memberNames, err = r.sub(name, value)
	case "prefixItems":
		if !r.scope.draft.arrayItems {
			s.prefixItems, err = r.list(name, value)
		}
	case "items":
		err = r.itemSchemas(name, value)
	case "additionalItems":
		err = r.additionalItems(name, value)
	case "contains":
		s.contains, err = r.sub(name, value)
	case "unevaluatedProperties":
		r.c.out.unevaluated = true
		s.unevaluatedMembers, err = r.sub(name, value)
	case "unevaluatedItems":
		r.c.out.unevaluated = true
		s.unevaluatedItems, err = r.sub(name, value)
	default:
		err = r.assertion(name, value)
	}

	return err
}

// assertion reads a keyword of the validation vocabulary.
func (r *reader) assertion(name string, value uint32) (err error) {
	s := r.s

	switch name {
	case "type":
		err = r.types(name, value)
	case "const":
		s.constant, err = r.value(value)
	case "enum":
		err = r.enum(name, value)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		err = r.bound(name, value)
	case "multipleOf":
		err = r.multipleOf(name, value)
	case "minLength":
		s.length.from, err = r.count(name, value)
	case "maxLength":
		s.length.to, err = r.count(name, value)
	case "minItems":
		s.items.from, err = r.count(name, value)
	case "maxItems":
		s.items.to, err = r.count(name, value)
	case "minProperties":
		s.properties.from, err = r.count(name, value)
	case "maxProperties":
		s.properties.to, err = r.count(name, value)
	case "minContains":
		s.containsCount.from, err = r.count(name, value)
	case "maxContains":
		s.containsCount.to, err = r.count(name, value)
	case "uniqueItems":
		if err = r.is(name, value, "a boolean", 't', 'f'); err == nil {
			s.uniqueItems = r.doc.kind(value) == 't'
		}
	case "required":
		s.required, err = r.names(r.at+"/required", value)
	case "pattern":
		if err = r.is(name, value, "a string", '"'); err == nil {
			s.pattern = r.c.pattern(string(r.doc.text(value)))
		}
	case "title", "description", "$comment", "format", "contentEncoding", "contentMediaType":
		err = r.is(name, value, "a string", '"')
	case "deprecated", "readOnly", "writeOnly":
		err = r.is(name, value, "a boolean", 't', 'f')
	case "examples":
		err = r.is(name, value, "an array", '[')
	case "contentSchema":
		_, err = r.sub(name, value)
	}

	return err
}

func (r *reader) fail(pointer, format string, args ...any) error {
	return &schemaError{pointer, fmt.Sprintf(format, args...)}
}

// is refuses a keyword whose value has none of the kinds.
func (r *reader) is(name string, value uint32, want string, kinds ...jsontext.Kind) error {
	for _, kind := range kinds {
		if r.doc.kind(value) == kind {
			return nil
		}
	}

	return r.fail(pointer(r.at, name), "must be %s, got %s", want, nameOf(r.doc.kind(value)))
}

func (r *reader) sub(name string, value uint32) (*subschema, error) {
	return r.c.subschema(place{r.doc, value}, r.scope, pointer(r.at, name))
}

// list reads an array of at least one schema.
func (r *reader) list(name string, value uint32) (all []*subschema, err error) {
	if err := r.is(name, value, "an array of schemas", '['); err != nil {
		return nil, err
	}

	at := pointer(r.at, name)

	for i, item := range r.doc.children(value) {
		s, err := r.c.subschema(place{r.doc, item}, r.scope, pointer(at, strconv.Itoa(i)))
		if err != nil {
			return nil, err
		}

		all = append(all, s)
	}

	// Drafts before 2020-12 allow an empty array of items.
	if len(all) == 0 && !r.scope.draft.arrayItems {
		return nil, r.fail(at, "must have at least one schema")
	}

	return all, nil
}

// schemas reads an object whose members are schemas.
func (r *reader) schemas(name string, value uint32) (map[string]*subschema, error) {
	if err := r.is(name, value, "an object of schemas", '{'); err != nil {
		return nil, err
	}

	at := pointer(r.at, name)
	all := map[string]*subschema{}

	for _, member := range r.doc.children(value) {
		text := string(r.doc.text(member))

		s, err := r.c.subschema(place{r.doc, member + 1}, r.scope, pointer(at, text))
		if err != nil {
			return nil, err
		}

		all[text] = s
	}

	return all, nil
}

func (r *reader) patternMembers(name string, value uint32) error {
	if err := r.is(name, value, "an object of schemas", '{'); err != nil {
		return err
	}

	at := pointer(r.at, name)

	for _, member := range r.doc.children(value) {
		text := string(r.doc.text(member))

		s, err := r.c.subschema(place{r.doc, member + 1}, r.scope, pointer(at, text))
		if err != nil {
			return err
		}

		r.s.patternMembers = append(r.s.patternMembers, patternMember{r.c.pattern(text), s})
	}

	return nil
}

func (r *reader) dependentSchemas(name string, value uint32) error {
	if err := r.is(name, value, "an object of schemas", '{'); err != nil {
		return err
	}

	return r.dependencies(name, value)
}

func (r *reader) dependentRequired(name string, value uint32) error {
	if err := r.is(name, value, "an object of arrays", '{'); err != nil {
		return err
	}

	at := pointer(r.at, name)

	for _, member := range r.doc.children(value) {
		text := string(r.doc.text(member))

		names, err := r.names(pointer(at, text), member+1)
		if err != nil {
			return err
		}

		r.s.dependentRequired = append(r.s.dependentRequired, dependency[[]string]{text, names})
	}

	return nil
}

// dependencies reads an object whose members are schemas or, in earlier drafts,
// arrays of names.
func (r *reader) dependencies(name string, value uint32) error {
	if err := r.is(name, value, "an object", '{'); err != nil {
		return err
	}

	at := pointer(r.at, name)

	for _, member := range r.doc.children(value) {
		text := string(r.doc.text(member))

		if name == "dependencies" && r.doc.kind(member+1) == '[' {
			names, err := r.names(pointer(at, text), member+1)
			if err != nil {
				return err
			}

			r.s.dependentRequired = append(r.s.dependentRequired, dependency[[]string]{text, names})

			continue
		}

		s, err := r.c.subschema(place{r.doc, member + 1}, r.scope, pointer(at, text))
		if err != nil {
			return err
		}

		r.s.dependentSchemas = append(r.s.dependentSchemas, dependency[*subschema]{text, s})
	}

	return nil
}

func (r *reader) itemSchemas(name string, value uint32) (err error) {
	if r.scope.draft.arrayItems && r.doc.kind(value) == '[' {
		r.s.prefixItems, err = r.list(name, value)

		if rest, ok, _ := r.doc.member(r.place.at, "additionalItems"); ok && err == nil {
			r.s.restItems, err = r.sub("additionalItems", rest)
		}

		return err
	}

	r.s.restItems, err = r.sub(name, value)

	return err
}

// additionalItems is read with items; without an array there it asserts nothing.
func (r *reader) additionalItems(name string, value uint32) error {
	if !r.scope.draft.arrayItems {
		return nil
	}

	// It is compiled all the same, because a reference may lead into it.
	_, err := r.sub(name, value)

	return err
}

func (r *reader) names(at string, value uint32) (names []string, err error) {
	if r.doc.kind(value) != '[' {
		return nil, r.fail(at, "must be an array of strings, got %s", nameOf(r.doc.kind(value)))
	}

	seen := map[string]bool{}

	for i, item := range r.doc.children(value) {
		if r.doc.kind(item) != '"' {
			return nil, r.fail(pointer(at, strconv.Itoa(i)), "must be a string, got %s", nameOf(r.doc.kind(item)))
		}

		text := string(r.doc.text(item))
		if seen[text] {
			return nil, r.fail(at, "%.200q stands there twice", text)
		}

		seen[text] = true
		names = append(names, text)
	}

	return names, nil
}

func (r *reader) types(name string, value uint32) error {
	at := pointer(r.at, name)

	add := func(item uint32) error {
		is, ok := typeSet(0), false
		if r.doc.kind(item) == '"' {
			is, ok = typeOf(string(r.doc.text(item)))
		}

		if !ok {
			return r.fail(at, "must be one of %s, got %.200s", strings.Join(typeNames, ", "), r.doc.bytes(item))
		}

		if r.s.types&is != 0 {
			return r.fail(at, "%.200s stands there twice", r.doc.bytes(item))
		}

		r.s.types |= is

		return nil
	}

	if r.doc.kind(value) != '[' {
		return add(value)
	}

	if r.doc.nodes[value].count == 0 {
		return r.fail(at, "must have at least one type")
	}

	for _, item := range r.doc.children(value) {
		if err := add(item); err != nil {
			return err
		}
	}

	return nil
}

// value returns a part of the schema as a document of its own.
func (r *reader) value(value uint32) (*document, error) { return parse(r.doc.bytes(value)) }

func (r *reader) enum(name string, value uint32) error {
	if err := r.is(name, value, "an array", '['); err != nil {
		return err
	}

	all := &enumeration{texts: map[string]bool{}}

	for _, item := range r.doc.children(value) {
		if r.doc.kind(item) == '"' {
			all.texts[string(r.doc.text(item))] = true
			continue
		}

		constant, err := r.value(item)
		if err != nil {
			return err
		}

		all.rest = append(all.rest, constant)
	}

	r.s.enum = all

	return nil
}

// number reads a keyword whose value is a number.
func (r *reader) number(name string, value uint32) (decimal, string, error) {
	if err := r.is(name, value, "a number", '0'); err != nil {
		return decimal{}, "", err
	}

	text := string(r.doc.bytes(value))

	return decimalOf(text), text, nil
}

func (r *reader) bound(name string, value uint32) error {
	exclusive := strings.HasPrefix(name, "exclusive")
	end := &r.s.minimum

	if strings.HasSuffix(strings.ToLower(name), "maximum") {
		end = &r.s.maximum
	}

	if exclusive && r.scope.draft.exclusiveFlags {
		// In draft 4 the keyword is a flag of the bound beside it, and no bound itself.
		if err := r.is(name, value, "a boolean", 't', 'f'); err != nil {
			return err
		}

		beside := strings.ToLower(strings.TrimPrefix(name, "exclusive"))
		if number, ok, _ := r.doc.member(r.place.at, beside); ok && r.doc.kind(value) == 't' {
			limit, text, err := r.number(beside, number)
			*end = &bound{limit, text, true}

			return err
		}

		return nil
	}

	limit, text, err := r.number(name, value)
	if err != nil {
		return err
	}

	next := &bound{limit, text, exclusive}

	// Of minimum and exclusiveMinimum the one that leaves less holds.
	if *end != nil {
		order := limit.compare((*end).value)
		if end == &r.s.maximum {
			order = -order
		}

		if order < 0 || order == 0 && !exclusive {
			return nil
		}
	}

	*end = next

	return nil
}

func (r *reader) multipleOf(name string, value uint32) error {
	number, text, err := r.number(name, value)
	if err != nil {
		return err
	}

	if number.sign() <= 0 {
		return r.fail(pointer(r.at, name), "must be greater than 0, got %.200s", text)
	}

	r.s.multipleOf = &multiple{number, number.rational(), text}

	return nil
}

// count reads a keyword whose value is a non-negative integer. A value beyond int64 is
// equivalent to no limit.
func (r *reader) count(name string, value uint32) (int64, error) {
	number, text, err := r.number(name, value)
	if err != nil {
		return 0, err
	}

	if number.negative || !number.isInteger() {
		return 0, r.fail(pointer(r.at, name), "must be a non-negative integer, got %.200s", text)
	}

	if number.exponent > 18 {
		return unbounded, nil
	}

	return new(big.Int).Quo(number.rational().Num(), number.rational().Denom()).Int64(), nil
}

// pattern compiles a regular expression, once. It is measured before it takes the
// memory. One that can't be used makes the Schema unusable, and matches nothing.
func (c *compiler) pattern(text string) *pattern {
	if known, ok := c.patterns[text]; ok {
		return known
	}

	if c.patterns == nil {
		c.patterns = map[string]*pattern{}
	}

	compiled := &pattern{}
	c.patterns[text] = compiled

	if c.out.unusableErr != nil {
		return compiled // nothing is judged by this schema
	}

	if err := c.compilePattern(compiled, text); err != nil {
		c.out.unusable(fmt.Errorf("pattern %.200q: %w", text, err))
	}

	return compiled
}

func (c *compiler) compilePattern(compiled *pattern, text string) error {
	if len(text) > maxPatternBytes {
		return fmt.Errorf("it has %d bytes; at most %d are used", len(text), maxPatternBytes)
	}

	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return err
	}

	compiled.size = instructions(tree)
	if c.out.patternSize += compiled.size; c.out.patternSize > maxPatterns {
		return fmt.Errorf("the schema's patterns have over %d instructions", maxPatterns)
	}

	compiled.expression, err = regexp.Compile(text)

	return err
}

// instructions is how large a pattern is once its repetitions are written out.
func instructions(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size += instructions(sub)
	}

	if re.Op == syntax.OpRepeat {
		// Max is -1 for a repetition without end, which is a loop and not written out.
		size *= max(re.Min, re.Max, 1)
	}

	// Products of nested repetitions would overflow without the bound.
	return min(size, 1<<40)
}

func nameOf(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{':
		return "object"
	}

	return "array"
}

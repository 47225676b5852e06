package schema

import (
	"cmp"
	"fmt"
	"math/big"
	"regexp"
)

// A Schema is a compiled schema. It never changes: several goroutines may use it.
type Schema struct {
	root *subschema
	// unusableErr is why no value can be judged by the schema, although it is one: a
	// pattern that can't be compiled or a reference to a part that it lacks.
	unusableErr error
	// unevaluated says whether a schema asks which members and items others evaluated;
	// only then an evaluation keeps account of them.
	unevaluated bool
	patternSize int // instructions of all patterns
	bytes       int // of memory, estimated
}

// The memory of a compiled schema's parts, estimated, in bytes.
const (
	subschemaBytes   = 700
	instructionBytes = 100 // of a pattern
)

// A schemaError is a fault of a schema, and its place.
type schemaError struct {
	pointer string // a JSON pointer into the schema
	detail  string
}

func (e *schemaError) Error() string { return fmt.Sprintf("%s: %s", e.pointer, e.detail) }

// A remoteError is a reference that leads out of its schema.
type remoteError struct {
	pointer string // of the keyword, a JSON pointer into the schema
	ref     string // as it is written
}

func (e *remoteError) Error() string {
	return fmt.Sprintf("%s: %.200q refers to another document, and references are not fetched", e.pointer, e.ref)
}

// A subschema is one object or boolean of a Schema. Nil parts assert nothing.
type subschema struct {
	pointer  string // where it stands in its document
	resource *resource
	never    bool // the schema false

	// Core.
	ref           *subschema
	dynamicRef    *subschema // as $dynamicRef resolves without a dynamic scope
	dynamicAnchor string     // the name to look for in the dynamic scope
	dynamic       bool       // whether to look for it

	// Validation.
	types             typeSet
	constant          *document
	enum              *enumeration
	minimum, maximum  *bound
	multipleOf        *multiple
	length            span // of strings, in code points
	items             span // of arrays
	properties        span // of objects
	uniqueItems       bool
	required          []string
	dependentRequired []dependency[[]string]
	pattern           *pattern

	// Applicators to the same value.
	allOf, anyOf, oneOf        []*subschema
	not, test, then, otherwise *subschema
	dependentSchemas           []dependency[*subschema]

	// Applicators to parts of the value.
	members           map[string]*subschema
	patternMembers    []patternMember
	additionalMembers *subschema
	memberNames       *subschema
	prefixItems       []*subschema
	restItems         *subschema
	contains          *subschema
	containsCount     span

	unevaluatedMembers *subschema
	unevaluatedItems   *subschema
}

// A resource is a schema with an identifier of its own, the whole one included, in
// whose anchors a reference is looked up.
type resource struct {
	root    *subschema
	dynamic map[string]*subschema // by $dynamicAnchor
}

func (s *Schema) unusable(err error) {
	s.unusableErr = cmp.Or(s.unusableErr, err)
}

// A span is a range of counts, both ends included.
type span struct{ from, to int64 }

const unbounded = int64(1) << 62

func (s span) has(n int64) bool { return s.from <= n && n <= s.to }

// A bound is the end of a range of numbers.
type bound struct {
	value     decimal
	text      string
	exclusive bool
}

type multiple struct {
	value    decimal
	rational *big.Rat
	text     string
}

type dependency[T any] struct {
	on   string
	then T
}

type patternMember struct {
	pattern *pattern
	schema  *subschema
}

// A pattern is a regular expression, and its size in instructions.
type pattern struct {
	expression *regexp.Regexp
	size       int
}

// An enumeration is the values of enum: strings apart, since they are found by a
// lookup, and the rest, which is compared one by one.
type enumeration struct {
	texts map[string]bool
	rest  []*document
}

// A typeSet is a set of the seven types of JSON Schema; empty for no assertion.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeObject
	typeArray
	typeString
	typeNumber
	typeInteger
)

var typeNames = []string{"null", "boolean", "object", "array", "string", "number", "integer"}

func typeOf(name string) (typeSet, bool) {
	for i, known := range typeNames {
		if name == known {
			return 1 << i, true
		}
	}

	return 0, false
}

// String lists the types as a sentence does: "string or null".
func (t typeSet) String() string {
	list := ""

	for i, name := range typeNames {
		if t&(1<<i) == 0 {
			continue
		}

		if list != "" {
			list += " or "
		}

		list += name
	}

	return list
}

// Declares reports whether the schema's root describes a member of that name.
func (s *Schema) Declares(name string) bool {
	_, ok := s.root.members[name]
	return ok
}

// TakesArrays reports whether the schema's root names arrays among its types.
func (s *Schema) TakesArrays() bool { return s.root.types&typeArray != 0 }

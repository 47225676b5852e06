package schema

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// ErrBudget says that a judgement needs more steps than its budget has.
var ErrBudget = errors.New("the schema takes too long to apply to this value")

// Steps of a Budget. BenchmarkHostile has the times.
const (
	MaxSteps   = 3 << 20 // at most 250 ms of a processor
	LightSteps = 1 << 15 // at most 3 ms
)

// A Budget is the work that judgements may take together. It is used by one at a time.
type Budget struct{ steps int }

// NewBudget returns a budget of steps.
func NewBudget(steps int) *Budget { return &Budget{steps} }

// readBytes is how many bytes of a value are read in a step.
const readBytes = 8

const (
	// maxNesting bounds the schemas that are applied within each other.
	maxNesting = 5000
	// patternBytes is how many bytes a pattern of one instruction reads in a step.
	patternBytes = 4
	maxQuoted    = 64 // bytes of a name or value in a violation
)

// validate judges a value. It ends once so many violations are found.
func (s *Schema) validate(value []byte, violations int, budget *Budget) ([]directory.Violation, error) {
	if s.unusableErr != nil {
		return nil, s.unusableErr
	}

	// Reading is charged as well, because a large value costs time under any schema.
	if budget.steps -= len(value) / readBytes; budget.steps < 0 {
		return nil, ErrBudget
	}

	doc, err := parse(value)

	// A number of too many digits is a fault of the value and not of the schema.
	if long, ok := errors.AsType[*numberError](err); ok {
		return []directory.Violation{{Pointer: long.at, Detail: long.Error()}}, nil
	}

	if err != nil {
		return nil, err
	}

	e := &evaluation{doc: doc, tracks: s.unevaluated, steps: budget.steps}
	e.found.limit = max(violations, 1)
	e.apply(s.root, 0, nil)

	if budget.steps = e.steps; e.steps < 0 {
		return nil, ErrBudget
	}

	return e.found.all, nil
}

// An evaluation applies a schema to one value.
type evaluation struct {
	doc    *document
	tracks bool // keep account of evaluated members and items
	steps  int  // the remaining budget; below zero the evaluation ends
	path   []segment
	found  findings

	dynamic []*resource // the dynamic scope, outermost first
	nesting int
	seed    maphash.Seed
	seeded  bool
}

// findings are the violations of one application.
type findings struct {
	limit int
	all   []directory.Violation
	// An attempt keeps no violations: it ends at the first one, and depth says how deep
	// in the value that lies.
	attempt, failed bool
	depth           int
}

func (f *findings) full() bool { return f.failed || !f.attempt && len(f.all) >= f.limit }

// fail records a violation at the value that is judged. It returns false, as the
// result of the assertion that failed.
func (e *evaluation) fail(format string, args ...any) bool {
	switch {
	case e.found.full(): // the first ones count
	case e.found.attempt:
		e.found.failed, e.found.depth = true, len(e.path)
	default:
		e.found.all = append(e.found.all, directory.Violation{Pointer: e.pointer(0),
			Detail: fmt.Sprintf(format, args...)})
	}

	return false
}

// A segment is one step of the path to a value.
type segment struct {
	name []byte // of a member; nil for an item
	item int
}

// pointer returns where the value that is judged stands, as a JSON pointer, from a
// segment of the path on.
func (e *evaluation) pointer(from int) (to string) {
	for _, step := range e.path[from:] {
		if step.name != nil {
			to = pointer(to, string(step.name))
		} else {
			to = pointer(to, strconv.Itoa(step.item))
		}
	}

	return to
}

func (e *evaluation) enterMember(name []byte) { e.path = append(e.path, segment{name: name}) }

func (e *evaluation) enterItem(i int) { e.path = append(e.path, segment{item: i}) }

func (e *evaluation) leave() { e.path = e.path[:len(e.path)-1] }

// evaluated are the members or items of one value that a schema applied to, by
// their place in it.
type evaluated struct{ bits []uint64 }

// account returns an empty account of a value's parts.
func (e *evaluation) account(at uint32) *evaluated {
	words := int(e.doc.nodes[at].count+63) / 64
	e.spend(1 + words/4)

	return &evaluated{make([]uint64, words)}
}

func (s *evaluated) has(i int) bool { return s.bits[i/64]&(1<<(i%64)) != 0 }

func (s *evaluated) add(i int) { s.bits[i/64] |= 1 << (i % 64) }

func (s *evaluated) merge(other *evaluated) {
	for i, bits := range other.bits {
		s.bits[i] |= bits
	}
}

// spend takes steps from the budget. It reports whether enough were left.
func (e *evaluation) spend(steps int) bool {
	e.steps -= steps
	return e.steps >= 0
}

// apply applies a schema to a value. It reports whether the value is valid, and adds
// the evaluated parts to seen unless that is nil. It ends once enough is found.
func (e *evaluation) apply(s *subschema, at uint32, seen *evaluated) bool {
	// A schema may refer to itself without end, and the stack would be exhausted before the budget.
	if e.nesting++; e.nesting > maxNesting {
		e.steps = -1
	}

	defer func() { e.nesting-- }()

	if !e.spend(1) {
		return false
	}

	if s.never {
		return e.fail("is not allowed")
	}

	// The outermost resource decides, so one that follows itself needs no second entry.
	if s.resource != nil && (len(e.dynamic) == 0 || e.dynamic[len(e.dynamic)-1] != s.resource) {
		e.dynamic = append(e.dynamic, s.resource)
		defer func() { e.dynamic = e.dynamic[:len(e.dynamic)-1] }()
	}

	a := application{evaluation: e, s: s, at: at, seen: seen}

	// A schema that asks for unevaluated parts needs an account of its own: parts that
	// its caller's other schemas evaluated don't count.
	if e.tracks && (s.unevaluatedMembers != nil || s.unevaluatedItems != nil || seen == nil) {
		a.seen = e.account(at)
	}

	valid := a.run() && e.steps >= 0

	// What a schema that fails has evaluated counts nowhere, because its caller fails or leaves it out.
	if seen != nil && a.seen != seen {
		seen.merge(a.seen)
	}

	return valid
}

// failMissing records that a member of the value is missing, at its own place.
func (e *evaluation) failMissing(name, because string) {
	e.enterMember([]byte(name))
	defer e.leave()

	// Neither an attempt nor a full list keeps the words, so none are made.
	if e.found.attempt || e.found.full() {
		e.fail("")
		return
	}

	detail := fmt.Sprintf("Required field '%.200s' is missing.", e.pointer(0)[1:]) // draft-cui's words (cui 5)
	if because != "" {
		detail = fmt.Sprintf("Field '%.200s' is required because '%.200s' is there.", e.pointer(0)[1:], because)
	}

	e.fail("%s", detail)
	e.found.all[len(e.found.all)-1].Missing = true
}

// An application is one schema and one value.
type application struct {
	*evaluation

	s    *subschema
	at   uint32
	seen *evaluated // nil unless the evaluation tracks
}

// run applies the keywords, the cheap ones first. It stops once enough violations
// are found, since nothing then depends on the rest.
func (a *application) run() bool {
	valid := a.assertType()
	valid = a.assertValue() && valid

	if !a.ended(valid) {
		valid = a.assertByKind() && valid
	}

	if !a.ended(valid) {
		valid = a.applyReferences() && valid
	}

	if !a.ended(valid) {
		valid = a.applyLogic() && valid
	}

	if !a.ended(valid) {
		valid = a.applyConditions() && valid
	}

	if !a.ended(valid) {
		valid = a.applyParts() && valid
	}

	if !a.ended(valid) {
		valid = a.applyUnevaluated() && valid
	}

	return valid
}

// ended reports whether the rest of an application can't change its result.
func (a *application) ended(valid bool) bool { return a.steps < 0 || !valid && a.found.full() }

func (a *application) assertType() bool {
	if a.s.types == 0 {
		return true
	}

	is := typeSet(0)

	switch a.doc.kind(a.at) {
	case 'n':
		is = typeNull
	case 't', 'f':
		is = typeBoolean
	case '{':
		is = typeObject
	case '[':
		is = typeArray
	case '"':
		is = typeString
	case '0':
		is = typeNumber

		// A number counts as an integer only where other numbers are excluded, which saves a look at its digits.
		if a.s.types&typeInteger != 0 && a.s.types&typeNumber == 0 && isInteger(a.doc.bytes(a.at)) {
			is = typeInteger
		}
	}

	if a.s.types&is != 0 {
		return true
	}

	return a.fail("must be %s, got %s", a.s.types, nameOf(a.doc.kind(a.at)))
}

func isInteger(text []byte) bool {
	for _, c := range text {
		if c == '.' || c == 'e' || c == 'E' {
			return decimalOf(string(text)).isInteger()
		}
	}

	return true
}

func (a *application) assertValue() bool {
	if a.s.constant != nil && !a.equal(a.doc, a.at, a.s.constant, 0) {
		return a.fail("must be %s", quoted(a.s.constant.raw))
	}

	if a.s.enum == nil {
		return true
	}

	if a.doc.kind(a.at) == '"' {
		if a.s.enum.texts[string(a.doc.text(a.at))] {
			return true
		}
	}

	for _, constant := range a.s.enum.rest {
		if a.equal(a.doc, a.at, constant, 0) {
			return true
		}
	}

	return a.fail("must be one of the values of enum")
}

// quoted shortens a value for a sentence.
func quoted(raw []byte) string {
	if len(raw) <= maxQuoted {
		return string(raw)
	}

	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(raw[cut]) {
		cut--
	}

	return string(raw[:cut]) + "…"
}

// assertByKind applies the assertions that hold for the value's type alone.
func (a *application) assertByKind() bool {
	switch a.doc.kind(a.at) {
	case '"':
		return a.assertText()
	case '0':
		return a.assertNumber()
	case '[':
		return a.assertArray()
	case '{':
		return a.assertObject()
	}

	return true
}

func (a *application) assertText() bool {
	s, valid := a.s, true

	if s.length != (span{0, unbounded}) {
		text := a.doc.text(a.at)
		length := int64(utf8.RuneCount(text))
		a.spend(len(text) / 64)

		if !s.length.has(length) {
			valid = a.outside("code points", length, s.length)
		}
	}

	if s.pattern != nil {
		text := a.doc.text(a.at)
		if matches, ok := a.matches(s.pattern, text); ok && !matches {
			valid = a.fail("must match the pattern %s", quoted([]byte(s.pattern.expression.String())))
		}
	}

	return valid
}

// matches reports whether a text matches; ok is false if the budget is spent.
func (e *evaluation) matches(p *pattern, text []byte) (matches, ok bool) {
	// At worst the library tries every instruction at every byte.
	if !e.spend(1 + p.size*len(text)/patternBytes) {
		return false, false
	}

	return p.expression.Match(text), true
}

func (e *evaluation) outside(unit string, got int64, want span) bool {
	if got < want.from {
		return e.fail("must have at least %d %s, got %d", want.from, unit, got)
	}

	return e.fail("must have at most %d %s, got %d", want.to, unit, got)
}

func (a *application) assertNumber() bool {
	s, valid := a.s, true
	if s.minimum == nil && s.maximum == nil && s.multipleOf == nil {
		return true
	}

	text := a.doc.bytes(a.at)
	a.spend(1 + len(text)/8)
	value := decimalOf(string(text))

	if low := s.minimum; low != nil {
		order := value.compare(low.value)
		if order < 0 || order == 0 && low.exclusive {
			valid = a.beyond(text, low, "at least", "greater than")
		}
	}

	if high := s.maximum; high != nil {
		order := value.compare(high.value)
		if order > 0 || order == 0 && high.exclusive {
			valid = a.beyond(text, high, "at most", "less than")
		}
	}

	if of := s.multipleOf; of != nil {
		// Exact division takes time with the digits and exponents of both numbers.
		a.spend(20 + 4*(len(text)+len(of.text)+abs(value.exponent)+abs(of.value.exponent)))

		if !isMultiple(text, of.value, of.rational) {
			valid = a.fail("must be a multiple of %s, got %s", quoted([]byte(of.text)), quoted(text))
		}
	}

	return valid
}

func (e *evaluation) beyond(got []byte, want *bound, inclusive, exclusive string) bool {
	relation := inclusive
	if want.exclusive {
		relation = exclusive
	}

	return e.fail("must be %s %s, got %s", relation, quoted([]byte(want.text)), quoted(got))
}

func (a *application) assertArray() bool {
	s, valid := a.s, true
	count := int64(a.doc.nodes[a.at].count)

	if !s.items.has(count) {
		valid = a.outside("items", count, s.items)
	}

	if s.uniqueItems && count > 1 {
		if first, second, found := a.duplicate(); found {
			valid = a.fail("must have unique items, but items %d and %d are equal", first, second)
		}
	}

	return valid
}

// duplicate finds two equal items by their hashes. The seed is random, so that a
// stranger can't write items with equal hashes.
func (a *application) duplicate() (first, second int, found bool) {
	if !a.seeded {
		a.seed, a.seeded = maphash.MakeSeed(), true
	}

	type item struct {
		i  int
		at uint32
	}

	known := make(map[uint64][]item, a.doc.nodes[a.at].count)

	for i, child := range a.doc.children(a.at) {
		if !a.spend(2 * int(a.doc.nodes[child].size)) {
			return 0, 0, false
		}

		sum := a.hash(child)
		for _, other := range known[sum] {
			if a.equal(a.doc, child, a.doc, other.at) {
				return other.i, i, true
			}
		}

		known[sum] = append(known[sum], item{i, child})
	}

	return 0, 0, false
}

// hash is equal for values that are equal.
func (a *application) hash(at uint32) uint64 {
	var h maphash.Hash

	h.SetSeed(a.seed)
	kind := a.doc.kind(at)
	_ = h.WriteByte(byte(kind))

	switch kind {
	case '"':
		_, _ = h.Write(a.doc.text(at))
	case '0':
		number := decimalOf(string(a.doc.bytes(at)))
		maphash.WriteComparable(&h, number)
	case '[':
		for _, child := range a.doc.children(at) {
			maphash.WriteComparable(&h, a.hash(child))
		}
	case '{':
		// Members have no order: their hashes are added.
		sum := uint64(0)

		for _, name := range a.doc.children(at) {
			var member maphash.Hash

			member.SetSeed(a.seed)
			_, _ = member.Write(a.doc.text(name))
			maphash.WriteComparable(&member, a.hash(name+1))
			sum += member.Sum64()
		}

		maphash.WriteComparable(&h, sum)
	}

	return h.Sum64()
}

// equal compares two values as JSON Schema does: numbers by value, members without
// order.
func (e *evaluation) equal(a *document, at uint32, b *document, bt uint32) bool {
	if !e.spend(1) || a.kind(at) != b.kind(bt) || a.nodes[at].count != b.nodes[bt].count {
		return false
	}

	switch a.kind(at) {
	case '"':
		e.spend(len(a.text(at)) / 64)
		return string(a.text(at)) == string(b.text(bt))
	case '0':
		return decimalOf(string(a.bytes(at))) == decimalOf(string(b.bytes(bt)))
	case '[':
		other := bt + 1

		for _, child := range a.children(at) {
			if !e.equal(a, child, b, other) {
				return false
			}

			other += b.nodes[other].size
		}
	case '{':
		// The counts are equal, so it is enough to look up the names of one side.
		for _, name := range b.children(bt) {
			value, found, steps := a.member(at, string(b.text(name)))
			if !e.spend(steps) || !found || !e.equal(a, value, b, name+1) {
				return false
			}
		}
	}

	return true
}

func (a *application) assertObject() bool {
	s, valid := a.s, true
	count := int64(a.doc.nodes[a.at].count)

	if !s.properties.has(count) {
		valid = a.outside("members", count, s.properties)
	}

	if !a.require(s.required, "") {
		valid = false
	}

	for _, dependent := range s.dependentRequired {
		if a.hasMember(dependent.on) && !a.require(dependent.then, dependent.on) {
			valid = false
		}
	}

	return valid
}

func (a *application) hasMember(name string) bool {
	_, found, steps := a.doc.member(a.at, name)
	a.spend(steps)

	return found
}

// require adds a violation for each missing member, at its own place.
func (a *application) require(names []string, because string) bool {
	valid := true

	for _, name := range names {
		if a.hasMember(name) {
			continue
		}

		if a.steps < 0 {
			return false
		}

		valid = false
		a.failMissing(name, because)

		if a.found.full() {
			return false
		}
	}

	return valid
}

// applyReferences applies $ref, $dynamicRef and $recursiveRef.
func (a *application) applyReferences() bool {
	valid := true

	if a.s.ref != nil {
		valid = a.apply(a.s.ref, a.at, a.seen)
	}

	target := a.s.dynamicRef
	if target == nil {
		return valid
	}

	if a.s.dynamic {
		// The outermost resource with the anchor wins: so an extension overrides the schema that it extends.
		for _, resource := range a.dynamic {
			if s := resource.dynamic[a.s.dynamicAnchor]; s != nil {
				target = s
				break
			}
		}
	}

	return a.apply(target, a.at, a.seen) && valid
}

// attempt applies a schema whose failure is no violation by itself. It returns how
// deep in the value the first violation lies.
func (e *evaluation) attempt(s *subschema, at uint32, seen *evaluated) (valid bool, depth int) {
	outer := e.found
	e.found = findings{attempt: true}
	valid = e.apply(s, at, seen)
	depth = e.found.depth
	e.found = outer

	return valid, depth
}

// try attempts a schema on the application's own value.
func (a *application) try(s *subschema) (valid bool, seen *evaluated, depth int) {
	if a.tracks {
		seen = a.account(a.at)
	}

	valid, depth = a.attempt(s, a.at, seen)

	return valid, seen, depth
}

// explain applies an alternative that failed once more, for the words.
func (a *application) explain(s *subschema, alternatives int) bool {
	if a.found.attempt {
		return a.fail("")
	}

	outer := a.found
	a.found = findings{limit: 1}
	a.apply(s, a.at, nil)

	closest := a.found.all
	a.found = outer

	if len(closest) == 0 {
		return false // the budget is spent
	}

	if at := closest[0].Pointer[len(a.pointer(0)):]; at != "" {
		return a.fail("matches none of %d alternatives; in the closest one, %s %s",
			alternatives, quoted([]byte(at)), closest[0].Detail)
	}

	return a.fail("matches none of %d alternatives; for the closest one, it %s", alternatives, closest[0].Detail)
}

func (a *application) merge(seen *evaluated) {
	if seen != nil {
		a.seen.merge(seen)
	}
}

// applyLogic applies allOf, anyOf, oneOf and not.
func (a *application) applyLogic() bool {
	valid := true

	for _, s := range a.s.allOf {
		if !a.apply(s, a.at, a.seen) {
			valid = false
		}

		if a.ended(valid) {
			return false
		}
	}

	if len(a.s.anyOf) > 0 && !a.applyAny() {
		valid = false
	}

	if len(a.s.oneOf) > 0 && a.steps >= 0 && !a.applyOne() {
		valid = false
	}

	if a.s.not != nil && a.steps >= 0 {
		if matches, _, _ := a.try(a.s.not); matches {
			valid = a.fail("must not match the schema of not")
		}
	}

	return valid
}

// applyAny applies anyOf. Of alternatives that fail, the one whose violation lies
// deepest in the value is most probably the one that is meant.
func (a *application) applyAny() bool {
	var closest *subschema

	matched, deepest := false, -1

	for _, s := range a.s.anyOf {
		valid, seen, depth := a.try(s)

		switch {
		case a.steps < 0:
			return false
		case valid && a.seen == nil:
			// No schema asks for evaluated parts, so one match is enough.
			return true
		case valid:
			matched = true
			a.seen.merge(seen) // all that match evaluate their parts
		case depth > deepest:
			closest, deepest = s, depth
		}
	}

	return matched || a.explain(closest, len(a.s.anyOf))
}

func (a *application) applyOne() bool {
	var closest *subschema

	first, deepest := -1, -1

	for i, s := range a.s.oneOf {
		valid, seen, depth := a.try(s)

		switch {
		case a.steps < 0:
			return false
		case valid && first >= 0:
			return a.fail("must match exactly one alternative of oneOf, but %d and %d match", first, i)
		case valid:
			first = i
			a.merge(seen)
		case depth > deepest:
			closest, deepest = s, depth
		}
	}

	return first >= 0 || a.explain(closest, len(a.s.oneOf))
}

// applyConditions applies if, then, else and dependentSchemas.
func (a *application) applyConditions() bool {
	valid := true

	// The keyword if asserts nothing by itself, but the parts that it evaluates count.
	if a.s.test != nil && (a.tracks || a.s.then != nil || a.s.otherwise != nil) {
		matches, seen, _ := a.try(a.s.test)
		next := a.s.otherwise

		if matches {
			next = a.s.then
			a.merge(seen)
		}

		if a.steps >= 0 && next != nil {
			valid = a.apply(next, a.at, a.seen)
		}
	}

	if a.doc.kind(a.at) != '{' {
		return valid
	}

	for _, dependent := range a.s.dependentSchemas {
		if a.hasMember(dependent.on) && !a.apply(dependent.then, a.at, a.seen) {
			valid = false
		}
	}

	return valid
}

// applyParts applies schemas to the members or items of the value.
func (a *application) applyParts() bool {
	switch a.doc.kind(a.at) {
	case '{':
		return a.applyMembers()
	case '[':
		return a.applyItems()
	}

	return true
}

func (a *application) applyMembers() bool {
	s := a.s
	if s.members == nil && s.patternMembers == nil && s.additionalMembers == nil && s.memberNames == nil {
		return true
	}

	valid := true

	for i, name := range a.doc.children(a.at) {
		a.enterMember(a.doc.text(name))

		if !a.applyMember(i, name) {
			valid = false
		}

		a.leave()

		if a.ended(valid) {
			return false
		}
	}

	return valid
}

func (a *application) applyMember(i int, name uint32) bool {
	if !a.spend(1) {
		return false
	}

	s, text := a.s, a.doc.text(name)
	valid, described := true, false

	if member := s.members[string(text)]; member != nil {
		described = true
		valid = a.apply(member, name+1, nil)
	}

	for _, of := range s.patternMembers {
		matches, ok := a.matches(of.pattern, text)
		if !ok {
			return false
		}

		if matches {
			described = true
			valid = a.apply(of.schema, name+1, nil) && valid
		}
	}

	if !described && s.additionalMembers != nil {
		described = true

		valid = a.apply(s.additionalMembers, name+1, nil)
	}

	if s.memberNames != nil {
		valid = a.applyName(name) && valid
	}

	if described && a.seen != nil {
		a.seen.add(i)
	}

	return valid
}

// applyName applies propertyNames; the name is a string of the document like others.
func (a *application) applyName(name uint32) bool {
	valid, _ := a.attempt(a.s.memberNames, name, nil)

	return valid || a.fail("has a name that propertyNames does not allow")
}

func (a *application) applyItems() bool {
	s, valid := a.s, true
	if s.prefixItems == nil && s.restItems == nil && s.contains == nil {
		return true
	}

	matching := int64(0)

	for i, child := range a.doc.children(a.at) {
		a.enterItem(i)

		itemValid, matches := a.applyItem(i, child)
		valid = valid && itemValid

		if matches {
			matching++
		}

		a.leave()

		if a.ended(valid) {
			return false
		}
	}

	if s.contains != nil && !s.containsCount.has(matching) {
		valid = a.outside("items that match contains", matching, s.containsCount)
	}

	return valid
}

// applyItem reports whether an item is valid, and whether it matches contains.
func (a *application) applyItem(i int, child uint32) (valid, matches bool) {
	if !a.spend(1) {
		return false, false
	}

	item := a.s.restItems
	if i < len(a.s.prefixItems) {
		item = a.s.prefixItems[i]
	}

	valid = item == nil || a.apply(item, child, nil)

	if a.s.contains != nil && !a.ended(valid) {
		matches, _ = a.attempt(a.s.contains, child, nil)
	}

	// An item that matches contains is evaluated by it.
	if a.seen != nil && (item != nil || matches) {
		a.seen.add(i)
	}

	return valid, matches
}

// applyUnevaluated applies unevaluatedProperties and unevaluatedItems, after all
// others.
func (a *application) applyUnevaluated() bool {
	rest := a.s.unevaluatedMembers
	if a.doc.kind(a.at) == '[' {
		rest = a.s.unevaluatedItems
	}

	if kind := a.doc.kind(a.at); rest == nil || kind != '{' && kind != jsontext.Kind('[') {
		return true
	}

	valid := true

	for i, child := range a.doc.children(a.at) {
		if a.seen.has(i) {
			continue
		}

		if a.doc.kind(a.at) == '{' {
			a.enterMember(a.doc.text(child))
			child++
		} else {
			a.enterItem(i)
		}

		valid = a.apply(rest, child, nil) && valid
		a.leave()

		// For the schemas around this one the part is evaluated.
		a.seen.add(i)

		if a.ended(valid) {
			return false
		}
	}

	return valid
}

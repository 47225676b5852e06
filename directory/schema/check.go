package schema

import (
	"errors"
	"strings"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// KnowsDialect reports whether Check knows the dialect that a schema names in
// $schema; an empty name is draft 2020-12.
func KnowsDialect(name string) bool {
	name = strings.TrimSuffix(name, "#")
	return name == "" || name == draft2020
}

// A Fault is the first fault of a schema.
type Fault struct {
	Pointer string // JSON pointer into the schema
	Detail  string // a sentence without a final period
	Ref     string // the reference that leads out of the schema, if that is the fault
}

// Check checks a JSON Schema of draft 2020-12. It returns nil for a good one. A
// reference that leads out of the schema is a fault.
func Check(raw []byte) *Fault {
	_, err := Compile(raw)

	if remote, ok := errors.AsType[*remoteError](err); ok {
		return &Fault{Pointer: remote.pointer, Ref: remote.ref}
	}

	if wrong, ok := errors.AsType[*schemaError](err); ok {
		return &Fault{Pointer: wrong.pointer, Detail: wrong.detail}
	}

	if err != nil {
		return &Fault{Detail: err.Error()}
	}

	return nil
}

// Compile reads a JSON Schema, or returns a kept one. A pattern that can't be used
// and a reference to a part that the schema lacks are no errors here: they are
// Validate's.
func Compile(raw []byte) (*Schema, error) {
	if s := kept.get(raw); s != nil {
		return s, nil
	}

	s, err := compile(raw)
	if err != nil {
		return nil, err
	}

	kept.put(raw, s)

	return s, nil
}

// Validate judges one JSON value within a budget. It returns the first violation, if
// there is one; at is put before its pointer. Its error says that the value can't be
// judged: ErrBudget, or a fault of the schema.
func (s *Schema) Validate(value []byte, at string, budget *Budget) ([]directory.Violation, error) {
	found, err := s.validate(value, 1, budget)
	for i := range found {
		found[i].Pointer = at + found[i].Pointer
	}

	return found, err
}

// Bounds of the schemas that are kept compiled. A schema of many small parts takes two
// hundred times the bytes of its text.
const (
	maxKeptSchema = 1 << 20 // bytes of memory of one
	maxKept       = 8 << 20 // bytes of memory of a generation
)

// kept are the schemas that were used recently: agents have the same schemas, those of
// a framework or their own, registered again.
var kept cache

// A cache has two generations. Once the young one is full it becomes the old one, and
// the schemas that were not used since are forgotten.
type cache struct {
	mu         sync.Mutex
	young, old map[string]*Schema
	bytes      int // of memory that the young generation takes
}

func (c *cache) get(raw []byte) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()

	if s, ok := c.young[string(raw)]; ok {
		return s
	}

	s, ok := c.old[string(raw)]
	if ok {
		// A schema that is used again survives the next change of generations.
		c.add(string(raw), s)
	}

	return s
}

func (c *cache) put(raw []byte, s *Schema) {
	if s.bytes > maxKeptSchema {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.add(string(raw), s)
}

// add is called with mu held.
func (c *cache) add(raw string, s *Schema) {
	if c.young == nil || c.bytes+s.bytes > maxKept {
		c.young, c.old, c.bytes = map[string]*Schema{}, c.young, 0
	}

	c.young[raw] = s
	c.bytes += s.bytes
}

package schema

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// draft2020 is the JSON Schema dialect that schemas are checked against where
// they name it or none.
const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// metaschema is the metaschema of draft2020. It is part of the library: nothing
// is fetched, and no reference within a registrant's schema is followed.
var metaschema = sync.OnceValue(func() *jsonschema.Schema {
	return jsonschema.NewCompiler().MustCompile(draft2020)
})

// KnowsDialect reports whether Check knows the dialect that a schema names in
// $schema; an empty name is draft 2020-12.
func KnowsDialect(name string) bool {
	name = strings.TrimSuffix(name, "#")
	return name == "" || name == draft2020
}

// A Fault is the first thing that is wrong with a schema.
type Fault struct {
	Pointer string // JSON pointer into the schema
	Detail  string // what is wrong
	Ref     string // the reference that leads out of the schema, if that is the fault
}

// Check checks a JSON Schema of draft 2020-12. It returns nil for a good one. No
// reference is followed, and one that leads out of the schema is a fault.
func Check(raw []byte) *Fault {
	err := goodSchemas.check(raw)
	if err == nil {
		return nil
	}

	var remote *remoteError
	if errors.As(err, &remote) {
		return &Fault{Pointer: remote.at, Ref: remote.ref}
	}

	at, why := deepest(err)

	return &Fault{Pointer: at, Detail: why}
}

// goodSchemas are the schemas that were found good of late. To check one is most
// of what a registration costs, and agents have the same ones: those of a
// framework, or their own, registered again.
var goodSchemas = schemaCache{}

// Bounds of a schemaCache: longer schemas are not kept, nor more than two
// generations of so many. When the young are that many, the old are forgotten.
const (
	maxKeptSchema  = 4 << 10
	maxKeptSchemas = 1024
)

type schemaCache struct {
	mu         sync.Mutex // guards what follows
	young, old map[string]struct{}
}

// check returns what is wrong with a schema.
func (c *schemaCache) check(raw []byte) error {
	if c.has(raw) {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err == nil {
		err = wieldy(v)
	}
	if err == nil {
		err = metaschema().Validate(v)
	}
	if err == nil {
		if at, ref := remoteRef(v); ref != "" {
			err = &remoteError{at, ref}
		}
	}
	if err == nil && len(raw) <= maxKeptSchema {
		c.keep(string(raw))
	}
	return err
}

// A remoteError is a schema that refers to another.
type remoteError struct{ at, ref string }

func (e *remoteError) Error() string { return "it refers to " + e.ref }

func (c *schemaCache) has(raw []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.young[string(raw)]; ok {
		return true
	}
	_, ok := c.old[string(raw)]
	if ok {
		c.add(string(raw)) // it is in use: it outlives the others of its age
	}
	return ok
}

func (c *schemaCache) keep(raw string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(raw)
}

// add is for whoever holds mu.
func (c *schemaCache) add(raw string) {
	if len(c.young) >= maxKeptSchemas || c.young == nil {
		c.young, c.old = make(map[string]struct{}), c.young
	}
	c.young[raw] = struct{}{}
}

// deepest returns where in a schema the first of the innermost faults lies, as a
// JSON pointer, and what it is.
func deepest(err error) (at, why string) {
	var long *unwieldyError
	if errors.As(err, &long) {
		return long.at, long.Error()
	}
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return "", err.Error()
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	for _, name := range v.InstanceLocation {
		at = strictjson.Pointer(at, name)
	}
	return at, v.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

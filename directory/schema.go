package directory

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// draft2020 is the JSON Schema dialect that schemas are checked against where
// they name it or none.
const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// metaschema is the metaschema of draft2020. It is part of the library: nothing
// is fetched, and no reference within a registrant's schema is followed.
var metaschema = sync.OnceValue(func() *jsonschema.Schema {
	return jsonschema.NewCompiler().MustCompile(draft2020)
})

// schema returns a member that is a JSON Schema object (AD-014). Schemas of other
// dialects are taken as they are.
func (o *object) schema(name string) []byte {
	raw := o.member(name, "{", "a JSON Schema object")
	if raw == nil || !o.reading.schemas {
		return raw
	}
	s := o.child(name)
	switch dialect := s.text("$schema"); strings.TrimSuffix(dialect, "#") {
	case "", draft2020:
	default:
		return raw
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err == nil {
		err = metaschema().Validate(v)
	}
	if err != nil {
		at, why := deepest(err)
		o.reading.refuse(BadDocument, s.at+at, "%q is not a JSON Schema (2020-12): %s", name, why)
	}
	return raw
}

// deepest returns where in a schema the first of the innermost faults lies, as a
// JSON pointer, and what it is.
func deepest(err error) (at, why string) {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return "", err.Error()
	}
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	for _, name := range v.InstanceLocation {
		at = pointer(at, name)
	}
	return at, v.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

package kinds_test

import (
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// References that lead out of a schema are found wherever they stand, however they
// are written.
//
// Requirement: WOA-023
func TestRemoteReferencesAreRefused(t *testing.T) {
	for schema, want := range map[string]string{
		`{"$ref":"https://evil.test/s"}`: "/capabilities/0/input_schema/$ref",
		`{"$defs":{"a":{"allOf":[{},{"$r\u0065f":"//evil.test/s"}]}},"$ref":"#/$defs/a"}`: "/capabilities/0/input_schema/$defs/a/allOf/1/$ref",
		`{"$dynamicRef":"urn:x:y"}`:                                                                "/capabilities/0/input_schema/$dynamicRef",
		`{"properties":{"a":{"$ref":"other.json#/a"}}}`:                                            "/capabilities/0/input_schema/properties/a/$ref",
		`{"$id":"https://a.test/s","items":{"$ref":"t"}}`:                                          "/capabilities/0/input_schema/items/$ref",
		`{"$ref":"https://json-schema.org.evil.test/draft/2020-12/schema"}`:                        "/capabilities/0/input_schema/$ref",
		`{"$ref":"file:///etc/passwd"}`:                                                            "/capabilities/0/input_schema/$ref",
		`{"$id":"https://a.test/s","items":{"$ref":"https://a.test/s#/$defs/x"},"$defs":{"x":{}}}`: "",
		`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`:                                  "",
		`{"enum":[{"$ref":"https://evil.test"}],"examples":[{"$ref":"https://evil.test"}]}`:        "",
	} {
		d, err := directory.ParseDocument(directory.KindAD,
			[]byte(`{"base":"https://a.test","capabilities":[{"name":"x","type":"tool","input_schema":`+schema+`}]}`))
		must(t, err)

		for range 2 { // what is bad is not kept as good
			_, err = kinds.Project("a", d)

			var e *directory.Error
			if errors.As(err, &e); err != nil && e == nil || (err == nil) != (want == "") ||
				e != nil && e.Pointer != want {
				t.Errorf("%s: %v, want one at %q", schema, err, want)
			}
		}
	}
}

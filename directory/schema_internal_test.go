package directory

import (
	"errors"
	"fmt"
	"testing"
)

func TestGoodSchemasAreKeptWithinBounds(t *testing.T) {
	var c schemaCache
	bad := []byte(`{"type":"no type"}`)
	for range 2 {
		if c.check(bad) == nil {
			t.Error("a bad schema is good")
		}
	}
	used := []byte(`{"title":"used"}`)
	for i := range 5 * maxKeptSchemas {
		if err := c.check(fmt.Appendf(nil, `{"title":"%d"}`, i)); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 && (c.check(used) != nil || !c.has(used)) {
			t.Fatal("what is in use is forgotten")
		}
	}
	if n := len(c.young) + len(c.old); n > 2*maxKeptSchemas {
		t.Errorf("%d schemas are kept", n)
	}
	if c.has([]byte(`{"title":"0"}`)) || c.has(bad) {
		t.Error("what is old, or bad, is kept")
	}
	long := fmt.Appendf(nil, `{"title":"%0*d"}`, maxKeptSchema, 0)
	if c.check(long) != nil || c.has(long) {
		t.Error("a long schema is kept, or not good")
	}
}

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
		d, err := ParseDocument(KindAD, []byte(`{"base":"https://a.test","capabilities":[{"name":"x","type":"tool","input_schema":`+schema+`}]}`))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // what is bad is not kept as good
			_, err = Project("a", d)
			var e *Error
			if errors.As(err, &e); err != nil && e == nil || (err == nil) != (want == "") || e != nil && e.Pointer != want {
				t.Errorf("%s: %v, want one at %q", schema, err, want)
			}
		}
	}
}

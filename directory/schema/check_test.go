package schema

import (
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

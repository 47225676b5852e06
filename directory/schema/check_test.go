package schema

import (
	"fmt"
	"strings"
	"testing"
)

func TestSchemasAreKeptWithinBounds(t *testing.T) {
	var c cache

	keep := func(text string) {
		t.Helper()

		s, err := compile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}

		c.put([]byte(text), s)
	}
	used := `{"title":"used"}`

	keep(used)

	for i := range 50_000 {
		keep(fmt.Sprintf(`{"title":"%d"}`, i))

		if i%1000 == 0 && c.get([]byte(used)) == nil {
			t.Fatal("a schema in use is forgotten")
		}
	}

	if bytes := sizeOf(c.young) + sizeOf(c.old); bytes > 2*maxKept {
		t.Errorf("%d bytes of schemas are kept, want at most %d", bytes, 2*maxKept)
	}

	if c.get([]byte(`{"title":"0"}`)) != nil {
		t.Error("a schema that was not used is kept")
	}

	// Many small parts take two hundred times their text.
	large := `{"allOf":[` + strings.Repeat("{},", maxSchemaBytes/4) + `{}]}`
	keep(large)

	if c.get([]byte(large)) != nil {
		t.Error("a large schema is kept")
	}
}

func sizeOf(generation map[string]*Schema) (bytes int) {
	for _, s := range generation {
		bytes += s.bytes
	}

	return bytes
}

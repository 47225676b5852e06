package schema

import (
	"fmt"
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

	bytes := 0
	for _, generation := range []map[string]*Schema{c.young, c.old} {
		for text := range generation {
			bytes += len(text)
		}
	}

	if bytes > 2*maxKeptTexts {
		t.Errorf("%d bytes of schemas are kept, want at most %d", bytes, 2*maxKeptTexts)
	}

	if c.get([]byte(`{"title":"0"}`)) != nil {
		t.Error("a schema that was not used is kept")
	}

	long := fmt.Sprintf(`{"title":"%0*d"}`, maxKeptSchema, 0)
	keep(long)

	if c.get([]byte(long)) != nil {
		t.Error("a long schema is kept")
	}
}

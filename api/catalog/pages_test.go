package catalog

import (
	"fmt"
	"testing"
)

// However many pages are asked for, memory is bounded.
func TestWoAPagesAreBounded(t *testing.T) {
	ps := newPageCache()

	render := func() (*page, error) { return &page{body: make([]byte, 1<<20)}, nil }
	for i := range 100 {
		if _, err := ps.page(t.Context(), fmt.Sprint(i), func() uint64 { return 0 }, render); err != nil {
			t.Fatal(err)
		}
	}

	if ps.bytes > cacheMemory || len(ps.pages) != 31 {
		t.Errorf("%d pages with %d bytes are kept", len(ps.pages), ps.bytes)
	}

	if _, fresh := ps.cached("99"); !fresh {
		t.Error("the last one is forgotten")
	}
}

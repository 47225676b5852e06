package discovery

import (
	"hash/maphash"
	"runtime"
	"testing"

	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
)

// sizeBytes is the part of the memory of a registration that the index of ranked search may
// use. The state may use the rest: consensus/state, TestSizesMemory.
const sizeBytes = 500

// The index of ranked search stays within its part of the memory of a registration.
//
// Requirement: OPS-019
func TestSizesMemory(t *testing.T) {
	const many = 10_000
	w, reader := newWriter(1), content.NewReader(analysis.NewIndexing(maphash.MakeSeed()))
	x := newIndex(&Config{Class: byVisibility, Generation: func() uint64 { return 0 }}, reader.Seed, nil)
	put := func(from, to int) {
		var c contents
		for i := from; i < to; i++ {
			e := w.entry(i)
			c.read(reader, e, e.Projection())
			x.put(e, &c)
		}
	}

	put(0, many) // the vocabulary is there after these
	before := heapInUse()
	put(many, 2*many)

	each := (int64(heapInUse()) - int64(before)) / many
	t.Logf("%d bytes for each of %d registrations", each, many)

	if each > sizeBytes {
		t.Errorf("a registration takes %d bytes of the index; at most %d", each, sizeBytes)
	}

	runtime.KeepAlive(x)
}

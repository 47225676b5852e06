package index_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// A lookup by one filter looks at as many registrations among 20,000 as among 2,000, so
// that its time at 10^6 is the time of its page.
//
// Requirement: OPS-019
func TestSizesLookup(t *testing.T) {
	few, many := index.NewView(alpha), index.NewView(alpha)
	for i, e := range population(20_000) {
		many.Own().Put(e)

		if i < 2000 {
			few.Own().Put(e)
		}
	}

	for name, query := range map[string]index.Query{
		"protocol":          {Protocol: []string{"a2a"}},
		"type":              {CapType: []string{"tool"}},
		"tag":               {Tag: []string{"tag-500"}},
		"no such tag":       {Tag: []string{"none"}},
		"name":              {Agent: []index.Pattern{{Text: "agent-0000007"}}},
		"prefix of a name":  {Agent: []index.Pattern{{Text: "agent-00", Prefix: true}}},
		"prefix of another": {CapName: []index.Pattern{{Text: "capability-1", Prefix: true}}},
	} {
		query.Count = 20
		among2000, among20000 := lookedAt(few, query), lookedAt(many, query)
		t.Logf("%s: %d among 2,000, %d among 20,000", name, among2000, among20000)

		if most := 2*among2000 + 2*query.Count; among20000 > most {
			t.Errorf("%s: a lookup looks at %d of 2,000 registrations, and at %d of 20,000; want at most %d",
				name, among2000, among20000, most)
		}
	}
}

// lookedAt returns the number of registrations at which a lookup looks.
func lookedAt(v *index.View, query index.Query) (all int) {
	query.Charge = func(looked int) bool {
		all += looked
		return true
	}
	v.Lookup(query, nil)

	return all
}

// A tag that no other registration has costs little, so that one identity with the most tags in the
// most registrations that it may have stays within its part of the memory.
//
// Requirement: OPS-019
func TestSizesOwnTags(t *testing.T) {
	const (
		many = 2000
		most = 26 // bytes for each tag
	)

	es := make([]*directory.Entry, 2*many)
	for i := range es {
		p := &directory.Projection{Status: "active"}
		for n := range directory.MaxTags {
			p.Tags = append(p.Tags, fmt.Sprintf("tag-%d-%d", i, n))
		}

		es[i] = entry(alpha, i, fmt.Sprintf("agent-%07d", i), p)
	}

	x := index.New()
	for _, e := range es[:many] {
		x.Put(e)
	}

	before := heapInUse()

	for _, e := range es[many:] {
		x.Put(e)
	}

	each := float64(int64(heapInUse())-int64(before)) / many / directory.MaxTags
	t.Logf("%.1f bytes for each tag", each)

	if each > most {
		t.Errorf("a tag that one registration has takes %.1f bytes of the index; at most %d", each, most)
	}

	runtime.KeepAlive(x)
	runtime.KeepAlive(es)
}

// heapInUse returns the bytes of the live heap.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()

	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

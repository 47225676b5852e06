package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// An order against a sorted slice: they hold the same in the same order, find the same
// places, and no run is empty or too long.
func TestOrderAgainstASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var model []uint32

		o, rising := sortedRows{}, uint32(5000)
		if rapid.Bool().Draw(t, "made of many") {
			for ; rising < 7000; rising++ {
				model = append(model, rising)
			}

			o = newSortedRows(slices.Clone(model))
		}

		before := func(n uint32) func(uint32) bool { return func(x uint32) bool { return x < n } }

		random := rapid.Uint32Range(0, 4000)
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			op := rapid.IntRange(0, 2).Draw(t, "op")
			for range rapid.IntRange(1, 300).Draw(t, "times") {
				switch {
				case op == 0 && len(model) > 0:
					i := rapid.IntRange(0, len(model)-1).Draw(t, "i")
					o.remove(o.first(before(model[i])))
					model = slices.Delete(model, i, i+1)
				case op == 1:
					n := random.Draw(t, "number")

					i, had := slices.BinarySearch(model, n)
					if !had {
						o.insert(n, before(n))
						model = slices.Insert(model, i, n)
					}
				default:
					rising++
					o.insert(rising, before(rising))
					model = append(model, rising)
				}
			}

			n := random.Draw(t, "sought")
			i, _ := slices.BinarySearch(model, n)
			part := o.between(before(n), before(5500))

			end, _ := slices.BinarySearch(model, 5500)
			if got := slices.Collect(part.all()); !slices.Equal(got, model[i:end]) || part.size() != end-i {
				t.Fatalf("%d numbers from %d on, %v; want %v", part.size(), n, got, model[i:end])
			}

			for i, r := range o.runs {
				if len(r) == 0 || len(r) > maxRun {
					t.Fatalf("run %d has %d numbers", i, len(r))
				}
			}

			if all := (rowRange{&o, place{}, o.end()}); o.n != len(model) ||
				!slices.Equal(slices.Collect(all.all()), model) {
				t.Fatalf("%d numbers are not the %d of the model", o.n, len(model))
			}
		}
	})
}

// Runs that shrink are joined, so that what is left of many is not many runs.
func TestOrderJoinsShortRuns(t *testing.T) {
	var o sortedRows

	before := func(n uint32) func(uint32) bool { return func(x uint32) bool { return x < n } }
	for i := range uint32(20_000) {
		o.insert(i, before(i))
	}

	for i := range uint32(20_000) {
		if i%100 != 0 {
			o.remove(o.first(before(i)))
		}
	}

	if o.n != 200 || len(o.runs) > 5 {
		t.Errorf("%d numbers in %d runs", o.n, len(o.runs))
	}
}

// A slotted text is a posting by what it stands for.
type slotted struct {
	text string
	key  sortKey
}

// Postings against a sorted slice: each text has its entries in the order of their keys,
// a beginning of texts has those of all, and no text is kept that nobody has.
func TestPostingsAgainstASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newEntryTable()
		p := &postings{entries: &s, words: &table.Paged[string]{}}
		p.sort()

		var model []slotted
		order := func(a, b slotted) int {
			return cmp.Or(strings.Compare(a.text, b.text), a.key.compare(b.key))
		}
		texts := []string{"", "a", "ab", "abc", "b", "bé"}

		rows := map[sortKey]uint32{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			o := slotted{rapid.SampledFrom(texts).Draw(t, "text"),
				sortKey{created: rapid.Uint64Range(1, 40).Draw(t, "created")}}
			if _, has := rows[o.key]; !has {
				_, rows[o.key] = s.add(o.key)
			}

			i, had := slices.BinarySearchFunc(model, o, order)
			if had {
				p.remove(o.text, rows[o.key])
				model = slices.Delete(model, i, i+1)
			} else {
				p.insert(o.text, rows[o.key])
				model = slices.Insert(model, i, o)
			}
		}

		kept := 0
		for _, beginning := range texts {
			var want, got []slotted

			size := 0
			for _, o := range model {
				if strings.HasPrefix(o.text, beginning) {
					want = append(want, o)
				}

				if o.text == beginning {
					size++
				}
			}

			for n := range p.beginning(beginning, beginning).all() {
				text := p.texts.At(n)

				o := p.rows(text)
				for row := range (rowRange{o, place{}, o.end()}).all() {
					got = append(got, slotted{*p.words.At(n), s.rows.At(row).key})
				}
			}

			if !slices.Equal(got, want) || p.sizeOf(beginning) != len(want) {
				t.Fatalf("%d begin with %q: %v, want %v", p.sizeOf(beginning), beginning, got, want)
			}

			text, _ := p.text(beginning)
			if (text != nil) != (size > 0) || text != nil && p.size(text) != size {
				t.Fatalf("%q: %v, want %d", beginning, text, size)
			}

			if text != nil {
				kept++
			}
		}

		if p.byText.Len() != kept {
			t.Fatalf("%d texts are kept, want %d", p.byText.Len(), kept)
		}
	})
}

// What begins alike is found whole, in the order of keys, by several holds of the lock
// that end within a text; how much it is at least, is told of many texts. Where it is too
// much nothing is found.
func TestGatherManyTexts(t *testing.T) {
	for _, names := range []int{3, 2 * sampled} {
		x := New()

		const n = 3 * maxScan
		for i := range uint64(n) {
			p := &directory.Projection{Capabilities: []directory.Capability{{Name: fmt.Sprintf("c%03d",
				i%uint64(names))}, {Name: "other"}}}
			x.Put(&directory.Entry{RID: directory.NewRID(int64(i), [10]byte{}), Agent: fmt.Sprint(i), Created: i + 1,
				Packed: directory.Pack(directory.Document{}, p), ExpiresAt: 1})
		}

		q := &Query{CapName: []Pattern{{"c", true}}}

		r := textFilter{fieldCapName, "c", true}
		if size, least := x.size(r), min(n, sampled*n/names+names-min(sampled, names)); size != least {
			t.Errorf("%d entries are told to have one of %d names, want %d", size, names, least)
		}

		found, more := x.collectByPrefix(r, &matcher{Query: q}, sortKey{}, 0, n)
		for i, e := range found {
			if e.Created != uint64(i)+1 {
				t.Fatalf("of %d names, at %d: %d", names, i, e.Created)
			}
		}

		if len(found) != n || more {
			t.Errorf("%d entries have one of %d names, and more %v; want %d", len(found), names, more, n)
		}

		if found, more := x.collectByPrefix(r, &matcher{Query: q}, sortKey{}, 0, n/2); found != nil || !more {
			t.Errorf("having looked at too many it finds %d", len(found))
		}
	}
}

// A prefix of which the first names are rare and others everybody's looks like few entries,
// each of which has many such names. Yet a lookup by it costs no more than twice a scan of
// everything, and finds all there is.
func TestFindByAPrefixLooksAtNoMoreThanTwice(t *testing.T) {
	x := New()

	const n = 5000
	for i := range uint64(n) {
		p := &directory.Projection{Languages: []string{"en"}}
		for c := range 20 {
			p.Capabilities = append(p.Capabilities, directory.Capability{Name: fmt.Sprintf("cz%d", c)})
		}

		if i <= sampled {
			p.Capabilities = []directory.Capability{{Name: fmt.Sprintf("c%03d", i)}}
		}

		if i%1000 == 999 {
			p.Languages = []string{"xx"}
		}

		x.Put(&directory.Entry{RID: directory.NewRID(int64(i), [10]byte{}), Agent: fmt.Sprint(i), Created: i + 1,
			Packed: directory.Pack(directory.Document{}, p), ExpiresAt: 1 << 60})
	}

	looked := 0
	q := &Query{CapName: []Pattern{{"c", true}}, Language: []string{"xx"}, Count: 10, Charge: func(n int) bool {
		looked += n
		return true
	}}

	var found []uint64
	for e := range x.find(q, sortKey{}) {
		found = append(found, e.Created)
	}

	if want := []uint64{1000, 2000, 3000, 4000, 5000}; !slices.Equal(found, want) {
		t.Errorf("it finds %v, want %v", found, want)
	}

	if looked > 2*n {
		t.Errorf("it looks at %d of %d entries", looked, n)
	}
}

// A lookup looks at what its smallest filter has, and at no more than twice that
// for a prefix, wherever in the order the matches are.
func TestFindLooksAtFew(t *testing.T) {
	x := New()

	const n = 20_000
	for i := range uint64(n) {
		p := &directory.Projection{Protocols: []string{"a2a"}, Status: directory.StatusActive}
		p.Capabilities = []directory.Capability{{Name: fmt.Sprintf("c%d", i%10), Type: "tool",
			Tags: []string{fmt.Sprintf("t%d", i%1000)}}}

		name := fmt.Sprintf("a%05d", i)
		if i >= n-50 {
			name = "zz" + name // bunched at the end
		}

		x.Put(&directory.Entry{RID: directory.NewRID(int64(i), [10]byte{}), Agent: name, Created: i + 1,
			Packed: directory.Pack(directory.Document{}, p), ExpiresAt: 1 << 60})
	}

	for name, c := range map[string]struct {
		q     Query
		along int // the field that is scanned
		size  int
		most  int // before a prefix is gathered
	}{
		"everything": {Query{}, fieldAll, n, n},
		"a tag":      {Query{Tag: []string{"t7"}, CapType: []string{"tool"}}, fieldTag, 20, 20},
		"a name": {Query{Agent: []Pattern{{"a00007", false}}, CapName: []Pattern{{"c", true}}},
			fieldAgent, 1, 1},
		"a name that is none": {Query{Agent: []Pattern{{"x", false}}}, fieldAgent, 0, 0},
		"a rare prefix": {Query{Agent: []Pattern{{"zz", true}}, Protocol: []string{"a2a"}}, fieldAll, n,
			50},
		"a common prefix":            {Query{Agent: []Pattern{{"a", true}}}, fieldAll, n, n},
		"a prefix and a tag":         {Query{Agent: []Pattern{{"a0000", true}}, Tag: []string{"t7"}}, fieldTag, 20, 20},
		"a status nobody has":        {Query{Status: []string{"testing"}}, fieldStatus, 0, 0},
		"the status nearly all have": {Query{Status: []string{directory.StatusActive}}, fieldAll, n, n},
	} {
		t.Run(name, func(t *testing.T) {
			plan := x.plan(&c.q)
			if size := x.size(plan.along); plan.along.field != c.along || size != c.size ||
				min(plan.most, size) != c.most {
				t.Errorf("scans %d postings of field %d, %d of them before it gathers; want %d of %d, %d", size,
					plan.along.field, plan.most, c.size, c.along, c.most)
			}

			looked := 0
			c.q.Charge = func(n int) bool {
				looked += n
				return true
			}

			for range x.find(&c.q, sortKey{}) { // to its end
			}

			if looked > 2*c.most {
				t.Errorf("looks at %d entries, want at most %d", looked, 2*c.most)
			}
		})
	}
}

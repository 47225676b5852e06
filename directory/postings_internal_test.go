package directory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A place is a posting by what it stands for.
type place struct {
	text string
	key  key
}

func newPostings() *postings {
	t := newStock()
	return &postings{stock: &t}
}

// put inserts a posting of a slot of its own.
func (p *postings) put(o place) {
	_, n := p.stock.take(o.key)
	p.insert(posting{p.stock.use(o.text), n})
}

// Postings against a sorted slice: they hold the same in the same order, find
// the same places, and no run is empty or too long.
func TestPostingsAgainstASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPostings()
		var model []place
		order := func(a, b place) int {
			return cmp.Or(strings.Compare(a.text, b.text), a.key.compare(b.key))
		}
		random := rapid.Custom(func(t *rapid.T) place {
			text := rapid.SampledFrom([]string{"", "a", "ab", "b"}).Draw(t, "text")
			return place{text, key{created: rapid.Uint64Range(0, 4000).Draw(t, "created")}}
		})
		rising := uint64(5000)
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			op := rapid.IntRange(0, 2).Draw(t, "op")
			for range rapid.IntRange(1, 300).Draw(t, "times") {
				switch {
				case op == 0 && len(model) > 0:
					i := rapid.IntRange(0, len(model)-1).Draw(t, "i")
					p.remove(model[i].text, model[i].key)
					model = slices.Delete(model, i, i+1)
				case op == 1:
					o := random.Draw(t, "posting")
					i, had := slices.BinarySearchFunc(model, o, order)
					if !had {
						p.put(o)
						model = slices.Insert(model, i, o)
					}
				default:
					rising++
					o := place{"zz", key{created: rising}}
					p.put(o)
					model = append(model, o)
				}
			}
			o := random.Draw(t, "absent")
			if _, had := slices.BinarySearchFunc(model, o, order); !had {
				p.remove(o.text, o.key)
			}
			checkPostings(t, p, model)
			a, _ := slices.BinarySearchFunc(model, o, order)
			if got := p.between(p.seek("", key{}), p.seek(o.text, o.key)); got != a {
				t.Fatalf("%d are before %v, want %d", got, o, a)
			}
		}
	})
}

func checkPostings(t *rapid.T, p *postings, model []place) {
	for i, c := range p.chunks {
		if len(c) == 0 || len(c) > chunk {
			t.Fatalf("run %d has %d postings", i, len(c))
		}
	}
	i := 0
	for o, s, ok := p.next(p.seek("", key{})); ok; o, s, ok = p.next(s) {
		if i >= len(model) || p.text(o) != model[i].text || p.keyOf(o) != model[i].key {
			t.Fatalf("at %d: got %v", i, o)
		}
		i++
	}
	if i != len(model) {
		t.Fatalf("got %d postings, want %d", i, len(model))
	}
	texts := map[string]bool{}
	for _, o := range model {
		texts[o.text] = true
	}
	if len(p.stock.numbers) != len(texts) {
		t.Fatalf("%d texts are kept, want %d", len(p.stock.numbers), len(texts))
	}
}

// Runs that shrink are joined, so that what is left of many is not many runs.
func TestPostingsJoinShortRuns(t *testing.T) {
	p := newPostings()
	for i := range uint64(20_000) {
		p.put(place{"", key{created: i}})
	}
	for i := range uint64(20_000) {
		if i%100 != 0 {
			p.remove("", key{created: i})
		}
	}
	if n := p.between(p.seek("", key{}), p.seek("\x00", key{})); n != 200 || len(p.chunks) > 5 {
		t.Errorf("%d postings in %d runs", n, len(p.chunks))
	}
}

// A lookup looks at what its smallest filter has, and at no more than twice that
// for a prefix, wherever in the order the matches are.
func TestFindLooksAtFew(t *testing.T) {
	x := NewIndex()
	const n = 20_000
	for i := range uint64(n) {
		p := &Projection{Protocols: []string{"a2a"}, Status: statusActive}
		p.Capabilities = []Capability{{Name: fmt.Sprintf("c%d", i%10), Type: "tool", Tags: []string{fmt.Sprintf("t%d", i%1000)}}}
		name := fmt.Sprintf("a%05d", i)
		if i >= n-50 {
			name = "zz" + name // bunched at the end
		}
		x.Put(&Entry{RID: NewRID(int64(i), [10]byte{}), Agent: name, Created: i + 1, Packed: Pack(Document{}, p), ExpiresAt: 1 << 60})
	}
	for name, c := range map[string]struct {
		q     Query
		along int // the field that is scanned
		size  int
		most  int // before a prefix is gathered
	}{
		"everything":                 {Query{}, fieldAll, n, n},
		"a tag":                      {Query{Tag: []string{"t7"}, CapType: []string{"tool"}}, fieldTag, 20, 20},
		"a name":                     {Query{Agent: []Pattern{{"a00007", false}}, CapName: []Pattern{{"c", true}}}, fieldAgent, 1, 1},
		"a name that is none":        {Query{Agent: []Pattern{{"x", false}}}, fieldAgent, 0, 0},
		"a rare prefix":              {Query{Agent: []Pattern{{"zz", true}}, Protocol: []string{"a2a"}}, fieldAll, n, 50},
		"a common prefix":            {Query{Agent: []Pattern{{"a", true}}}, fieldAll, n, n},
		"a prefix and a tag":         {Query{Agent: []Pattern{{"a0000", true}}, Tag: []string{"t7"}}, fieldTag, 20, 20},
		"a status nobody has":        {Query{Status: []string{"testing"}}, fieldStatus, 0, 0},
		"the status nearly all have": {Query{Status: []string{statusActive}}, fieldAll, n, n},
	} {
		t.Run(name, func(t *testing.T) {
			along, _, most := x.plan(&c.q)
			if size := x.size(along); along.field != c.along || size != c.size || min(most, size) != c.most {
				t.Errorf("scans %d postings of field %d, %d of them before it gathers; want %d of %d, %d", size, along.field, most, c.size, c.along, c.most)
			}
		})
	}
}

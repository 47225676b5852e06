package discovery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// While a source of vectors is away no query asks it, and after a rest one does at a time. Those
// that don't ask take no place from others.
func TestABreakerGivesPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{asking: make(chan struct{}, maxAsking)}

		for range breaksAfter {
			if !b.begin() {
				t.Fatal("a query doesn't ask a source that has not failed often")
			}

			b.end(false)
		}

		for range maxAsking + 1 {
			if b.begin() {
				t.Fatal("a query asks a source that is away")
			}
		}

		time.Sleep(restsFor)

		if !b.begin() || b.begin() {
			t.Error("after the rest, none or two queries ask")
		}

		b.end(true)

		for range 2 {
			if !b.begin() {
				t.Error("queries don't ask a source that is back")
			}
		}
	})
}

func TestPlacesOfVectorsComeBack(t *testing.T) {
	s := vectorSpace{wake: make(chan struct{}, 1)}
	s.note(0, 7)
	s.note(0, 8)
	s.note(1, 9)
	s.forget(0)
	s.note(1, 0)

	if s.noted != 0 {
		t.Errorf("%d places are taken", s.noted)
	}
}

// A changingModel is an embedder whose model can be replaced.
type changingModel struct{ name string }

func (m *changingModel) Model() string { return m.name }

func (*changingModel) Embed(_ context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, len(texts))
	for i := range vectors {
		vectors[i] = []float32{1}
	}

	return vectors, nil
}

// A model that was replaced since the texts were chosen puts no vectors among those of the former.
func TestVectorsOfTwoModelsAreNotMixed(t *testing.T) {
	model := &changingModel{"one"}

	f, err := New(Config{View: index.NewView(alpha), Embedder: model})
	must(t, err)

	defer f.Close()
	f.index.space.note(0, 7)

	for _, name := range []string{"two", "one"} {
		model.name = name
		must(t, f.embedBatch(t.Context(), []waiter{{slot: 0, hash: 7, text: "a text"}}))

		if _, has := f.index.space.of(0); has != (name == "one") {
			t.Errorf("by the model %s it has a vector: %t", name, has)
		}
	}
}

// The redaction that was not asked for the longest makes room for another.
func TestARedactionInUseKeepsItsIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(Config{View: index.NewView(alpha)})
		must(t, err)

		defer f.Close()

		used := f.as(directory.Withhold("a"))

		time.Sleep(time.Second)

		for _, member := range []string{"b", "c", "d"} {
			f.as(directory.Withhold(member))
		}

		if f.as(directory.Withhold("e")) != nil {
			t.Error("an index that was in use a moment ago has made room")
		}

		time.Sleep(partIdle - time.Second)
		f.as(directory.Withhold("a"))
		time.Sleep(2 * time.Second)

		if f.as(directory.Withhold("e")) == nil || f.as(directory.Withhold("a")) != used {
			t.Error("no index has made room, or the one that is in use")
		}
	})
}

// A reader that was away for more changes than are remembered gets a set of all registrations.
func TestASetThatIsFarBehindIsMadeAnew(t *testing.T) {
	view := index.NewView(alpha)

	f, err := New(Config{View: view})
	must(t, err)

	defer f.Close()

	w := newWriter(1)
	all := Reader{Key: "all", Sees: func(*directory.Entry) (sight directory.Redaction, ok bool) { return sight, true }}

	for n := range 2 {
		e := w.entry(n)
		view.Own().Put(e)
		must(t, f.CatchUp(t.Context()))

		slot, _ := f.index.find(e.Origin, e.RID)

		// The first set is made of one registration. The other one comes before all changes that are remembered.
		for range n * changesKept {
			f.index.changed(0)
		}

		if !f.readers.of(f.index, view, all).slots.Has(slot) {
			t.Errorf("registration %d is missing in the set of its reader", n)
		}
	}
}

// The sets of readers are bounded, and end with the index whose slots they are of.
func TestSetsOfReadersEnd(t *testing.T) {
	f, err := New(Config{View: index.NewView(alpha)})
	must(t, err)

	defer f.Close()

	for n := range maxReaders + 1 {
		f.readers.take(string(rune('a'+n)), 0)
	}

	if n := len(f.readers.sets); n != maxReaders {
		t.Errorf("%d sets are kept, want %d", n, maxReaders)
	}

	f.index1(&step{event: index.Event{Kind: index.EventReset}})

	if n := len(f.readers.sets); n != 0 {
		t.Errorf("%d sets are kept of an index that was replaced", n)
	}
}

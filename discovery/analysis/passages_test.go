package analysis

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// A text is read the same the first time, when it is remembered, and from then on;
// and however many others come between.
func TestAPassageIsReadAgainAsTheFirstTime(t *testing.T) {
	seed := maphash.MakeSeed()

	a, plain := New(seed), New(seed)
	for round := range 4 {
		for i := range 100 {
			text := fmt.Sprintf("The agent number %d of GitHub's translators. %s", i,
				strings.Repeat("It reads what it is given, and says it in other words. ", i))
			before, plainBefore := a.Dropped, plain.Dropped

			got, want := slices.Clone(a.ReadCached(text)), plain.Read(text)
			if !reflect.DeepEqual(got, want) || a.Dropped-before != plain.Dropped-plainBefore {
				t.Fatalf("round %d: got %v and %d dropped, want %v and %d", round, got, a.Dropped-before, want,
					plain.Dropped-plainBefore)
			}
		}
	}

	if len(a.passages.known) == 0 {
		t.Error("nothing is remembered")
	}
}

// What is remembered of a text is no part of it: it may be a few words of a registration
// that says much besides.
func TestPassagesAreNoPartsOfTexts(t *testing.T) {
	a := New(maphash.MakeSeed())
	registration := strings.Repeat("翻译文档的代理", 8) + " 1,000 Übersetzungen, and more than a few"

	from := uintptr(unsafe.Pointer(unsafe.StringData(registration)))
	for range 3 {
		a.ReadCached(registration)
	}

	for text, p := range a.passages.known {
		for _, word := range append(slices.Clone(p.tokens), Token{Term: Term{Text: text}}) {
			if at := uintptr(unsafe.Pointer(unsafe.StringData(word.Text))); at-from < uintptr(len(registration)) {
				t.Fatalf("%q is kept, and with it the registration that it is a part of", word.Text)
			}
		}
	}

	if len(a.passages.known) == 0 {
		t.Error("nothing is remembered")
	}
}

// However little there is to read in long texts, only so much of them is kept.
func TestPassagesAreBounded(t *testing.T) {
	a := New(maphash.MakeSeed())
	for i := range 50 {
		for range 2 {
			a.ReadCached(strings.Repeat("-", 60<<10) + fmt.Sprint(i))
		}

		kept := 0
		for text := range a.passages.known {
			kept += len(text)
		}

		if kept > maxRetold || a.passages.weight > maxRetold {
			t.Fatalf("%d bytes of texts are kept", kept)
		}
	}

	if a.ReadCached(strings.Repeat("word ", 40_000)); len(a.passages.known) == 0 {
		t.Error("a text that is too long took the others' place")
	}
}

package discovery

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/roster-mesh/roster/directory"
)

// A text is read the same the first time, when it is remembered, and from then on;
// and however many others come between.
func TestAPassageIsReadAgainAsTheFirstTime(t *testing.T) {
	seed := maphash.MakeSeed()
	a, plain := newAnalyser(seed), newAnalyser(seed)
	for round := range 4 {
		for i := range 100 {
			text := fmt.Sprintf("The agent number %d of GitHub's translators. %s", i, strings.Repeat("It reads what it is given, and says it in other words. ", i))
			before, plainBefore := a.dropped, plain.dropped
			got, want := slices.Clone(a.reread(text)), plain.read(text)
			if !reflect.DeepEqual(got, want) || a.dropped-before != plain.dropped-plainBefore {
				t.Fatalf("round %d: got %v and %d dropped, want %v and %d", round, got, a.dropped-before, want, plain.dropped-plainBefore)
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
	a := newAnalyser(maphash.MakeSeed())
	registration := strings.Repeat("翻译文档的代理", 8) + " 1,000 Übersetzungen, and more than a few"
	from := uintptr(unsafe.Pointer(unsafe.StringData(registration)))
	for range 3 {
		a.reread(registration)
	}
	for text, p := range a.passages.known {
		for _, word := range append(slices.Clone(p.tokens), token{term: term{text: text}}) {
			if at := uintptr(unsafe.Pointer(unsafe.StringData(word.text))); at-from < uintptr(len(registration)) {
				t.Fatalf("%q is kept, and with it the registration that it is a part of", word.text)
			}
		}
	}
	if len(a.passages.known) == 0 {
		t.Error("nothing is remembered")
	}
}

// However little there is to read in long texts, only so much of them is kept.
func TestPassagesAreBounded(t *testing.T) {
	a := newAnalyser(maphash.MakeSeed())
	for i := range 50 {
		for range 2 {
			a.reread(strings.Repeat("-", 60<<10) + fmt.Sprint(i))
		}
		kept := 0
		for text := range a.passages.known {
			kept += len(text)
		}
		if kept > maxRetold || a.passages.weight > maxRetold {
			t.Fatalf("%d bytes of texts are kept", kept)
		}
	}
	if a.reread(strings.Repeat("word ", 40_000)); len(a.passages.known) == 0 {
		t.Error("a text that is too long took the others' place")
	}
}

// What it costs to read a registration that describes itself as many others do.
func BenchmarkReadFleet(b *testing.B) {
	description := strings.Repeat("A sample agent that is registered to see how much a directory carries. ", 13)
	a := newAnalyser(maphash.MakeSeed())
	var r reading
	for i := 0; b.Loop(); i++ {
		r.read(a, &directory.Projection{Name: fmt.Sprintf("agent-%08d", i), Description: description[i%4:], Capabilities: []directory.Capability{
			{Name: fmt.Sprintf("summarize-%03d", i%500), Description: "Summarizes what it is given.", Tags: []string{fmt.Sprintf("tag-%02d", i%20), "text"}},
			{Name: "translate", Tags: []string{"language"}},
		}})
	}
}

package analysis

import (
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Tokens lie within the text, words in order and side by side, none is too long,
// and a text is read the same by an analyser that has read others, and for a
// question's words by one that listens to nothing else, and by one of registrations.
func FuzzAnalyser(f *testing.F) {
	for _, s := range []string{
		"Plans the fastest route", "GitHubIssues getHTTPResponse2", "snake_case-and-hyphens",
		"the customer's questions, don't", "東京の天気 café Réserve",
		"ﬁne Straße \u0301\u0301", "a\xffb\xc3", "dying dyed skies sky", strings.Repeat("x", 200),
		"1234567890 3rd 4ever",
	} {
		f.Add(s, "plan the route of dying customers")
	}

	seed := maphash.MakeSeed()
	used := New(seed)
	all := New(seed)
	hears := New(seed)
	reader := NewIndexing(seed)
	reader.cache.cells = reader.cache.cells[:2]
	f.Fuzz(func(t *testing.T, text, query string) {
		all.known = map[string]Term{}
		dropped, readerDropped := all.Dropped, reader.Dropped
		tokens := slices.Clone(all.Read(text))

		inRegistration := slices.Clone(reader.Read(text))
		if reader.Dropped-readerDropped != all.Dropped-dropped ||
			!slices.EqualFunc(tokens, inRegistration, func(a, b Token) bool {
				a.Text, b.Text = "", ""
				return a == b
			}) {
			t.Fatalf("%q reads %v; in a registration %v", text, tokens, inRegistration)
		}

		if again := used.Read(text); !slices.Equal(tokens, again) {
			t.Fatalf("%q reads %v, and then %v", text, tokens, again)
		}

		end := 0 // of the last word
		for _, k := range tokens {
			if k.End <= k.Start || k.End > len(text) || k.End-k.Start > maxToken || k.Text == "" || k.Hash == 0 {
				t.Fatalf("%q has the token %+v", text, k)
			}

			if r, _ := utf8.DecodeRuneInString(text[k.Start:]); k.Part || unspaced(r) {
				continue // these overlap
			}

			if k.Start < end {
				t.Fatalf("%q has the word %+v before %d", text, k, end)
			}

			end = k.End
		}

		q := NewQuestion(hears, query)
		hears.Restrict(q)

		heard := hears.Read(text)
		for i, k := range tokens {
			n, asked := q.Find(&k)

			m, found := q.Find(&heard[i])
			if asked != found || n != m {
				t.Fatalf("%q in %q: %+v is %v, %v; listening it is %v, %v", query, text, k, n, asked, m, found)
			}
		}
	})
}

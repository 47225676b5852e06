package discovery

import (
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A request that is read is within its bounds, and one that isn't changes nothing.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"query":"plan a route","required_tags":["maps"],"limit":3,"constraints":{"region":["eu"],"cost":1}}`))
	f.Add([]byte(`{"query":"a","client_context":{"locale":"de"},"detail":"minimal","expand":true,"strict":false}`))
	f.Add([]byte(`{"query":"\ud800","limit":1e3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(body)
		if err != nil {
			if r != nil {
				t.Fatalf("%q is refused, and read: %v", body, err)
			}
			return
		}
		lists := [][]string{r.RequiredTags, r.PreferredTags, r.ExcludedTags, r.Protocols, r.Constraints.Regions, r.Constraints.Origins}
		if strings.TrimSpace(r.Query) == "" || len(r.Query) > MaxQuery || r.Limit < 1 || r.Limit > MaxLimit || r.Constraints.MaxAge < -1 ||
			slices.ContainsFunc(lists, func(l []string) bool { return len(l) > MaxFilterValues || slices.Contains(l, "") }) {
			t.Fatalf("%q is read as %+v", body, r)
		}
	})
}

// Tokens lie within the text, words in order and side by side, none is too long,
// and a text is read the same by an analyser that has read others, and for a
// question's words by one that listens to nothing else, and by one of registrations.
func FuzzAnalyser(f *testing.F) {
	for _, s := range []string{
		"Plans the fastest route", "GitHubIssues getHTTPResponse2", "snake_case-and-hyphens", "the customer's questions, don't", "東京の天気 café Réserve",
		"ﬁne Straße \u0301\u0301", "a\xffb\xc3", "dying dyed skies sky", strings.Repeat("x", 200), "1234567890 3rd 4ever",
	} {
		f.Add(s, "plan the route of dying customers")
	}
	seed := maphash.MakeSeed()
	used, all, hears, reader := newAnalyser(seed), newAnalyser(seed), newAnalyser(seed), newReader(seed)
	reader.heard.cells = reader.heard.cells[:2]
	f.Fuzz(func(t *testing.T, text, query string) {
		all.known = map[string]term{}
		dropped, readerDropped := all.dropped, reader.dropped
		tokens := slices.Clone(all.read(text))
		inRegistration := slices.Clone(reader.read(text))
		if reader.dropped-readerDropped != all.dropped-dropped || !slices.EqualFunc(tokens, inRegistration, func(a, b token) bool {
			a.text, b.text = "", ""
			return a == b
		}) {
			t.Fatalf("%q reads %v; in a registration %v", text, tokens, inRegistration)
		}
		if again := used.read(text); !slices.Equal(tokens, again) {
			t.Fatalf("%q reads %v, and then %v", text, tokens, again)
		}
		end := 0 // of the last word
		for _, k := range tokens {
			if k.end <= k.start || k.end > len(text) || k.end-k.start > maxToken || k.text == "" || k.hash == 0 {
				t.Fatalf("%q has the token %+v", text, k)
			}
			if r, _ := utf8.DecodeRuneInString(text[k.start:]); k.part || unspaced(r) {
				continue // these overlap
			}
			if k.start < end {
				t.Fatalf("%q has the word %+v before %d", text, k, end)
			}
			end = k.end
		}
		q := newQuestion(hears, query)
		hears.listen(q)
		heard := hears.read(text)
		for i, k := range tokens {
			n, asked := q.find(&k)
			m, found := q.find(&heard[i])
			if asked != found || n != m {
				t.Fatalf("%q in %q: %+v is %v, %v; listening it is %v, %v", query, text, k, n, asked, m, found)
			}
		}
	})
}

// A tag of ASCII has the same normal form by the short way as by the long one.
func FuzzNormalTag(f *testing.F) {
	for _, s := range []string{"", "Mountain_Huts", " a  b\t", "-a-", "__", "\x7fZ", "Café_Noir"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		tag = strings.Map(func(r rune) rune { return r & 0x7f }, tag)
		if short, long := normalASCII(tag), normalAny(tag); short != long || NormalTag(tag) != long {
			t.Fatalf("%q is %q by the short way, %q by the long one", tag, short, long)
		}
	})
}

package analysis

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"
)

// Whatever endings a word has: a question with its stem doesn't take it for one of
// others. (Only so may an analyser that listens leave it out.)
func TestNoWordIsStrangeToItsStem(t *testing.T) {
	endings := append(strings.Fields(`s es ed edly ing ingly y ies ied sses ss us eed eedly at ating ated bl iz tional enci anci abli entli ently izer
ization ational ation ator alism aliti ality alli fulness ousli ously ousness iveness iviti ivity biliti bility bli bly ogi ogy fulli fully lessli lessly li ly
ative icate icati iciti icity ical ful ness al ance ence er ic able ible ant ement ment ent ism ate iti ity ous ive ize ion e l ll ying ically 's`), "", "")
	irregular := strings.Fields("skis skies dying lying tying idly gently ugly early only singly sky news howe " +
		"atlas cosmos bias andes inning outing canning herring earring proceed exceed succeed generate " +
		"generously commune communism arsenal y yy yyy ayayay")
	letters := "aeiouyaeiouybcdfghklmnprstvwxz"
	r := rand.New(rand.NewPCG(1, 2))

	a := New(maphash.MakeSeed())
	for i := range 50_000 {
		var b strings.Builder
		if i < len(irregular) {
			b.WriteString(irregular[i])
		} else {
			for range 1 + r.IntN(5) {
				b.WriteByte(letters[r.IntN(len(letters))])
			}

			for range r.IntN(3) {
				b.WriteString(endings[r.IntN(len(endings))])
			}
		}

		text := strings.ReplaceAll(b.String(), "'", "")
		a.Restrict(nil)

		stem := a.term(text)
		if stem.Text == "" {
			continue
		}

		q := &Question{}
		q.note(stem, text)

		if upper := strings.ToUpper(text); q.excludes(text) || q.excludes(upper) {
			t.Fatalf("%q is strange to its stem %q", text, stem.Text)
		}
	}
}

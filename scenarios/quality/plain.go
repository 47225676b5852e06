package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
)

// plain is BM25F as discovery.md 2 has it and nothing else, with averages of the
// corpus for lengths: the yardstick.
type plain struct {
	records  []record
	counts   []map[string][4]float64
	lengths  [][4]float64
	averages [4]float64
	having   map[string][]int
}

var (
	plainWeights = [4]float64{3, 1.5, 1, 1}
	plainB       = [4]float64{.3, .6, .3, .6}
)

const plainK1 = 1.5

// plainStops are the stop words of the yardstick.
var plainStops = strings.Fields(`a about after all also am an and any are as at be because been before being
both but by can could did do does doing for from had has have having he her here him his how i if in into is it
its just me more most my no nor not now of off on once only or other our out over own same she should so some such
than that the their them then there these they this those through to too under until up very was we were what when
where which while who whom why will with would you your`)

func newPlain(records []record) *plain {
	p := &plain{records: records, having: map[string][]int{}}
	for i := range records {
		r := &records[i]

		counts, lengths := map[string][4]float64{}, [4]float64{}
		for f, text := range []string{r.Name, r.Description, strings.Join(r.Tags, "\n"),
			strings.Join(r.Examples, "\n")} {
			for _, w := range plainWords(text) {
				c, had := counts[w]
				if !had {
					p.having[w] = append(p.having[w], i)
				}

				c[f]++
				counts[w] = c
				lengths[f]++
			}

			p.averages[f] += lengths[f] / float64(len(records))
		}

		p.counts = append(p.counts, counts)
		p.lengths = append(p.lengths, lengths)
	}

	return p
}

func (p *plain) rank(text string, limit int) []string {
	words := plainWords(text)
	slices.Sort(words)

	scores := map[int]float64{}
	for _, w := range slices.Compact(words) {
		n, total := float64(len(p.having[w])), float64(len(p.records))

		idf := math.Log(1 + (total-n+.5)/(n+.5))
		for _, i := range p.having[w] {
			var sum float64
			for f, c := range p.counts[i][w] {
				if c > 0 {
					sum += plainWeights[f] * c / (1 - plainB[f] + plainB[f]*p.lengths[i][f]/p.averages[f])
				}
			}

			scores[i] += idf * sum / (plainK1 + sum)
		}
	}

	found := make([]int, 0, len(scores))
	for i := range scores {
		found = append(found, i)
	}

	slices.SortFunc(found, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })

	ids := make([]string, 0, limit)
	for _, i := range found[:min(limit, len(found))] {
		ids = append(ids, p.records[i].ID)
	}

	return ids
}

// plainWords splits at everything that is no letter or digit, and in camelCase.
func plainWords(text string) []string {
	var (
		words []string
		word  []rune
	)

	flush := func() {
		if len(word) > 0 {
			w := strings.ToLower(string(word))
			word = word[:0]

			if !slices.Contains(plainStops, w) {
				env := snowballstem.NewEnv(w)
				english.Stem(env)
				words = append(words, env.Current())
			}
		}
	}
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			continue
		case unicode.IsUpper(r) && len(word) > 0 && unicode.IsLower(word[len(word)-1]):
			flush()
		}

		word = append(word, r)
	}

	flush()

	return words
}

package discovery

import (
	"cmp"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on the evidence of one candidate.
const (
	maxSnippets = 16
	maxSpans    = 16
	maxMatched  = 5 // examples
)

// explain gives a candidate its evidence (xu 8).
func (t *rater) explain(c *Candidate) {
	ev := &Evidence{Weights: t.finder.cfg.Weights, Terms: []TermEvidence{}, Snippets: []Snippet{}, Flags: c.Flags.Names()}
	p := c.Entry.Projection
	var beside float64
	c.MatchedExamples = []MatchedExample{}
	clear(t.seen)
	t.reading.read(t.analyser, p, func(s *section, tokens []token) {
		if snippet, ok := t.snippet(s, tokens); ok && len(ev.Snippets) < maxSnippets {
			ev.Snippets = append(ev.Snippets, snippet)
		}
		if covers := t.cover(tokens, &beside); s.example >= 0 && covers > 0 {
			c.MatchedExamples = append(c.MatchedExamples, matchedExample(p, s.example, covers))
		}
	})
	slices.SortStableFunc(c.MatchedExamples, func(a, b MatchedExample) int { return cmp.Compare(b.Score, a.Score) })
	c.MatchedExamples = c.MatchedExamples[:min(len(c.MatchedExamples), maxMatched)]
	for i := range t.question.words {
		if e, ok := t.term(&t.question.words[i]); ok {
			ev.Terms = append(ev.Terms, e)
		}
	}
	slices.SortStableFunc(ev.Terms, func(a, b TermEvidence) int { return cmp.Compare(b.Adds, a.Adds) })
	ev.ExpandedTags = t.expanded(p)
	c.Evidence = ev
}

func matchedExample(p *directory.Projection, i int, score float64) MatchedExample {
	e := &p.Examples[i]
	id := e.ID
	if id == "" {
		id = "ex-" + itoa(i+1) // XU-041
	}
	return MatchedExample{ID: id, Score: score, Text: e.Text}
}

// term returns what a word adds to the candidate whose reading is at hand.
func (t *rater) term(w *word) (TermEvidence, bool) {
	c, ok := t.reading.counts[w.term]
	if !ok || t.question.total == 0 {
		return TermEvidence{}, false
	}
	weight, by := t.reading.weigh(c)
	unit := w.idf / ((1 + besideShare + nameShare) * t.question.total)
	e := TermEvidence{Term: w.term, Text: w.text, IDF: w.idf, Adds: unit * weight, Fields: map[string]float64{}}
	for f, share := range by {
		if share > 0 {
			e.Fields[fieldNames[f]] = unit * share
		}
	}
	return e, true
}

// snippet returns where the words of the query stand in a text.
func (t *rater) snippet(s *section, tokens []token) (Snippet, bool) {
	sn := Snippet{Pointer: s.pointer, Field: fieldNames[s.field], Derived: s.derived || s.inner, Spans: [][2]int{}}
	found := false
	for _, tok := range tokens {
		if _, ok := t.question.number[tok.term]; !ok {
			continue
		}
		found = true
		if len(sn.Spans) < maxSpans && !s.inner {
			sn.Spans = append(sn.Spans, [2]int{tok.start, tok.end})
		}
	}
	return sn, found
}

// expanded returns the tags that stand for tags that were asked for.
func (t *rater) expanded(p *directory.Projection) []ExpandedMatch {
	var ms []ExpandedMatch
	tags := tagsOf(p)
	for _, w := range t.wanted {
		for _, n := range w.narrower {
			if _, ok := slices.BinarySearch(tags, n.tag); ok {
				ms = append(ms, ExpandedMatch{Asked: w.asked, Tag: n.tag, Taxonomy: n.taxonomy})
			}
		}
	}
	return ms
}

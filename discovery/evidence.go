package discovery

import (
	"cmp"
	"slices"
	"strconv"

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
	p := c.shown()
	c.MatchedExamples = []MatchedExample{}
	t.read(c, func(s *section, tokens []token, covers float64) {
		if len(ev.Snippets) < maxSnippets {
			ev.Snippets = append(ev.Snippets, t.snippet(s, tokens))
		}
		if s.source == ofExample {
			c.MatchedExamples = append(c.MatchedExamples, matchedExample(p, s.i, covers))
		}
	})
	slices.SortStableFunc(c.MatchedExamples, func(a, b MatchedExample) int { return cmp.Compare(b.Score, a.Score) })
	c.MatchedExamples = c.MatchedExamples[:min(len(c.MatchedExamples), maxMatched)]
	for i := range t.question.words {
		if e, ok := t.term(i, 1-t.share(c)); ok {
			ev.Terms = append(ev.Terms, e)
		}
	}
	slices.SortStableFunc(ev.Terms, func(a, b TermEvidence) int { return cmp.Compare(b.Adds, a.Adds) })
	ev.ExpandedTags = t.expanded(p)
	if share := t.share(c); share > 0 {
		ev.Semantic = &SemanticEvidence{Nearness: c.near, Adds: share * c.near}
	}
	c.Evidence = ev
}

func matchedExample(p *directory.Projection, i int, score float64) MatchedExample {
	e := &p.Examples[i]
	id := e.ID
	if id == "" {
		id = "ex-" + strconv.Itoa(i+1) // XU-041
	}
	return MatchedExample{ID: id, Score: score, Text: e.Text}
}

// term returns what a word adds to the candidate that is scanned, of whose context
// words have a share.
func (t *rater) term(i int, share float64) (TermEvidence, bool) {
	w, c := &t.question.words[i], t.scan.counts[i]
	if c == (counted{}) || t.question.total == 0 {
		return TermEvidence{}, false
	}
	weight, by := t.scan.weigh(c)
	unit := share * w.idf / ((1 + besideShare + nameShare) * t.question.total)
	e := TermEvidence{Term: w.text, Text: w.said, IDF: w.idf, Adds: unit * weight, Fields: map[string]float64{}}
	for f, share := range by {
		if share > 0 {
			e.Fields[fieldNames[f]] = unit * share
		}
	}
	return e, true
}

// snippet returns where the words of the query stand in a text.
func (t *rater) snippet(s *section, tokens []token) Snippet {
	sn := Snippet{Pointer: s.pointer(), Field: fieldNames[s.field], Derived: s.derived || s.inner, Spans: [][2]int{}}
	if s.inner {
		return sn // they would be of another text
	}
	for i := range tokens {
		if _, ok := t.question.find(&tokens[i]); ok && len(sn.Spans) < maxSpans {
			sn.Spans = append(sn.Spans, [2]int{tokens[i].start, tokens[i].end})
		}
	}
	return sn
}

// expanded returns the tags that stand for tags that were asked for.
func (t *rater) expanded(p *directory.Projection) []ExpandedMatch {
	var ms []ExpandedMatch
	tags := t.analyser.tagsOf(p)
	for _, w := range t.wanted {
		for _, n := range w.narrower {
			if _, ok := slices.BinarySearch(tags, n.tag); ok {
				ms = append(ms, ExpandedMatch{Asked: w.asked, Tag: n.tag, Taxonomy: n.taxonomy})
			}
		}
	}
	return ms
}

package discovery

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
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
	t.read(c, func(s *content.Section, tokens []analysis.Token, covers float64) {
		if len(ev.Snippets) < maxSnippets {
			ev.Snippets = append(ev.Snippets, t.snippet(s, tokens))
		}
		if s.Source == content.FromExample {
			c.MatchedExamples = append(c.MatchedExamples, matchedExample(p, s.Index, covers))
		}
	})
	slices.SortStableFunc(c.MatchedExamples, func(a, b MatchedExample) int { return cmp.Compare(b.Score, a.Score) })
	c.MatchedExamples = c.MatchedExamples[:min(len(c.MatchedExamples), maxMatched)]
	for i := range t.question.Words {
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
	w, c := &t.question.Words[i], t.scan.counts[i]
	if c == (content.Counts{}) || t.question.Total == 0 {
		return TermEvidence{}, false
	}
	weight, by := t.scan.Weigh(c)
	unit := share * w.IDF / ((1 + besideShare + nameShare) * t.question.Total)
	e := TermEvidence{Term: w.Text, Text: w.Said, IDF: w.IDF, Adds: unit * weight, Fields: map[string]float64{}}
	for f, share := range by {
		if share > 0 {
			e.Fields[content.FieldNames[f]] = unit * share
		}
	}
	return e, true
}

// snippet returns where the words of the query stand in a text.
func (t *rater) snippet(s *content.Section, tokens []analysis.Token) Snippet {
	sn := Snippet{Pointer: s.Pointer(), Field: content.FieldNames[s.Field], Derived: s.Derived || s.Inner, Spans: [][2]int{}}
	if s.Inner {
		return sn // they would be of another text
	}
	for i := range tokens {
		if _, ok := t.question.Find(&tokens[i]); ok && len(sn.Spans) < maxSpans {
			sn.Spans = append(sn.Spans, [2]int{tokens[i].Start, tokens[i].End})
		}
	}
	return sn
}

// expanded returns the tags that stand for tags that were asked for.
func (t *rater) expanded(p *directory.Projection) []ExpandedMatch {
	var ms []ExpandedMatch
	tags := t.analyser.Tags(p)
	for _, w := range t.wanted {
		for _, n := range w.narrower {
			if _, ok := slices.BinarySearch(tags, n.Tag); ok {
				ms = append(ms, ExpandedMatch{Asked: w.asked, Tag: n.Tag, Taxonomy: n.Taxonomy})
			}
		}
	}
	return ms
}

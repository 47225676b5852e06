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
func (t *rater) explain(candidate *Candidate) {
	ev := &Evidence{Weights: t.finder.cfg.Weights, Terms: []TermEvidence{}, Snippets: []Snippet{},
		Flags: candidate.Flags.Names()}
	projection := candidate.shown()
	candidate.MatchedExamples = []MatchedExample{}
	t.read(candidate, func(section *content.Section, tokens []analysis.Token, covers float64) {
		if len(ev.Snippets) < maxSnippets {
			ev.Snippets = append(ev.Snippets, t.snippet(section, tokens))
		}

		if section.Source == content.FromExample {
			candidate.MatchedExamples = append(candidate.MatchedExamples,
				matchedExample(projection, section.Index, covers))
		}
	})
	slices.SortStableFunc(candidate.MatchedExamples, func(a, b MatchedExample) int {
		return cmp.Compare(b.Score, a.Score)
	})

	candidate.MatchedExamples = candidate.MatchedExamples[:min(len(candidate.MatchedExamples), maxMatched)]
	for i := range t.question.Words {
		if e, ok := t.term(i, 1-t.share(candidate)); ok {
			ev.Terms = append(ev.Terms, e)
		}
	}

	slices.SortStableFunc(ev.Terms, func(a, b TermEvidence) int { return cmp.Compare(b.Adds, a.Adds) })

	ev.ExpandedTags = t.expanded(projection)
	if share := t.share(candidate); share > 0 {
		ev.Semantic = &SemanticEvidence{Nearness: candidate.near, Adds: share * candidate.near}
	}

	candidate.Evidence = ev
}

func matchedExample(p *directory.Projection, i int, score float64) MatchedExample {
	example := &p.Examples[i]

	id := example.ID
	id = cmp.Or(id, "ex-"+strconv.Itoa(i+1)) // XU-041

	return MatchedExample{ID: id, Score: score, Text: example.Text}
}

// term returns the contribution of a word to the scanned candidate. share is the weight of
// words in the component context.
func (t *rater) term(i int, share float64) (TermEvidence, bool) {
	w, counts := &t.question.Words[i], t.scan.counts[i]
	if counts == (content.Counts{}) || t.question.Total == 0 {
		return TermEvidence{}, false
	}

	weight, by := t.scan.Weigh(counts)
	unit := share * w.IDF / ((1 + besideShare + nameShare) * t.question.Total)

	evidence := TermEvidence{Term: w.Text, Text: w.Said, IDF: w.IDF, Adds: unit * weight, Fields: map[string]float64{}}
	for f, share := range by {
		if share > 0 {
			evidence.Fields[content.FieldNames[f]] = unit * share
		}
	}

	return evidence, true
}

// snippet returns where the words of the query stand in a text.
func (t *rater) snippet(s *content.Section, tokens []analysis.Token) Snippet {
	sn := Snippet{Pointer: s.Pointer(), Field: content.FieldNames[s.Field], Derived: s.Derived ||
		s.Inner, Spans: [][2]int{}}
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

package discovery

import (
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
)

// Shares of adjacent words, and of a name that the query contains, in the component context,
// beside the weights of single words.
const (
	besideShare = .16
	nameShare   = .16
)

// Weights of a tag that matches indirectly: a kind of a preferred tag, and a tag whose words
// the query contains.
const (
	expandedShare = .7
	derivedShare  = .6
)

// besideBinding is the component protocol of a candidate that prefers a binding of
// another protocol than the requested ones.
const besideBinding = .5

// A rater rates candidates of one query. It is for one goroutine at a time.
type rater struct {
	finder   *Finder
	query    *Query
	question *analysis.Question
	now      time.Time
	analyser *content.Reader
	scan     scan
	seen     map[[2]int]bool // of question.beside
	matched  []bool          // words of one section
	wanted   []wantedTag
	dense    float64 // the share of vectors in context
}

// A wantedTag is a tag that the request prefers, or requires.
type wantedTag struct {
	asked     string // normalised
	preferred bool
	narrower  []content.Narrower
}

func (f *Finder) newRater(a *content.Reader, query *Query, qn *analysis.Question, now time.Time) *rater {
	t := &rater{finder: f, query: query, question: qn, now: now, analyser: a, seen: map[[2]int]bool{},
		matched: make([]bool, len(qn.Words))}
	want := func(tags []string, preferred bool) {
		for _, tag := range tags {
			n := content.NormalTag(tag)

			// A tag may be required and preferred at once.
			i := slices.IndexFunc(t.wanted, func(w wantedTag) bool { return w.asked == n })
			if i < 0 {
				t.wanted = append(t.wanted, wantedTag{asked: n, narrower: f.taxonomies.Expand(n)})
				i = len(t.wanted) - 1
			}

			t.wanted[i].preferred = t.wanted[i].preferred || preferred
		}
	}
	want(query.Request.RequiredTags, false)
	want(query.Request.PreferredTags, true)

	return t
}

// A scan is the occurrences of a query's words in one registration.
type scan struct {
	content.Lengths
	counts                       []content.Counts // of the question's words
	beside, name, label, example float64
}

// rate returns an entry as a candidate by its words, without evidence. indexed is the index's
// data of it. The candidate keeps projection.
func (t *rater) rate(entry *directory.Entry, projection *directory.Projection, indexed indexed) *Candidate {
	candidate := &Candidate{
		Entry: entry, projection: projection, Flags: indexed.flags, lengths: indexed.lengths,
		near: indexed.near, compared: indexed.compared,
	}
	t.read(candidate, func(s *content.Section, tokens []analysis.Token, _ float64) {
		if s.IsTag && t.says(tokens) && !slices.Contains(candidate.MatchedTags, s.Text) {
			candidate.MatchedTags = append(candidate.MatchedTags, s.Text)
		}
	})
	candidate.Components = Components{
		Tag:       1 - (1-t.tags(candidate))*(1-derivedShare*t.scan.label),
		Context:   t.context(),
		Example:   t.scan.example,
		Protocol:  protocolOf(projection, t.query.Request.Protocols),
		Freshness: freshnessOf(entry, t.now),
		Policy:    policyOf(indexed.flags),
	}
	candidate.lexical, candidate.covers = candidate.Components.Context, t.covers()
	candidate.Score = t.finder.cfg.Weights.Score(candidate.Components)

	return candidate
}

// read scans a candidate for the words of the query. visit is shown the texts
// that have some, with how much of the query they cover.
func (t *rater) read(candidate *Candidate, visit func(s *content.Section, tokens []analysis.Token, covers float64)) {
	sc := &t.scan

	// The lengths are the index's, because a restricted reading does not count all words.
	*sc = scan{Lengths: candidate.lengths, counts: append(sc.counts[:0],
		make([]content.Counts, len(t.question.Words))...)}
	clear(t.seen)
	reader := t.analyser
	reader.Restrict(t.question)

	sections := reader.Sections(candidate.shown())
	for i := range sections {
		section := &sections[i]
		tokens := reader.Read(section.Text)

		covers := t.cover(section, tokens)
		if covers == 0 {
			continue
		}

		switch section.Field {
		case content.FieldName:
			sc.name = covers
		case content.FieldLabels:
			sc.label = max(sc.label, covers)
		case content.FieldExamples:
			sc.example = max(sc.example, covers)
		}

		visit(section, tokens, covers)
	}
}

// cover counts the words of the query in one text, and those that stand side by
// side as in the query. It returns how much of the query the text says, times how
// much of the text that is.
func (t *rater) cover(section *content.Section, tokens []analysis.Token) float64 {
	question := t.question
	clear(t.matched)

	var says, hits float64

	before := -1
	for i := range tokens {
		n, ok := question.Find(&tokens[i])
		if !ok {
			before = -1
			continue
		}

		c := &t.scan.counts[n][content.FieldOf(section, i)]
		*c = min(*c+1, content.MaxCount)

		if hits++; !t.matched[n] {
			t.matched[n] = true
			says += question.Words[n].IDF
		}

		// A pair counts once, so that its repetition gains nothing.
		if pair := [2]int{before, n}; before >= 0 && question.Adjacent[pair] && !t.seen[pair] {
			t.seen[pair] = true
			t.scan.beside += min(question.Words[before].IDF, question.Words[n].IDF)
		}

		before = n
	}

	if hits == 0 {
		return 0
	}

	return says / question.Total * hits / float64(len(tokens))
}

// says reports whether the query says every word of a text, and there is one.
func (t *rater) says(tokens []analysis.Token) bool {
	for i := range tokens {
		if _, ok := t.question.Find(&tokens[i]); !ok {
			return false
		}
	}

	return len(tokens) > 0
}

// context returns the component: BM25F in proportion to its possible maximum, with the
// contributions of order and name.
func (t *rater) context() float64 {
	total := t.question.Total
	if total == 0 {
		return 0
	}

	var sum float64
	for i, c := range t.scan.counts {
		if c != (content.Counts{}) {
			weight, _ := t.scan.Weigh(c)
			sum += t.question.Words[i].IDF * weight
		}
	}

	return min(1,
		(sum+besideShare*min(t.scan.beside, total)+nameShare*t.scan.name*total)/((1+besideShare+nameShare)*total))
}

// covers returns how much of the query the words of the scanned registration are.
func (t *rater) covers() float64 {
	if t.question.Total == 0 {
		return 0
	}

	var sum float64
	for i, c := range t.scan.counts {
		if c != (content.Counts{}) {
			sum += t.question.Words[i].IDF
		}
	}

	return min(1, sum/t.question.Total)
}

// tags returns the share of the preferred tags that c has, and notes those of all
// tags asked for that it has itself.
func (t *rater) tags(candidate *Candidate) float64 {
	if len(t.wanted) == 0 {
		return 0
	}

	tags := t.analyser.Tags(candidate.projection)

	var has, preferred float64
	for _, w := range t.wanted {
		_, direct := slices.BinarySearch(tags, w.asked)

		expanded := !direct && slices.ContainsFunc(w.narrower, func(n content.Narrower) bool {
			_, ok := slices.BinarySearch(tags, n.Tag)
			return ok
		})
		if direct {
			candidate.addTag(w.asked)
		}

		if !w.preferred {
			continue
		}

		preferred++

		switch {
		case direct:
			has++
		case expanded:
			has += expandedShare
		}
	}

	if preferred == 0 {
		return 0
	}

	return has / preferred
}

// addTag adds a tag that was asked for to those that are matched, as the
// candidate writes it.
func (c *Candidate) addTag(normal string) {
	projection := c.projection
	written := normal

	find := func(tags []string) {
		for _, t := range tags {
			if content.NormalTag(t) == normal {
				written = t
				return
			}
		}
	}
	for i := range projection.Capabilities {
		find(projection.Capabilities[i].Tags)
	}

	find(projection.Tags)

	if !slices.Contains(c.MatchedTags, written) {
		c.MatchedTags = append(c.MatchedTags, written)
	}
}

// protocolOf returns the component protocol.
func protocolOf(p *directory.Projection, asked []string) float64 {
	if len(asked) == 0 || len(p.Bindings) == 0 || slices.Contains(asked, p.Bindings[0].Protocol) {
		return 1
	}

	return besideBinding
}

// flaggedPolicy is the component policy of a flagged registration.
const flaggedPolicy = .1

// policyOf returns the component policy: a tenth for a registration that is written for rankers.
func policyOf(flags content.Flags) float64 {
	if flags&content.SpamFlags != 0 {
		return flaggedPolicy
	}

	return 1
}

// shown returns the projection by which a candidate is searched.
func (c *Candidate) shown() *directory.Projection {
	if c.projection == nil {
		c.projection = c.Entry.Projection()
	}

	return c.projection
}

func freshness(entry *directory.Entry, now time.Time) Freshness {
	indexed := entry.UpdatedAt
	if entry.Received != nil {
		indexed = entry.Received.At
	}

	return Freshness{MetadataUpdatedAt: stamp(entry.UpdatedAt), IndexedAt: stamp(indexed),
		AgeSeconds: ageOf(entry, now)}
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// compare orders candidates: by score, then those that speak the caller's
// language, then by origin and rid.
func (t *rater) compare(candidate, b *Candidate) int {
	switch {
	case candidate.Score > b.Score:
		return -1
	case candidate.Score < b.Score:
		return 1
	}

	if l := t.query.Request.Locale; l != "" {
		if x, y := speaks(candidate, l), speaks(b, l); x != y {
			if x {
				return -1
			}

			return 1
		}
	}

	if c := strings.Compare(candidate.Entry.Origin.Name(), b.Entry.Origin.Name()); c != 0 {
		return c
	}

	return candidate.Entry.RID.Compare(b.Entry.RID)
}

// speaks reports whether one of c's languages has the primary subtag of a locale.
func speaks(candidate *Candidate, locale string) bool {
	primary := func(tag string) string {
		tag, _, _ = strings.Cut(strings.ReplaceAll(tag, "_", "-"), "-")
		return strings.ToLower(tag)
	}

	return slices.ContainsFunc(candidate.shown().Languages, func(l string) bool {
		return primary(l) == primary(locale)
	})
}

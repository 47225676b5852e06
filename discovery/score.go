package discovery

import (
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
)

// How much of context words that stand side by side make, and a name that the
// query says, beside what words weigh alone.
const (
	besideShare = .16
	nameShare   = .16
)

// What a tag counts that was not asked for by name: one that is a kind of a
// preferred one, and one whose words the query says.
const (
	expandedShare = .7
	derivedShare  = .6
)

// besideBinding is the component protocol of a candidate that prefers a binding of
// another protocol than those that are asked for.
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

func (f *Finder) newRater(a *content.Reader, q *Query, qn *analysis.Question, now time.Time) *rater {
	t := &rater{finder: f, query: q, question: qn, now: now, analyser: a, seen: map[[2]int]bool{}, matched: make([]bool, len(qn.Words))}
	want := func(tags []string, preferred bool) {
		for _, tag := range tags {
			n := content.NormalTag(tag)
			i := slices.IndexFunc(t.wanted, func(w wantedTag) bool { return w.asked == n })
			if i < 0 {
				t.wanted = append(t.wanted, wantedTag{asked: n, narrower: f.taxonomies.Expand(n)})
				i = len(t.wanted) - 1
			}
			t.wanted[i].preferred = t.wanted[i].preferred || preferred
		}
	}
	want(q.Request.RequiredTags, false)
	want(q.Request.PreferredTags, true)
	return t
}

// A scan is what the words of a query are in one registration.
type scan struct {
	content.Lengths
	counts                       []content.Counts // of the question's words
	beside, name, label, example float64
}

// rate returns an entry as a candidate by its words, without evidence. l is what
// the index has of it. The candidate keeps p, its projection.
func (t *rater) rate(e *directory.Entry, p *directory.Projection, l indexed) *Candidate {
	c := &Candidate{
		Entry: e, projection: p, Flags: l.flags, lengths: l.lengths,
		near: l.near, compared: l.compared,
	}
	t.read(c, func(s *content.Section, tokens []analysis.Token, _ float64) {
		if s.IsTag && t.says(tokens) && !slices.Contains(c.MatchedTags, s.Text) {
			c.MatchedTags = append(c.MatchedTags, s.Text)
		}
	})
	c.Components = Components{
		Tag:       1 - (1-t.tags(c))*(1-derivedShare*t.scan.label),
		Context:   t.context(),
		Example:   t.scan.example,
		Protocol:  protocolOf(p, t.query.Request.Protocols),
		Freshness: freshnessOf(e, t.now),
		Policy:    t.finder.policy(e, l.flags),
	}
	c.lexical, c.covers = c.Components.Context, t.covers()
	c.Score = t.finder.cfg.Weights.Score(c.Components)
	return c
}

// Read scans a candidate for the words of the query. visit is shown the texts
// that have some, with how much of the query they cover.
func (t *rater) read(c *Candidate, visit func(s *content.Section, tokens []analysis.Token, covers float64)) {
	sc := &t.scan
	*sc = scan{Lengths: c.lengths, counts: append(sc.counts[:0], make([]content.Counts, len(t.question.Words))...)}
	clear(t.seen)
	a := t.analyser
	a.Restrict(t.question)
	sections := a.Sections(c.shown())
	for i := range sections {
		s := &sections[i]
		tokens := a.Read(s.Text)
		covers := t.cover(s, tokens)
		if covers == 0 {
			continue
		}
		switch s.Field {
		case content.FieldName:
			sc.name = covers
		case content.FieldLabels:
			sc.label = max(sc.label, covers)
		case content.FieldExamples:
			sc.example = max(sc.example, covers)
		}
		visit(s, tokens, covers)
	}
}

// cover counts the words of the query in one text, and those that stand side by
// side as in the query. It returns how much of the query the text says, times how
// much of the text that is.
func (t *rater) cover(s *content.Section, tokens []analysis.Token) float64 {
	q := t.question
	clear(t.matched)
	var says, hits float64
	before := -1
	for i := range tokens {
		n, ok := q.Find(&tokens[i])
		if !ok {
			before = -1
			continue
		}
		c := &t.scan.counts[n][content.FieldOf(s, i)]
		*c = min(*c+1, content.MaxCount)
		if hits++; !t.matched[n] {
			t.matched[n] = true
			says += q.Words[n].IDF
		}
		if pair := [2]int{before, n}; before >= 0 && q.Adjacent[pair] && !t.seen[pair] {
			t.seen[pair] = true
			t.scan.beside += min(q.Words[before].IDF, q.Words[n].IDF)
		}
		before = n
	}
	if hits == 0 {
		return 0
	}
	return says / q.Total * hits / float64(len(tokens))
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

// context returns the component: BM25F in proportion to the most that it could
// be, with what order and name add.
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
	return min(1, (sum+besideShare*min(t.scan.beside, total)+nameShare*t.scan.name*total)/((1+besideShare+nameShare)*total))
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
func (t *rater) tags(c *Candidate) float64 {
	if len(t.wanted) == 0 {
		return 0
	}
	tags := t.analyser.Tags(c.projection)
	var has, preferred float64
	for _, w := range t.wanted {
		_, direct := slices.BinarySearch(tags, w.asked)
		expanded := !direct && slices.ContainsFunc(w.narrower, func(n content.Narrower) bool { _, ok := slices.BinarySearch(tags, n.Tag); return ok })
		if direct {
			c.addTag(w.asked)
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
	p := c.projection
	written := normal
	find := func(tags []string) {
		for _, t := range tags {
			if content.NormalTag(t) == normal {
				written = t
				return
			}
		}
	}
	for i := range p.Capabilities {
		find(p.Capabilities[i].Tags)
	}
	find(p.Tags)
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

// flaggedPolicy is the component policy of what is flagged.
const flaggedPolicy = .1

// policy returns the component policy: the configuration's word, a tenth for what
// is written for rankers.
func (f *Finder) policy(e *directory.Entry, flags content.Flags) float64 {
	p := min(max(f.cfg.Trust(e), 0), 1)
	if flags&content.SpamFlags != 0 {
		p *= flaggedPolicy
	}
	return p
}

// shown returns what is searched of a candidate.
func (c *Candidate) shown() *directory.Projection {
	if c.projection == nil {
		c.projection = c.Entry.Projection()
	}
	return c.projection
}

func freshness(e *directory.Entry, now time.Time) Freshness {
	indexed := e.UpdatedAt
	if e.Received != nil {
		indexed = e.Received.At
	}
	return Freshness{MetadataUpdatedAt: stamp(e.UpdatedAt), IndexedAt: stamp(indexed), AgeSeconds: ageOf(e, now)}
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// compare orders candidates: by score, then those that speak the caller's
// language, then by origin and rid.
func (t *rater) compare(a, b *Candidate) int {
	switch {
	case a.Score > b.Score:
		return -1
	case a.Score < b.Score:
		return 1
	}
	if l := t.query.Request.Locale; l != "" {
		if x, y := speaks(a, l), speaks(b, l); x != y {
			if x {
				return -1
			}
			return 1
		}
	}
	if c := strings.Compare(a.Entry.Origin.Name(), b.Entry.Origin.Name()); c != 0 {
		return c
	}
	return a.Entry.RID.Compare(b.Entry.RID)
}

// speaks reports whether one of c's languages has the primary subtag of a locale.
func speaks(c *Candidate, locale string) bool {
	primary := func(tag string) string {
		tag, _, _ = strings.Cut(strings.ReplaceAll(tag, "_", "-"), "-")
		return strings.ToLower(tag)
	}
	return slices.ContainsFunc(c.shown().Languages, func(l string) bool { return primary(l) == primary(locale) })
}

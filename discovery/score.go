package discovery

import (
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
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
	question *question
	now      time.Time
	analyser *analyser
	reading  reading
	seen     map[[2]int]bool // of question.beside
	matched  map[int]bool    // words of one section
	wanted   []wantedTag
}

// A wantedTag is a tag that the request prefers, or requires.
type wantedTag struct {
	asked     string // normalised
	preferred bool
	narrower  []narrowing
}

func (f *Finder) newRater(a *analyser, q *Query, qn *question, now time.Time) *rater {
	t := &rater{finder: f, query: q, question: qn, now: now, analyser: a, seen: map[[2]int]bool{}, matched: map[int]bool{}}
	want := func(tags []string, preferred bool) {
		for _, tag := range tags {
			n := NormalTag(tag)
			i := slices.IndexFunc(t.wanted, func(w wantedTag) bool { return w.asked == n })
			if i < 0 {
				t.wanted = append(t.wanted, wantedTag{asked: n, narrower: f.taxonomies.expand(n)})
				i = len(t.wanted) - 1
			}
			t.wanted[i].preferred = t.wanted[i].preferred || preferred
		}
	}
	want(q.Request.RequiredTags, false)
	want(q.Request.PreferredTags, true)
	return t
}

// rate returns an entry as a candidate, without evidence.
func (t *rater) rate(e *directory.Entry) *Candidate {
	c := &Candidate{Entry: e, Freshness: freshness(e, t.now)}
	var beside, name, label, example float64
	clear(t.seen)
	t.reading.read(t.analyser, e.Projection, func(s *section, tokens []token) {
		covers := t.cover(tokens, &beside)
		switch s.field {
		case fieldName:
			name = covers
		case fieldLabels:
			label = max(label, covers)
			if s.tag && t.says(tokens) && !slices.Contains(c.MatchedTags, s.text) {
				c.MatchedTags = append(c.MatchedTags, s.text)
			}
		case fieldExamples:
			example = max(example, covers)
		}
	})
	c.Flags = t.reading.flags
	c.Components = Components{
		Tag:       1 - (1-t.tags(e, c))*(1-derivedShare*label),
		Context:   t.context(beside, name),
		Example:   example,
		Protocol:  protocolOf(e.Projection, t.query.Request.Protocols),
		Freshness: freshnessOf(e, t.now),
		Policy:    t.finder.policy(e, c.Flags),
	}
	c.Score = t.finder.cfg.Weights.Score(c.Components)
	return c
}

// cover returns how much of the query the words of one text say, times how much
// of the text that is. It adds to beside what words that stand side by side as in
// the query tell.
func (t *rater) cover(tokens []token, beside *float64) float64 {
	q := t.question
	clear(t.matched)
	var says, hits float64
	before := -1
	for i := range tokens {
		n, ok := q.number[tokens[i].term]
		if !ok {
			before = -1
			continue
		}
		if hits++; !t.matched[n] {
			t.matched[n] = true
			says += q.words[n].idf
		}
		if pair := [2]int{before, n}; before >= 0 && q.beside[pair] && !t.seen[pair] {
			t.seen[pair] = true
			*beside += min(q.words[before].idf, q.words[n].idf)
		}
		before = n
	}
	if hits == 0 {
		return 0
	}
	return says / q.total * hits / float64(len(tokens))
}

// says reports whether the query says every word of a text, and there is one.
func (t *rater) says(tokens []token) bool {
	for i := range tokens {
		if _, ok := t.question.number[tokens[i].term]; !ok {
			return false
		}
	}
	return len(tokens) > 0
}

// context returns the component: BM25F in proportion to the most that it could
// be, with what order and name add.
func (t *rater) context(beside, name float64) float64 {
	var sum float64
	for i := range t.question.words {
		w := &t.question.words[i]
		if c, ok := t.reading.counts[w.term]; ok {
			weight, _ := t.reading.weigh(c)
			sum += w.idf * weight
		}
	}
	total := t.question.total
	if total == 0 {
		return 0
	}
	return min(1, (sum+besideShare*min(beside, total)+nameShare*name*total)/((1+besideShare+nameShare)*total))
}

// tags returns the share of the preferred tags that e has, and notes those of all
// tags asked for that it has itself.
func (t *rater) tags(e *directory.Entry, c *Candidate) float64 {
	if len(t.wanted) == 0 {
		return 0
	}
	tags := tagsOf(e.Projection)
	var has, preferred float64
	for _, w := range t.wanted {
		_, direct := slices.BinarySearch(tags, w.asked)
		expanded := !direct && slices.ContainsFunc(w.narrower, func(n narrowing) bool { _, ok := slices.BinarySearch(tags, n.tag); return ok })
		if direct {
			c.addTag(e.Projection, w.asked)
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
func (c *Candidate) addTag(p *directory.Projection, normal string) {
	written := normal
	find := func(tags []string) {
		for _, t := range tags {
			if NormalTag(t) == normal {
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
func (f *Finder) policy(e *directory.Entry, flags Flags) float64 {
	p := min(max(f.cfg.Trust(e), 0), 1)
	if flags&flagsOfText != 0 {
		p *= flaggedPolicy
	}
	return p
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
		if x, y := speaks(a.Entry, l), speaks(b.Entry, l); x != y {
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

// speaks reports whether one of e's languages has the primary subtag of a locale.
func speaks(e *directory.Entry, locale string) bool {
	primary := func(tag string) string {
		tag, _, _ = strings.Cut(strings.ReplaceAll(tag, "_", "-"), "-")
		return strings.ToLower(tag)
	}
	return slices.ContainsFunc(e.Projection.Languages, func(l string) bool { return primary(l) == primary(locale) })
}

package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Config is what a Finder needs. View alone has no default.
type Config struct {
	View *directory.View
	// Class names what decides who sees an entry: a Reader sees all entries of one
	// class or none. By default, its origin, owner, visibility and agent name; a
	// policy that looks at less should say so, since each class is asked for once
	// per reader.
	Class func(*directory.Entry) string
	// Generation counts what Class and each Reader's Sees answer by: the policy's
	// version. It changes after their answers do, at once; what was decided in
	// another generation decides nothing. Nil never changes.
	Generation func() uint64
	// Verification is what is known of where an entry comes from. By default, Local
	// for the view's own domain and Verified for others.
	Verification func(*directory.Entry) Verification
	// Trust is the component policy of an entry, 0 to 1. By default 1.
	Trust func(*directory.Entry) float64
	// Embedder is a source of vectors; nil ranks by words alone. It is told the text
	// of every query and of every registration, hidden ones' too.
	Embedder   Embedder
	Weights    Weights // DefaultWeights where it is zero
	Taxonomies []Taxonomy
	// sight is what is indexed of each registration.
	sight directory.Sight
	// PerOwner is how many candidates of one owner of one origin an answer has at
	// most, unless the request asks for one origin. DefaultPerOwner where it is 0.
	PerOwner int
}

// DefaultPerOwner is the default of Config.PerOwner.
const DefaultPerOwner = 3

// A Finder finds registrations by what they can do. It keeps an index of a view,
// and follows the view's changes: what is in the view when Find is called is
// searched. It is safe for concurrent use. Run must be running, or what changes
// while nobody asks piles up for the next one who does.
type Finder struct {
	cfg        Config
	taxonomies taxonomies
	seed       maphash.Seed // of the hashes of terms: nobody else knows it
	analysers  sync.Pool
	readers    readers

	feed    sync.Mutex // comes before mu
	watcher *directory.Watcher
	reader  *analyser
	batch   [feedBatch]step
	ended   context.Context // has ended: for reading without waiting

	begun atomic.Bool // as whole

	breaker breaker
	wake    chan struct{} // where texts wait for vectors

	classified uint64 // the generation in which all were classified; Run's

	parts parts

	mu    sync.RWMutex
	index *index
	full  bool // the index holds no more
	whole bool // everything that was in the view at the beginning is in the index
}

// New returns a finder of a view. It must be closed.
func New(cfg Config) (*Finder, error) {
	if cfg.Weights == (Weights{}) {
		cfg.Weights = DefaultWeights
	}
	if err := cfg.Weights.Check(); err != nil {
		return nil, err
	}
	if cfg.View == nil {
		return nil, errors.New("a finder needs a view")
	}
	own := cfg.View.Domain()
	if cfg.Class == nil {
		cfg.Class = func(e *directory.Entry) string {
			return strings.Join([]string{e.Origin.Name(), e.Owner.String(), e.Visibility.String(), e.Agent}, "\x00")
		}
	}
	if cfg.Verification == nil {
		cfg.Verification = func(e *directory.Entry) Verification {
			if e.Origin == own {
				return Local
			}
			return Verified
		}
	}
	if cfg.Trust == nil {
		cfg.Trust = func(*directory.Entry) float64 { return 1 }
	}
	if cfg.Generation == nil {
		cfg.Generation = func() uint64 { return 0 }
	}
	if cfg.PerOwner == 0 {
		cfg.PerOwner = DefaultPerOwner
	}
	seed := maphash.MakeSeed()
	f := &Finder{cfg: cfg, taxonomies: newTaxonomies(cfg.Taxonomies), seed: seed, reader: newAnalyser(seed, maxVocabulary), wake: make(chan struct{}, 1)}
	f.breaker.asking = make(chan struct{}, maxAsking)
	f.index = newIndex(&f.cfg, seed, f.wake)
	var end context.CancelFunc
	f.ended, end = context.WithCancel(context.Background())
	end()
	f.analysers.New = func() any { return newAnalyser(seed, maxStems) }
	f.watcher, f.classified = f.watch(), cfg.Generation()
	return f, nil
}

func (f *Finder) watch() *directory.Watcher {
	return f.cfg.View.Watch(directory.Query{}, nil, directory.Mark{})
}

// Close lets go of the view.
func (f *Finder) Close() {
	f.parts.close()
	f.feed.Lock()
	defer f.feed.Unlock()
	f.watcher.Close()
}

// Run follows the view until ctx ends, whose error it returns.
func (f *Finder) Run(ctx context.Context) error {
	if f.cfg.Embedder != nil {
		var embedding sync.WaitGroup
		defer embedding.Wait()
		bound, cancel := context.WithCancel(ctx)
		defer cancel()
		embedding.Go(func() { f.embedAll(bound) })
	}
	for {
		if err := f.CatchUp(ctx); err != nil {
			return err
		}
		if err := f.classify(ctx); err != nil {
			return err
		}
		if err := f.followParts(ctx); err != nil {
			return err
		}
		f.feed.Lock()
		mark := f.watcher.Mark()
		f.feed.Unlock()
		if err := f.cfg.View.Await(ctx, mark); err != nil {
			return err
		}
	}
}

// CatchUp indexes what was in the view when it was called. It returns ctx's error where that
// ends first.
func (f *Finder) CatchUp(ctx context.Context) error {
	f.feed.Lock()
	defer f.feed.Unlock()
	end := f.watcher.End()
	for f.behind(end) {
		if done := f.follow(); done {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// behind reports whether changes before a place are not indexed yet. The caller
// holds feed.
func (f *Finder) behind(end directory.Mark) bool {
	at := f.watcher.Mark()
	return at.IsZero() || at.Before(end)
}

// A query helps to index what was in the view at the beginning before it searches
// what is there: by so many reads of the view, however slow the machine is, and
// until so much time has passed.
const (
	patientReads = 8
	patience     = 50 * time.Millisecond
)

// refresh is CatchUp for a query: all changes, but for those who are still told
// what was there at the beginning.
func (f *Finder) refresh(ctx context.Context) error {
	if f.begun.Load() {
		return f.CatchUp(ctx)
	}
	if !f.feed.TryLock() {
		return nil
	}
	defer f.feed.Unlock()
	start := time.Now()
	for n := 0; n < patientReads || time.Since(start) < patience; n++ {
		if done := f.follow(); done {
			return nil
		}
	}
	return nil
}

// follow indexes the next changes and reports whether there are no more by now.
// The caller holds feed.
func (f *Finder) follow() bool {
	ctx := f.ended
	if f.watcher.Mark().IsZero() {
		ctx = context.Background() // it is told what was there, and does not wait
	}
	events, err := f.watcher.Next(ctx)
	switch {
	case errors.Is(err, directory.ErrBehind):
		f.watcher.Close()
		f.watcher = f.watch()
		f.begun.Store(false)
		return false
	case err != nil:
		return true
	}
	for len(events) > 0 {
		n := min(len(events), feedBatch)
		f.apply(events[:n])
		events = events[n:]
	}
	return false
}

// feedBatch bounds how many changes are indexed while queries wait.
const feedBatch = 16

// A step is a change that was read and is not indexed yet.
type step struct {
	event    directory.Event
	was, now contents
	had, has bool
}

// apply indexes at most feedBatch changes. The texts are read before queries have
// to wait.
func (f *Finder) apply(events []directory.Event) {
	for i := range events {
		f.prepare(&f.batch[i], &events[i])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range events {
		f.index1(&f.batch[i])
		f.batch[i].event = directory.Event{}
	}
}

func (f *Finder) prepare(s *step, e *directory.Event) {
	s.event, s.had, s.has = *e, false, false
	old, now := e.Old, e.Entry
	if e.Kind == directory.EventRemoved {
		old, now = now, nil
	}
	if old != nil && !old.Packed.IsZero() {
		s.had = true
		s.was.read(f.reader, f.cfg.sight.See(old))
	}
	if now != nil && !now.Packed.IsZero() {
		s.has = true
		s.now.read(f.reader, f.cfg.sight.See(now))
		s.now.text = f.textHash(now, s.now.flags)
	}
}

func (f *Finder) index1(s *step) {
	e := s.event.Entry
	switch {
	case s.event.Kind == directory.EventReset:
		f.index, f.whole, f.full = newIndex(&f.cfg, f.seed, f.wake), false, false
		f.readers.forget()
	case s.event.Kind == directory.EventCurrent:
		f.whole = true
		f.begun.Store(true)
	case s.has && s.had:
		f.full = !f.index.put(e, &s.was, &s.now) || f.full
	case s.has:
		f.full = !f.index.put(e, nil, &s.now) || f.full
	case s.had:
		f.index.remove(e.Origin, e.RID, &s.was)
	}
}

// A Query is a request with who makes it.
type Query struct {
	Request *Request
	Reader  Reader
	// AnyStatus lets registrations be found that are not active.
	AnyStatus bool
	// Where is one more filter, of a surface's own: it returns why an entry is left
	// out, or "". It is asked about candidates alone.
	Where func(*directory.Entry) string
}

// A Candidate is a registration that was found.
type Candidate struct {
	Entry           *directory.Entry
	Score           float64 // Weights.Score(Components)
	Components      Components
	MatchedTags     []string         // of its own, as it writes them
	MatchedExamples []MatchedExample // the best first; with evidence
	Evidence        *Evidence        // where the request asks for it
	Freshness       Freshness
	Flags           Flags

	owner      owner                 // also where Entry doesn't tell
	projection *directory.Projection // of Entry
	lengths    lengths
	lexical    float64 // what words alone make of context
	covers     float64 // how much of the query its words are
	near       float64 // the dense part, where it is compared
	compared   bool
}

// A Result answers a query.
type Result struct {
	Candidates  []Candidate               // the best first
	Applied     map[string]jsontext.Value // as applied_filters shows them (XU-055)
	Unsupported []string
	Warnings    []string
	// Excluded counts the registrations that the reader sees and each filter has
	// left out, by the filter's name, in the order in which filters are applied.
	// Those by age, verification and Where are counted among candidates alone.
	Excluded map[string]int
	More     bool // there are more candidates than the limit
	// Semantic is nil where there is no source of vectors.
	Semantic *Semantic
}

// Warnings that a result may have.
const (
	WarnPartial = "the index is being built: not everything was searched"
	WarnFull    = "the index is full: not everything was searched"
	WarnBounded = "too many candidates were left out by filters: there may be more"
)

// An UnsupportedError is the answer to a strict request that names filters that
// this release doesn't know.
type UnsupportedError struct{ Names []string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("these filters are not supported: %s", strings.Join(e.Names, ", "))
}

// Bounds on the candidates that are rated (xu 7.2).
const (
	ratedFirst = 24   // and two for each that is asked for
	ratedMost  = 2048 // where filters leave too few
)

// find answers a query among what the reader sees as f has it, and returns the sights
// by which it sees the rest.
func (f *Finder) find(ctx context.Context, q *Query) (*Result, []directory.Sight, error) {
	s, err := f.search(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	limit := q.Request.Limit
	for want := ratedFirst + 2*limit; ; want *= 4 {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		want = min(want, ratedMost)
		more := s.gather(want)
		s.choose(limit + 1) // one more, to know that there is more
		if len(s.chosen) > limit || !more {
			break
		}
		if want == ratedMost {
			s.warn(WarnBounded)
			break
		}
	}
	return s.result(), s.others, nil
}

// A search is the work on one query.
type search struct {
	finder *Finder
	query  *Query
	rater  *rater

	excluded map[string]int
	warnings []string
	others   []directory.Sight // by which the reader sees what is not searched
	rated    []*Candidate
	semantic *Semantic // nil without a source
	meant    *meant    // nil where the source is away
	// spaceMean is how near the query are, on average, those that the filters leave.
	spaceMean float64

	known  map[candidateKey]bool
	chosen []*Candidate
	turned map[*Candidate]string // why one of rated isn't chosen; for Explain alone
}

type candidateKey struct {
	origin string
	rid    directory.RID
}

// search begins the work on a query. It must be closed.
func (f *Finder) search(ctx context.Context, q *Query) (*search, error) {
	if r := q.Request; r.Strict && len(r.Constraints.Unsupported) > 0 {
		return nil, &UnsupportedError{r.Constraints.Unsupported}
	}
	if err := f.refresh(ctx); err != nil {
		return nil, err
	}
	s := &search{finder: f, query: q, known: map[candidateKey]bool{}}
	if err := s.embed(ctx); err != nil {
		return nil, err
	}
	a := f.analysers.Get().(*analyser)
	s.rater = f.newRater(a, q, newQuestion(a, q.Request.Query), time.Now())
	return s, nil
}

func (s *search) close() { s.finder.analysers.Put(s.rater.analyser) }

func (s *search) warn(text string) {
	if !slices.Contains(s.warnings, text) {
		s.warnings = append(s.warnings, text)
	}
}

// gather rates the best candidates that the index knows of, at most want, and
// reports whether there may be more.
func (s *search) gather(want int) bool {
	keys, more := s.find(want)
	for _, k := range keys {
		if s.known[k.key] {
			continue
		}
		s.known[k.key] = true
		e, ok := s.finder.cfg.View.Get(k.origin, k.key.rid)
		if !ok || e.Packed.IsZero() {
			continue // it has died since
		}
		v := s.finder.cfg.sight.See(e)
		p := v.Projection()
		if why := s.finder.late(s.query, e, p.Status, s.rater.now); why != "" {
			if why != hidden {
				s.excluded[why]++
			}
			continue
		}
		c := s.rater.rate(v, p, k)
		c.owner = ownerOf(e)
		s.rated = append(s.rated, c)
	}
	s.fuse()
	slices.SortFunc(s.rated, s.rater.compare)
	return more
}

// A FlaggedEntry is a registration whose texts are written for rankers.
type FlaggedEntry struct {
	Origin spiffeid.TrustDomain
	RID    directory.RID
	Flags  Flags
}

// Flagged lists the registrations that are flagged, for an operator: at most
// limit, by origin and rid. What is in the view when it is called is judged.
func (f *Finder) Flagged(limit int) []FlaggedEntry {
	_ = f.refresh(context.Background()) // which does not end
	f.mu.RLock()
	defer f.mu.RUnlock()
	found := make([]FlaggedEntry, 0, len(f.index.flagged))
	for n, flags := range f.index.flagged {
		s := f.index.slots.At(n)
		found = append(found, FlaggedEntry{f.index.origins[s.origin], s.rid, flags})
	}
	slices.SortFunc(found, func(a, b FlaggedEntry) int {
		return cmp.Or(strings.Compare(a.Origin.Name(), b.Origin.Name()), a.RID.Compare(b.RID))
	})
	return found[:min(limit, len(found))]
}

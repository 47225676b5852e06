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
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
)

// Config is what a Finder needs. View alone has no default.
type Config struct {
	View *index.View
	// Panics counts those on entries that can't be indexed; nil counts nothing.
	Panics *contain.Panics
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
	sight directory.Redaction
	// PerOwner is how many candidates of one owner of one origin an answer has before
	// those of others that match about as well. DefaultPerOwner where it is 0.
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
	watcher *index.Watcher
	reader  *analyser
	// shownBefore is room for what a registration was before a change.
	shownBefore directory.Projection
	batch       [feedBatch]step
	ended       context.Context // has ended: for reading without waiting

	begun atomic.Bool // as whole

	breaker breaker
	wake    chan struct{} // where texts wait for vectors

	classified uint64 // the generation in which all were classified; Run's

	parts parts

	mu    sync.RWMutex
	index *termIndex
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
	f := &Finder{cfg: cfg, taxonomies: newTaxonomies(cfg.Taxonomies), seed: seed, reader: newReader(seed), wake: make(chan struct{}, 1)}
	f.breaker.asking = make(chan struct{}, maxAsking)
	f.index = newIndex(&f.cfg, seed, f.wake)
	var end context.CancelFunc
	f.ended, end = context.WithCancel(context.Background())
	end()
	f.analysers.New = func() any { return newAnalyser(seed) }
	f.watcher, f.classified = f.watch(), cfg.Generation()
	return f, nil
}

func (f *Finder) watch() *index.Watcher {
	return f.cfg.View.Watch(index.Query{}, nil, index.ResumeToken{})
}

// Close lets go of the view.
func (f *Finder) Close() {
	f.parts.close()
	f.feed.Lock()
	defer f.feed.Unlock()
	f.watcher.Close()
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
	// Outside, unless it is nil, runs what waits for the source of vectors, so that the
	// caller may do other work meanwhile. Its error ends the query.
	Outside func(wait func()) error
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
	rater      *rater                // that rated it
	projection *directory.Projection // of Entry; nil before it is shown
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
	WarnBounded = "of the best matches most were left out by age, verification or another filter, and no more were looked at: there may be more"
	// WarnRepeated says that a result is short, though there may be more.
	WarnRepeated = "of the best matches most say nearly the same as another of their owner, and no more were looked at: there may be more"
	// WarnCollapsed says that a result is short, and that there is no more.
	WarnCollapsed = "matches that say nearly the same as another of their owner are left out; a request for one origin or one owner finds them"
	// WarnDiversified says that candidates are not in the order of their scores: some
	// stand behind those of other owners.
	WarnDiversified = "diversified"
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

// A search is the work on one query in one index.
type search struct {
	finder *Finder
	query  *Query
	rater  *rater

	excluded map[string]int
	warnings []string
	others   []directory.Redaction // by which the reader sees what is not searched
	rated    []*Candidate
	semantic *Semantic // nil without a source
	meant    *meant    // nil where the source is away
	// spaceMean is how near the query are, on average, those that the filters leave.
	spaceMean float64

	known map[candidateKey]bool
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
	if err := s.embedOutside(ctx); err != nil {
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

// gather rates the best candidates that the index knows of but for those of some
// owners, at most want, and reports whether there may be more.
func (s *search) gather(want int, without ownerSet) bool {
	keys, more := s.find(want, without)
	for _, k := range keys {
		if s.known[k.key] {
			continue
		}
		s.known[k.key] = true
		e, ok := s.finder.cfg.View.Get(k.origin, k.key.rid)
		if !ok {
			continue // it has died since
		}
		v := kinds.Redact(e, s.finder.cfg.sight)
		if v.Packed.IsZero() {
			continue
		}
		p := &s.rater.analyser.shown
		v.Unpack(p)
		if why := s.finder.late(s.query, e, p.Status, s.rater.now); why != "" {
			if why != hidden {
				s.excluded[why]++
			}
			continue
		}
		c := s.rater.rate(v, p, k)
		c.owner, c.projection, c.rater = ownerOf(e), nil, s.rater
		s.rated = append(s.rated, c)
	}
	s.fuse()
	return more
}

// A Size is how much a finder's index holds.
type Size struct {
	Registrations, Terms int
	// LeftOut counts registrations and words of registrations for which there was no
	// room: Find says so (WarnFull).
	LeftOut uint64
}

// Size returns how much the index of whole registrations holds.
func (f *Finder) Size() Size {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Size{f.index.count, f.index.terms.table.Len(), f.index.left}
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

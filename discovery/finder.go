package discovery

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
)

// A Finder finds registrations by their capabilities. It indexes a view and follows its
// changes: every query searches the view as of its call. It is safe for concurrent use. Run
// must be running; otherwise queries have to index the changes since the last one.
type Finder struct {
	cfg        Config
	taxonomies content.Taxonomies
	seed       maphash.Seed // of the hashes of terms; secret, so that collisions cannot be provoked
	analysers  sync.Pool
	readers    readers

	feed    sync.Mutex // comes before mu
	watcher *index.Watcher
	reader  *content.Reader
	// shownBefore holds a registration's projection from before a change.
	shownBefore directory.Projection
	batch       [feedBatch]step
	ended       context.Context // has ended: for reading without waiting

	begun atomic.Bool // as whole

	breaker breaker
	wake    chan struct{} // where texts wait for vectors

	classified uint64 // the generation in which all were classified; Run's

	parts redactedFinders

	mu    sync.RWMutex
	index *termIndex
	whole bool // everything that was in the view at the beginning is in the index
}

// New returns a finder of a view. The caller closes it.
func New(cfg Config) (*Finder, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}

	seed := maphash.MakeSeed()
	finder := &Finder{cfg: cfg, taxonomies: content.NewTaxonomies(cfg.Taxonomies), seed: seed,
		reader: content.NewReader(analysis.NewIndexing(seed)), wake: make(chan struct{}, 1)}
	finder.breaker.asking = make(chan struct{}, maxAsking)
	finder.index = newIndex(&finder.cfg, seed, finder.wake)

	var end context.CancelFunc
	finder.ended, end = context.WithCancel(context.Background())
	end()
	finder.analysers.New = func() any { return content.NewReader(analysis.New(seed)) }
	finder.watcher, finder.classified = finder.watch(), cfg.Generation()

	return finder, nil
}

// read calls look with the index, which doesn't change meanwhile, and whether that has everything
// that was in the view at the beginning.
func (f *Finder) read(look func(terms *termIndex, whole bool)) {
	f.mu.RLock()
	defer f.mu.RUnlock()

	look(f.index, f.whole)
}

func (f *Finder) watch() *index.Watcher {
	return f.cfg.View.Watch(index.Query{}, nil, index.ResumeToken{})
}

// Close ends the watch of the view.
func (f *Finder) Close() {
	f.parts.close()
	f.feed.Lock()
	defer f.feed.Unlock()
	f.watcher.Close()
}

// A Size is the size of a finder's index.
type Size struct {
	Registrations, Terms int
	// LeftOut counts registrations and words of registrations for which there was no
	// room: Find says so (WarnFull).
	LeftOut uint64
}

// Size returns the size of the index of unredacted registrations.
func (f *Finder) Size() Size {
	f.mu.RLock()
	defer f.mu.RUnlock()

	return Size{f.index.count, f.index.terms.Len(), f.index.left}
}

// A FlaggedEntry is a registration flagged as search spam.
type FlaggedEntry struct {
	Origin spiffeid.TrustDomain
	RID    directory.RID
	Flags  content.Flags
}

// Flagged lists at most limit flagged registrations of the present view, for an operator, by
// origin and rid.
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

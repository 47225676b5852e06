package federation

import (
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An originSet holds the domains that there is a peering with or anything on disk of.
type originSet struct {
	mu       sync.Mutex // guards what follows
	byDomain map[spiffeid.TrustDomain]*origin
	moved    chan struct{} // closed when a position moves, or a key document is replaced
}

func newOriginSet() *originSet {
	return &originSet{byDomain: map[spiffeid.TrustDomain]*origin{}, moved: make(chan struct{})}
}

// get returns the origin of a domain, or nil.
func (s *originSet) get(td spiffeid.TrustDomain) *origin {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.byDomain[td]
}

// all returns the origins by name.
func (s *originSet) all() []*origin {
	s.mu.Lock()
	defer s.mu.Unlock()

	all := make([]*origin, 0, len(s.byDomain))
	for _, o := range s.byDomain {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *origin) int { return strings.Compare(a.domain.Name(), b.domain.Name()) })

	return all
}

func (s *originSet) add(o *origin) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.byDomain[o.domain] = o
}

func (s *originSet) remove(td spiffeid.TrustDomain) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.byDomain, td)
}

// changed returns a channel that is closed when any position moves on, or a key document
// is replaced.
func (s *originSet) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.moved
}

// notify wakes those who wait for changed.
func (s *originSet) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()

	close(s.moved)
	s.moved = make(chan struct{})
}

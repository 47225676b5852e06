package replica

import (
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Set holds the domains that have a peering with this one, or data on this disk.
type Set struct {
	mu       sync.Mutex // guards the fields below
	byDomain map[spiffeid.TrustDomain]*Origin
	moved    chan struct{} // closed when a position moves, or a key document is replaced
}

func NewSet() *Set {
	return &Set{byDomain: map[spiffeid.TrustDomain]*Origin{}, moved: make(chan struct{})}
}

// Get returns the origin of a domain, or nil.
func (s *Set) Get(td spiffeid.TrustDomain) *Origin {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.byDomain[td]
}

// All returns the origins by name.
func (s *Set) All() []*Origin {
	s.mu.Lock()
	defer s.mu.Unlock()

	all := make([]*Origin, 0, len(s.byDomain))
	for _, o := range s.byDomain {
		all = append(all, o)
	}

	slices.SortFunc(all, func(a, b *Origin) int { return strings.Compare(a.Domain.Name(), b.Domain.Name()) })

	return all
}

func (s *Set) Add(origin *Origin) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.byDomain[origin.Domain] = origin
}

func (s *Set) Remove(td spiffeid.TrustDomain) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.byDomain, td)
}

// Changed returns a channel that is closed when any position moves on, or a key document
// is replaced.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.moved
}

// Notify wakes all that wait for Changed.
func (s *Set) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()

	close(s.moved)
	s.moved = make(chan struct{})
}

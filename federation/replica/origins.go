package replica

import (
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Set holds the domains that have a peering with this one, or data on this disk.
type Set struct {
	byDomain sync.Map // *Origin by spiffeid.TrustDomain: each message looks its origin up

	mu    sync.Mutex    // guards the field below
	moved chan struct{} // closed when a position moves, or a key document is replaced
}

func NewSet() *Set { return &Set{moved: make(chan struct{})} }

// Get returns the origin of a domain, or nil.
func (s *Set) Get(td spiffeid.TrustDomain) *Origin {
	found, _ := s.byDomain.Load(td)
	origin, _ := found.(*Origin)

	return origin
}

// All returns the origins by name.
func (s *Set) All() (all []*Origin) {
	for _, origin := range s.byDomain.Range {
		all = append(all, origin.(*Origin))
	}

	slices.SortFunc(all, func(a, b *Origin) int { return strings.Compare(a.Domain.Name(), b.Domain.Name()) })

	return all
}

func (s *Set) Add(origin *Origin) { s.byDomain.Store(origin.Domain, origin) }

func (s *Set) Remove(td spiffeid.TrustDomain) { s.byDomain.Delete(td) }

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

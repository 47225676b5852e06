package api

import "sync"

// shares counts what callers hold of what a node has for so many at a time: no caller
// has all of it.
type shares struct {
	most, each int // of all, and of one caller

	mu  sync.Mutex // guards what follows
	all int
	by  map[string]int // by caller
}

func newShares(most, each int) shares { return shares{most: most, each: each, by: map[string]int{}} }

// enter counts one more of a caller until leave is called. leave is nil where there is
// none: the caller has its share, or else all is taken.
func (s *shares) enter(caller string) (leave func(), hasShare bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[caller] >= s.each || s.all >= s.most {
		return nil, s.by[caller] >= s.each
	}
	s.all++
	s.by[caller]++
	return func() { s.leave(caller) }, false
}

func (s *shares) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.by[caller]--; s.by[caller] == 0 {
		delete(s.by, caller)
	}
}

// held is how much all callers hold.
func (s *shares) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

package admission

import "sync"

// Shares bounds how many of something a node has at a time, in total and for each
// caller, so that no caller takes all of them. It is safe for concurrent use.
type Shares struct {
	total, each int

	mu   sync.Mutex // guards the fields below
	held int
	by   map[string]int // by caller
}

// NewShares returns shares of which none is held. A caller holds at most each of them.
func NewShares(total, each int) *Shares {
	return &Shares{total: total, each: each, by: map[string]int{}}
}

// Total returns the bound for all callers.
func (s *Shares) Total() int { return s.total }

// Each returns the bound for one caller.
func (s *Shares) Each() int { return s.each }

// Enter takes one for a caller until leave is called. If none is to be had, leave is
// nil, and hasShare tells whether the caller holds all that it may.
func (s *Shares) Enter(caller string) (leave func(), hasShare bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.by[caller] >= s.each || s.held >= s.total {
		return nil, s.by[caller] >= s.each
	}

	s.held++
	s.by[caller]++

	return func() { s.leave(caller) }, false
}

func (s *Shares) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.held--
	if s.by[caller]--; s.by[caller] == 0 {
		delete(s.by, caller)
	}
}

// Held returns how many all callers hold.
func (s *Shares) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.held
}

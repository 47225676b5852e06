package api

import (
	"context"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// How many streams of events there are at once, where Config says nothing.
const (
	DefaultMaxWatches     = 1000 // at a node
	DefaultMaxWatchesEach = 32   // of one identity, or of one address without one
)

// watches counts the streams of a node.
type watches struct {
	most, each int

	stopping context.Context // ends when the streams are to
	stop     context.CancelFunc

	mu  sync.Mutex // guards what follows
	all int
	by  map[string]int // by caller
}

func newWatches(most, each int) *watches {
	if most <= 0 {
		most = DefaultMaxWatches
	}
	if each <= 0 {
		each = DefaultMaxWatchesEach
	}
	w := &watches{most: most, each: each, by: map[string]int{}}
	w.stopping, w.stop = context.WithCancel(context.Background())
	return w
}

// enter counts one more stream of a caller until leave is called, or refuses it.
func (w *watches) enter(caller string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopping.Err() != nil:
		return nil, directory.Refuse(directory.Unavailable, "This node stops. Watch at another one.")
	case w.by[caller] >= w.each:
		return nil, directory.Refuse(directory.RateLimited, "You watch %d times already, as often as one caller may here. End another watch first.", w.each)
	case w.all >= w.most:
		return nil, directory.Refuse(directory.Unavailable, "This node is watched %d times, as often as it can be. Watch at another one.", w.most)
	}
	w.all++
	w.by[caller]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all--
		if w.by[caller]--; w.by[caller] == 0 {
			delete(w.by, caller)
		}
	}, nil
}

// Watches returns how many clients watch the directory at this node.
func (s *Server) Watches() int {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return s.watches.all
}

// Drain ends the streams of events, each with its reason: a node that stops calls
// it first, since they would go on for ever.
func (s *Server) Drain() { s.watches.stop() }

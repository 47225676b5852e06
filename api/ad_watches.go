package api

import (
	"context"

	"github.com/roster-mesh/roster/directory"
)

// How many streams of events there are at once, where Config says nothing.
const (
	DefaultMaxWatches     = 1000 // at a node
	DefaultMaxWatchesEach = 32   // of one identity, or of one address without one
)

// watches counts the streams of a node.
type watches struct {
	shares

	stopping context.Context // ends when the streams are to
	stop     context.CancelFunc
}

func newWatches(most, each int) *watches {
	if most <= 0 {
		most = DefaultMaxWatches
	}
	if each <= 0 {
		each = DefaultMaxWatchesEach
	}
	w := &watches{shares: newShares(most, each)}
	w.stopping, w.stop = context.WithCancel(context.Background())
	return w
}

// enter counts one more stream of a caller until leave is called, or refuses it.
func (w *watches) enter(caller string) (leave func(), err error) {
	if w.stopping.Err() != nil {
		return nil, directory.Refuse(directory.Unavailable, "This node stops. Watch at another one.")
	}
	leave, hasShare := w.shares.enter(caller)
	switch {
	case leave != nil:
		return leave, nil
	case hasShare:
		return nil, directory.Refuse(directory.RateLimited, "You watch %d times already, as often as one caller may here. End another watch first.", w.each)
	}
	return nil, directory.Refuse(directory.Unavailable, "This node is watched %d times, as often as it can be. Watch at another one.", w.most)
}

// Watches returns how many clients watch the directory at this node.
func (s *Server) Watches() int { return s.watches.held() }

// Drain ends the streams of events, each with its reason: a node that stops calls
// it first, since they would go on for ever.
func (s *Server) Drain() { s.watches.stop() }

package replica

import (
	"sync"

	"github.com/roster-mesh/roster/federation/store"
)

// A guard is a mutex that publishes the guarded fields when it is unlocked, for readers
// that take no lock.
type guard struct {
	sync.Mutex
	publish func() // is called while the mutex is held
}

// Unlock publishes and unlocks.
func (g *guard) Unlock() {
	g.publish()
	g.Mutex.Unlock()
}

// A changeLock is a mutex that is not waited for while the disk does not answer.
type changeLock struct{ held chan struct{} }

func newChangeLock() changeLock { return changeLock{held: make(chan struct{}, 1)} }

// Lock returns store.ErrStalled, and does not lock, if the disk stalls meanwhile.
func (l changeLock) Lock(s *store.Store) error { return s.Disk.Acquire(l.held) }

func (l changeLock) Unlock() { <-l.held }

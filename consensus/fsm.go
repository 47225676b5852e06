package consensus

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory"
)

// machine is the Raft library's view of the store.
type machine struct{ *Store }

// Apply applies one log entry and returns []result, or the error that ended
// this member's applying.
func (m machine) Apply(entry *raft.Log) any {
	err := m.disk.Ahead.Wait(entry.Index)
	var results []result
	if err == nil {
		results, err = m.applyEntry(entry)
	}
	m.growth.grow(len(entry.Data))
	if err != nil {
		m.fail(fmt.Errorf("log entry %d: %w", entry.Index, err))
		return err
	}
	m.batches.applied(entry, results)
	return results
}

// Snapshot takes what a snapshot consists of; the library writes it while
// changes go on.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.failure(); err != nil {
		return nil, err
	}
	m.shorten()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.growth.bytes.Store(0)
	return m.state.snapshot(), nil
}

// Restore puts a snapshot in the place of the state.
func (m machine) Restore(r io.ReadCloser) error {
	if err := m.failure(); err != nil {
		return errors.Join(err, r.Close())
	}

	var header snapshotHeader
	state, err := readSnapshot(r, m.cfg.Domain, m.cfg.Index, &header)
	if err == nil && header.Version > m.cfg.reads.Snapshot {
		err = newerSnapshot(header.Version, m.cfg.reads.Snapshot)
	}
	if err == nil {
		err = m.cfg.reads.lacks(state.written)
	}
	if err == nil {
		err = m.cfg.reads.lacksStatement(state)
	}
	if err := errors.Join(err, r.Close()); err != nil {
		err = fmt.Errorf("restore a snapshot: %w", err)
		m.unread.Store(&err)
		if errors.Is(err, errNewer) {
			m.fail(err) // its leader would send it again and again, or Raft take an older one
		}
		return err
	}
	state.fillIndex() // before the lock is held: nothing is applied meanwhile, and 10^6 take seconds
	m.growth.bytes.Store(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
	m.promulgate()
	m.moved()
	m.agree()
	return nil
}

func (s *Store) applyEntry(entry *raft.Log) ([]result, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	b, err := decodeBatch(entry.Data)
	if err == nil && b.Version > s.cfg.reads.Log {
		err = newerLog(b.Version, s.cfg.reads.Log)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results, err := s.state.apply(b, func() {
		s.promulgate()
		s.moved()
		s.mu.Unlock() // who waits is let in before the next line gets through
		s.mu.Lock()
	})
	s.promulgate()
	if err == nil {
		s.reads.raise(entry.Index)
	}
	s.moved()
	if !b.ofRegistrations() {
		s.agree()
		if err == nil {
			err = s.cfg.reads.lacks(s.state.written)
		}
	}
	return results, err
}

// A glimpse is what every read asks of a state.
type glimpse struct {
	position directory.Position
	sealed   bool
	written  Numbers // its Formats are never modified
}

// moved tells everyone who waits that the state has changed, and the index's
// clock what time the log has reached (rule T4). The caller holds mu.
func (s *Store) moved() {
	s.cfg.Index.Clock.Advance(time.UnixMilli(s.state.now))
	s.shown.Store(&glimpse{s.state.position(), s.state.sealed != "", s.state.written})
	close(s.changed)
	s.changed = make(chan struct{})
}

// agree tells everyone who waits for more than registrations. The caller holds mu.
func (s *Store) agree() {
	close(s.agreed)
	s.agreed = make(chan struct{})
}

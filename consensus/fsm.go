package consensus

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// machine is the Raft library's view of the store.
type machine struct{ *Store }

// Apply applies one log entry and returns []result, or the error that ended
// this member's applying.
func (m machine) Apply(entry *raft.Log) any {
	err := m.disk.Ahead.Wait(entry.Index)
	var results []state.Result
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
	return fsmSnapshot{m.state.Snapshot()}, nil
}

// Restore replaces the state by a snapshot.
func (m machine) Restore(r io.ReadCloser) error {
	if err := m.failure(); err != nil {
		return errors.Join(err, r.Close())
	}

	next, err := m.readSnapshot(r)
	if err := errors.Join(err, r.Close()); err != nil {
		err = fmt.Errorf("restore a snapshot: %w", err)
		m.unread.Store(&err)
		if errors.Is(err, state.ErrNewer) {
			m.fail(err) // its leader would send it again and again, or Raft take an older one
		}

		return err
	}

	// Filling the index of 10^6 registrations takes seconds. Nothing is applied meanwhile,
	// so the lock is not needed yet.
	next.Registrations().FillIndex()
	m.growth.bytes.Store(0)

	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = next
	m.promulgate()
	m.moved()
	m.agree()

	return nil
}

// readSnapshot reads a snapshot that this release can go on with.
func (m machine) readSnapshot(r io.Reader) (*state.State, error) {
	next, header, err := state.Read(r, m.cfg.Domain, m.cfg.Index, processors())
	if err != nil {
		return nil, err
	}

	reads := m.cfg.reads
	if header.Version > reads.Snapshot {
		return nil, state.NewerSnapshot(header.Version, reads.Snapshot)
	}
	if err := reads.Lacks(next.Members().Written()); err != nil {
		return nil, err
	}

	return next, next.Registrations().CheckStatements(reads)
}

func (s *Store) applyEntry(entry *raft.Log) ([]state.Result, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	b, err := state.DecodeBatch(entry.Data)
	if err == nil && b.Version > s.cfg.reads.Log {
		err = state.NewerLog(b.Version, s.cfg.reads.Log)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results, err := s.state.Apply(b, func() {
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
	if !b.OnlyRegistrations() {
		s.agree()
		if err == nil {
			err = s.cfg.reads.Lacks(s.state.Members().Written())
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
	s.cfg.Index.Clock.Advance(time.UnixMilli(s.state.History().Now()))
	s.shown.Store(&glimpse{s.state.History().Position(), s.state.History().Sealed() != "", s.state.Members().Written()})
	close(s.changed)
	s.changed = make(chan struct{})
}

// agree tells everyone who waits for more than registrations. The caller holds mu.
func (s *Store) agree() {
	close(s.agreed)
	s.agreed = make(chan struct{})
}

// promulgate tells of the law where another is in force. The caller holds mu, so
// that nobody sees the state after it with the policy before.
func (s *Store) promulgate() {
	text, version := s.state.Policy().Policy()
	if s.cfg.Policy != nil && s.told != version {
		s.told = version
		s.cfg.Policy(text, version)
	}
}

// fsmSnapshot lets the Raft library write a snapshot.
type fsmSnapshot struct{ snapshot *state.Snapshot }

// Persist implements raft.FSMSnapshot.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	w := bufio.NewWriterSize(sink, 1<<16)
	err := s.snapshot.Write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write a snapshot: %w", err), sink.Cancel())
	}

	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (fsmSnapshot) Release() {}

// processors lets a snapshot be decoded on all processors.
func processors() state.Parallel {
	return state.Parallel{Run: func(task func()) { go task() }, Ahead: 2 * runtime.GOMAXPROCS(0)}
}

// policyVersion returns the version of the policy in force.
func policyVersion(s *state.State) uint64 {
	_, version := s.Policy().Policy()

	return version
}

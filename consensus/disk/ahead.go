package disk

import (
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// An AheadLog lets a leader send an entry while its own disk writes it (ADR 0020). It
// counts as committed only once the leader's disk has it: apply waits (Wait), and other
// members get no higher commit index (Withhold). Only commands are written ahead, and
// only by a leader. A former leader writes its queued entries before any of its
// successor's.
type AheadLog struct {
	raft.LogStore
	leads func() bool

	mu      sync.Mutex
	turned  *sync.Cond  // of the fields below, for all but the writer
	work    *sync.Cond  // of the same, for the writer, which has no part in a follower's writes
	queue   []*raft.Log // to be written
	writing []*raft.Log // being written now
	durable uint64      // the last entry that the disk has
	err     error       // of an entry that could not be written ahead
	closed  bool
	writer  sync.WaitGroup
}

var errLogClosed = errors.New("the log is closed")

func newAheadLog(store raft.LogStore, leads func() bool) (*AheadLog, error) {
	last, err := store.LastIndex()
	if err != nil {
		return nil, err
	}

	log := &AheadLog{LogStore: store, leads: leads, durable: last}
	log.turned, log.work = sync.NewCond(&log.mu), sync.NewCond(&log.mu)
	log.writer.Go(log.run)

	return log, nil
}

// IsMonotonic reports to Raft that the log has no gaps, as raft-wal demands.
func (a *AheadLog) IsMonotonic() bool { return true }

// StoreLog is StoreLogs of one.
func (a *AheadLog) StoreLog(entry *raft.Log) error { return a.StoreLogs([]*raft.Log{entry}) }

// StoreLogs returns when the disk has the entries, or on a leader at once.
func (a *AheadLog) StoreLogs(entries []*raft.Log) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.err == nil && a.leads() && !slices.ContainsFunc(entries, func(e *raft.Log) bool {
		return e.Type != raft.LogCommand
	}) {
		a.queue = append(a.queue, entries...)
		a.work.Signal()

		return nil
	}

	if err := a.settle(); err != nil {
		return err
	}

	return a.write(entries)
}

// settle waits until nothing is to be written. The caller holds mu.
func (a *AheadLog) settle() error {
	for a.err == nil && (len(a.queue) > 0 || a.writing != nil) {
		a.turned.Wait()
	}

	return a.err
}

// idle calls do while nothing is written.
func (a *AheadLog) idle(do func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	if err := a.settle(); err != nil {
		return err
	}

	return do()
}

// write writes entries. The caller holds mu, and does not meanwhile.
func (a *AheadLog) write(entries []*raft.Log) error {
	a.writing = entries
	a.mu.Unlock()
	err := a.LogStore.StoreLogs(entries)
	a.mu.Lock()

	a.writing = nil
	if err == nil {
		a.durable = entries[len(entries)-1].Index
	}

	a.turned.Broadcast()

	return err
}

// run writes all queued entries at once.
func (a *AheadLog) run() {
	a.mu.Lock()
	defer a.mu.Unlock()

	for {
		switch {
		case a.err == nil && len(a.queue) > 0 && a.writing == nil:
			entries := a.queue

			a.queue = nil
			if err := a.write(entries); err != nil {
				a.err = err
				a.turned.Broadcast()
			}
		case a.closed:
			return
		default:
			a.work.Wait()
		}
	}
}

// DeleteRange deletes old entries, or a tail that the leader does not have.
func (a *AheadLog) DeleteRange(from, to uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	// Entries that wait would be written behind the deletion.
	if to >= a.durable {
		if err := a.settle(); err != nil {
			return err
		}

		// Otherwise it has been written meanwhile.
		if to >= a.durable {
			a.durable = min(a.durable, from-1)
		}
	}

	return a.LogStore.DeleteRange(from, to)
}

// GetLog reads an entry, whether or not the disk has it yet.
func (a *AheadLog) GetLog(index uint64, entry *raft.Log) error {
	a.mu.Lock()
	for _, part := range [][]*raft.Log{a.writing, a.queue} {
		for _, e := range part {
			if e.Index == index {
				*entry = *e
				a.mu.Unlock()

				return nil
			}
		}
	}

	a.mu.Unlock()

	return a.LogStore.GetLog(index, entry)
}

// LastIndex is that of the last entry, whether or not the disk has it yet.
func (a *AheadLog) LastIndex() (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	// The queue lies behind the entries that are being written.
	for _, part := range [][]*raft.Log{a.queue, a.writing} {
		if len(part) > 0 {
			return part[len(part)-1].Index, nil
		}
	}

	return a.LogStore.LastIndex()
}

// Wait returns nil once the disk has the entry of that index.
func (a *AheadLog) Wait(index uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	for a.durable < index && a.err == nil && !a.closed {
		a.turned.Wait()
	}

	switch {
	case a.durable >= index:
		return nil
	case a.err != nil:
		return a.err
	}

	return errLogClosed
}

// Durable is the last entry that the disk has.
func (a *AheadLog) Durable() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.durable
}

// Withhold returns the message that other members may get: with a commit index no higher
// than the last entry on this disk.
func (a *AheadLog) Withhold(word *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	a.mu.Lock()
	defer a.mu.Unlock()

	if word.LeaderCommitIndex <= a.durable {
		return word
	}

	less := *word
	less.LeaderCommitIndex = a.durable

	return &less
}

// close returns once all queued entries are written.
func (a *AheadLog) close() {
	a.mu.Lock()
	a.closed = true
	a.turned.Broadcast()
	a.work.Signal()
	a.mu.Unlock()
	a.writer.Wait()
}

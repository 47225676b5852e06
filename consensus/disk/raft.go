package disk

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// ForRaft returns the log and the votes for Raft, which panics if it can't save a term or read an
// entry. Once it runs, such an error ends the goroutine of Raft that has met it instead: the member
// has failed by then, and its process ends in an orderly way.
func (d *Disk) ForRaft() (raft.LogStore, raft.StableStore, *Running) {
	running := &Running{}

	return haltingLog{d.recent, d.failed, d.leads, running}, haltingVotes{d.Votes, running}, running
}

// Running says whether Raft has started. Until then its panics are its starter's ([Guard]).
type Running struct{ begun atomic.Bool }

// Begin says that Raft has started.
func (r *Running) Begin() { r.begun.Store(true) }

// halt ends the calling goroutine, of Raft, if Raft runs and err is one.
func (r *Running) halt(err error) error {
	if err != nil && r.begun.Load() {
		runtime.Goexit()
	}

	return err
}

type haltingLog struct {
	*recentLog
	failed  func(error)
	leads   func() bool
	running *Running
}

// StoreLog implements raft.LogStore.
func (h haltingLog) StoreLog(entry *raft.Log) error { return h.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. A leader goes on, because it answers those that wait for the
// entries.
func (h haltingLog) StoreLogs(entries []*raft.Log) error {
	err := h.recentLog.StoreLogs(entries)
	if err != nil && h.leads() {
		return err
	}

	return h.running.halt(err)
}

// GetLog implements raft.LogStore. That there is no such entry is an answer.
func (h haltingLog) GetLog(index uint64, entry *raft.Log) error {
	err := h.recentLog.GetLog(index, entry)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}

	h.failed(err)

	return h.running.halt(err)
}

type haltingVotes struct {
	raft.StableStore
	running *Running
}

// Set implements raft.StableStore.
func (h haltingVotes) Set(key, value []byte) error {
	return h.running.halt(h.StableStore.Set(key, value))
}

// SetUint64 implements raft.StableStore.
func (h haltingVotes) SetUint64(key []byte, value uint64) error {
	return h.running.halt(h.StableStore.SetUint64(key, value))
}

package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/durable"
)

// Epochs are the logs of a domain on disk: that of the epoch at hand, and those of former
// epochs, which have ended. The zero epoch has none.
type Epochs struct {
	dir string

	syncing sync.Mutex // one Sync at a time

	mu    sync.Mutex
	epoch uint64 // at hand
	logs  map[uint64]*Log
	ends  map[uint64]Tree
	begun []begun // that Sync has not written yet
}

// A begun epoch is one that follows another one.
type begun struct {
	former uint64
	log    *Log // of the former epoch; nil if it is not here
	start  *Start
}

// end returns the last tree of the former epoch.
func (b *begun) end() Tree { return Tree{Size: b.start.Size, Root: b.start.Root} }

// OpenEpochs opens the logs in a directory.
func OpenEpochs(dir string) *Epochs {
	return &Epochs{dir: dir, logs: map[uint64]*Log{}, ends: map[uint64]Tree{}}
}

// Close closes all logs.
func (e *Epochs) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()

	var errs []error
	for _, l := range e.logs {
		errs = append(errs, l.Close())
	}

	e.logs = nil

	return errors.Join(errs...)
}

// Log returns the log of an epoch, and the tree with which it ended: none for the epoch at hand.
func (e *Epochs) Log(epoch uint64) (log *Log, end *Tree, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if epoch == e.epoch && epoch != 0 {
		log, err = e.open(epoch)
		return log, nil, err
	}

	tree, ended := e.ends[epoch]
	if !ended {
		if tree, err = e.readEnd(epoch); err != nil {
			return nil, nil, err
		}
	}

	if log, err = e.open(epoch); err != nil {
		return nil, nil, err
	}

	if !ended {
		if err = log.Reset(tree); err != nil {
			return nil, nil, err
		}

		e.ends[epoch] = tree
	}

	return log, &tree, nil
}

// Lacking returns the epochs whose logs lack entries, the newest first: the present one, and those that ended and
// were asked for.
func (e *Epochs) Lacking(present uint64) (epochs []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for epoch, log := range e.logs {
		// Without its last tree, the entries of a log can't be judged.
		_, ended := e.ends[epoch]
		if _, missing := log.Missing(); missing && (ended || epoch == present) {
			epochs = append(epochs, epoch)
		}
	}

	slices.SortFunc(epochs, func(a, b uint64) int { return cmp.Compare(b, a) })

	return epochs
}

func (e *Epochs) open(epoch uint64) (*Log, error) {
	if log := e.logs[epoch]; log != nil {
		return log, nil
	}

	if e.logs == nil {
		return nil, ErrIncomplete // closed
	}

	log, err := Open(e.path(epoch))
	if err == nil {
		e.logs[epoch] = log
	}

	return log, err
}

func (e *Epochs) path(epoch uint64) string {
	return filepath.Join(e.dir, strconv.FormatUint(epoch, 10))
}

// Reset goes on with the epoch at hand and the owner's tree, as Log.Reset does.
func (e *Epochs) Reset(epoch uint64, tree Tree) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.epoch = epoch
	if epoch == 0 {
		return nil
	}

	log, err := e.open(epoch)
	if err != nil {
		return err
	}

	return log.Reset(tree)
}

// Begin ends the log of the epoch at hand with its last tree, and begins one of a new epoch. Sync makes both survive a
// loss of power.
func (e *Epochs) Begin(start *Start) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	next := begun{former: e.epoch, log: e.logs[e.epoch], start: start}
	if next.log != nil {
		e.ends[next.former] = next.end()
	}

	e.begun = append(e.begun, next)
	e.epoch = start.Epoch

	log, err := e.open(start.Epoch)
	if err != nil {
		return err
	}

	return log.Reset(Tree{})
}

// End makes the log of a former epoch known, of which this node has not seen the end. Its entries are Lacking.
func (e *Epochs) End(epoch uint64, last Tree) error {
	if _, _, err := e.Log(epoch); err == nil {
		return nil
	}

	err := os.MkdirAll(e.path(epoch), 0o700)
	if err == nil {
		err = e.writeEnd(epoch, last)
	}

	if err == nil {
		_, _, err = e.Log(epoch)
	}

	return err
}

// Start returns the payload of the first entry of an epoch's log. The error is ErrIncomplete without one of which the
// entry has the hash: KeepStart takes one.
func (e *Epochs) Start(epoch uint64) ([]byte, error) {
	payload := e.unwritten(epoch)
	if payload == nil {
		var err error
		if payload, err = os.ReadFile(e.startFile(epoch)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIncomplete, err)
		}
	}

	return payload, e.starts(epoch, payload)
}

// unwritten returns the payload of an epoch's first entry if Sync has not written it yet.
func (e *Epochs) unwritten(epoch uint64) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, b := range e.begun {
		if b.start.Epoch == epoch {
			return b.start.Payload()
		}
	}

	return nil
}

// KeepStart keeps a payload if the first entry of an epoch's log has its hash.
func (e *Epochs) KeepStart(epoch uint64, payload []byte) error {
	if err := e.starts(epoch, payload); err != nil {
		return err
	}

	return e.writeStart(epoch, payload)
}

// starts compares a payload with the first entry of an epoch's log.
func (e *Epochs) starts(epoch uint64, payload []byte) error {
	log, _, err := e.Log(epoch)
	if err != nil {
		return err
	}

	first, err := log.Entries(Tree{Size: 1}, 0, 1)
	if entry := EntryOf(Epoch, payload); err == nil && string(first) != string(bundle(entry)) {
		err = fmt.Errorf("%w: the first entry is of another payload", ErrIncomplete)
	}

	return err
}

func (e *Epochs) startFile(epoch uint64) string { return filepath.Join(e.path(epoch), "start.json") }

func (e *Epochs) writeStart(epoch uint64, payload []byte) error {
	return durable.WriteFile(e.startFile(epoch), payload, 0o600)
}

// Append appends entries to the log of the epoch at hand.
func (e *Epochs) Append(entries ...Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if log := e.logs[e.epoch]; log != nil {
		log.Append(entries...)
	}
}

// Sync makes the epochs that have begun and all appended entries survive a loss of power. Nothing else waits for it.
func (e *Epochs) Sync() error {
	e.syncing.Lock()
	defer e.syncing.Unlock()

	epochs, present := e.unsynced()

	for i := range epochs {
		if err := e.write(&epochs[i]); err != nil {
			return err
		}
	}

	if present != nil {
		if err := present.Sync(); err != nil {
			return err
		}
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun = e.begun[len(epochs):]

	return nil
}

// unsynced returns the epochs that have begun since the last Sync, and the log of the one at hand; nil without one.
func (e *Epochs) unsynced() ([]begun, *Log) {
	e.mu.Lock()
	defer e.mu.Unlock()

	return e.begun, e.logs[e.epoch]
}

// write writes the end of the former epoch and the start of the new one.
func (e *Epochs) write(b *begun) error {
	if b.log != nil {
		// The entries are on disk before the end that refers to them.
		if err := b.log.Sync(); err != nil {
			return err
		}

		if err := e.writeEnd(b.former, b.end()); err != nil {
			return err
		}
	}

	return e.writeStart(b.start.Epoch, b.start.Payload())
}

// An end is the last tree of a former epoch's log, as it is on disk.
type end struct {
	Size uint64         `json:"size"`
	Root directory.Hash `json:"root"`
}

func (e *Epochs) endFile(epoch uint64) string { return filepath.Join(e.path(epoch), "end.json") }

func (e *Epochs) writeEnd(epoch uint64, tree Tree) error {
	data, err := json.Marshal(end(tree))
	if err != nil {
		return err
	}

	// A crash must not leave half an end: then the ended log could never be read again.
	return durable.WriteFile(e.endFile(epoch), data, 0o600)
}

func (e *Epochs) readEnd(epoch uint64) (Tree, error) {
	data, err := os.ReadFile(e.endFile(epoch))
	if err != nil {
		return Tree{}, ErrNoTile
	}

	var last end
	if err := json.Unmarshal(data, &last); err != nil {
		return Tree{}, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}

	return Tree(last), nil
}

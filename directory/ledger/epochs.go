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

	mu    sync.Mutex
	epoch uint64 // at hand
	logs  map[uint64]*Log
	ends  map[uint64]Tree
}

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

// Begin ends the log of the epoch at hand with its last tree, and begins one of a new epoch.
func (e *Epochs) Begin(start *Start) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	var err error
	if former := e.logs[e.epoch]; former != nil {
		last := Tree{Size: start.Size, Root: start.Root}

		// The entries are on disk before the end that refers to them.
		err = errors.Join(former.Sync(), e.writeEnd(e.epoch, last))
		e.ends[e.epoch] = last
	}

	e.epoch = start.Epoch

	log, opening := e.open(start.Epoch)
	if opening != nil {
		return errors.Join(err, opening)
	}

	return errors.Join(err, log.Reset(Tree{}), e.writeStart(start.Epoch, start.Payload()))
}

// End makes the log of a former epoch known, of which this node has not seen the end. Its entries are Lacking.
func (e *Epochs) End(epoch uint64, last Tree) error {
	if _, _, err := e.Log(epoch); err == nil {
		return nil
	}

	if err := e.makeEnd(epoch, last); err != nil {
		return err
	}

	_, _, err := e.Log(epoch)

	return err
}

func (e *Epochs) makeEnd(epoch uint64, last Tree) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	if _, err := e.open(epoch); err != nil {
		return err
	}

	return e.writeEnd(epoch, last)
}

// Start returns the payload of the first entry of an epoch's log. The error is ErrIncomplete without one of which the
// entry has the hash: KeepStart takes one.
func (e *Epochs) Start(epoch uint64) ([]byte, error) {
	payload, err := os.ReadFile(e.startFile(epoch))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}

	return payload, e.starts(epoch, payload)
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

// Sync syncs the log of the epoch at hand.
func (e *Epochs) Sync() error {
	e.mu.Lock()
	defer e.mu.Unlock()

	if log := e.logs[e.epoch]; log != nil {
		return log.Sync()
	}

	return nil
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

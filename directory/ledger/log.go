package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
)

// ErrIncomplete says that entries are missing here, or damaged; Fill gets them.
var ErrIncomplete = errors.New("this copy of the ledger is incomplete")

// A Tree is a state of a log by its owner's word.
type Tree struct {
	Size uint64
	Root directory.Hash
}

// fanout is how many hashes of one column make one of the next. It is small, because a proof hashes the
// values between two columns again. Every fourth column has the hashes of C2SP's tiles.
const (
	fanout     = 4
	fanoutBits = 2
)

// A Log is one log on disk: a column of its entries, each as bundles have it, and columns of
// hashes: the first of leaves, each further one of complete subtrees with fanout hashes of
// the one before. A tile of any width is a run of values of one column.
type Log struct {
	dir  string
	sync func(*os.File) error // makes a file survive a loss of power

	mu      sync.RWMutex
	entries *column
	late    *column // of the file of entries: those that Append takes while some before them are missing
	hashes  []*column
	size    uint64 // of the owner's tree
	have    uint64 // entries from the first on; less than size while some are missing
	failed  error  // why an entry could not be written
}

// bundled is the length of an entry with its length before it, as entry bundles have it.
const bundled = 2 + len(Entry{})

// Open opens the log in a directory, and makes an empty one if there is none. It has no size
// until Reset.
func Open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}

	l := &Log{dir: dir, sync: (*os.File).Sync}

	var err error
	if l.entries, err = openColumn(filepath.Join(dir, "entries"), int64(bundled)); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}

	l.late = &column{file: l.entries.file, width: l.entries.width}

	for err == nil {
		// The levels have no gap, so the first missing file ends them.
		if _, missing := os.Stat(l.levelFile(len(l.hashes))); missing != nil && len(l.hashes) > 0 {
			return l, nil
		}

		err = l.addLevel()
	}

	return nil, errors.Join(fmt.Errorf("open the ledger: %w", err), l.Close())
}

func (l *Log) levelFile(level int) string { return filepath.Join(l.dir, "level-"+strconv.Itoa(level)) }

func (l *Log) addLevel() error {
	c, err := openColumn(l.levelFile(len(l.hashes)), int64(len(directory.Hash{})))
	if err == nil {
		l.hashes = append(l.hashes, c)
	}

	return err
}

// Close closes the files. Values that were not synced may be lost.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()

	errs := []error{l.flush(), l.entries.file.Close()}
	for _, c := range l.hashes {
		errs = append(errs, c.file.Close())
	}

	return errors.Join(errs...)
}

// flush writes all values to the files. The caller holds mu.
func (l *Log) flush() error {
	errs := []error{l.entries.flush(), l.late.flush()}
	for _, c := range l.hashes {
		errs = append(errs, c.flush())
	}

	return errors.Join(errs...)
}

// Sync makes all appended entries survive a loss of power. It fails if one could not be written. Nothing else waits
// for it.
func (l *Log) Sync() error {
	files, err := l.flushed()
	for _, file := range files {
		err = errors.Join(err, l.sync(file))
	}

	return err
}

// flushed writes all values to the files, and returns these.
func (l *Log) flushed() ([]*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	files := []*os.File{l.entries.file}
	for _, c := range l.hashes {
		files = append(files, c.file)
	}

	return files, errors.Join(l.failed, l.flush())
}

// Reset takes the owner's tree as it is now, at a start or by a snapshot, whatever was
// appended before. If the hashes on disk don't lead to its root, the log is incomplete.
// It reads no entry, and a few hashes for each level.
func (l *Log) Reset(tree Tree) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	stored, err := l.stored()
	if err != nil {
		return fmt.Errorf("the ledger: %w", err)
	}

	l.size, l.failed = tree.Size, nil
	l.have = min(stored, tree.Size)
	l.cut(l.have)
	l.late.cut(l.size)

	// Only a complete copy has a root to compare.
	if l.have < l.size {
		return nil
	}

	if root, err := tlog.TreeHash(int64(tree.Size), l.reader()); err != nil || directory.Hash(root) != tree.Root {
		l.have = 0
	}

	return nil
}

// Truncate removes the values behind the first entries from the files, after Reset: they lead to another root.
func (l *Log) Truncate() error {
	l.mu.Lock()
	defer l.mu.Unlock()

	var errs []error
	for _, c := range append([]*column{l.entries}, l.hashes...) {
		errs = append(errs, c.file.Truncate(int64(c.n)*c.width))
	}

	return errors.Join(errs...)
}

// stored writes all values to the files, and returns how many entries they have with all hashes.
func (l *Log) stored() (uint64, error) {
	if err := l.flush(); err != nil {
		return 0, err
	}

	n, err := l.entries.stored()
	if err != nil {
		return 0, err
	}

	for level, c := range l.hashes {
		hashes, err := c.stored()
		if err != nil {
			return 0, err
		}

		// A level with so many hashes lacks none of the hashes of this many entries.
		n = min(n, (hashes+1)<<(fanoutBits*level)-1)
	}

	return n, nil
}

// cut lets the columns go on behind the first n entries.
func (l *Log) cut(n uint64) {
	l.entries.cut(n)

	for level, c := range l.hashes {
		c.cut(n >> (fanoutBits * level))
	}
}

// Append takes the entries that the owner has appended to the tree. It doesn't fail: while the disk is full, entries
// wait in memory for Fill.
func (l *Log) Append(entries ...Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, e := range entries {
		var err error

		if l.have == l.size {
			if err = l.extend(e); err == nil {
				l.have++
			} else {
				l.late.cut(l.size + 1) // the column of entries has this one
			}
		} else {
			// No other copy of the entry may exist: the column keeps it until there is room.
			err = l.late.append(bundle(e))
		}

		if err != nil && l.failed == nil {
			l.failed = fmt.Errorf("write entry %d of the ledger: %w", l.size, err)
		}

		// The owner's tree has grown whether or not the entry was written.
		l.size++
	}
}

func bundle(e Entry) []byte { return append([]byte{0, byte(len(e))}, e[:]...) }

// extend appends an entry to the columns, and the hashes of the subtrees that it completes.
func (l *Log) extend(e Entry) error {
	if err := l.entries.append(bundle(e)); err != nil {
		return err
	}

	h := e.Hash()

	for level := 0; ; level++ {
		if level == len(l.hashes) {
			if err := l.addLevel(); err != nil {
				return err
			}
		}

		c := l.hashes[level]
		if err := c.append(h[:]); err != nil || c.n%fanout != 0 {
			return err
		}

		// Only a full group completes a subtree, whose hash goes to the next level.
		group, err := c.read(c.n-fanout, c.n)
		if err != nil {
			return err
		}

		h = directory.Hash(treeOf(group))
	}
}

// treeOf returns the root of the complete tree above a run of hashes.
func treeOf(run []byte) tlog.Hash {
	if len(run) == tlog.HashSize {
		return tlog.Hash(run)
	}

	half := len(run) / 2

	return tlog.NodeHash(treeOf(run[:half]), treeOf(run[half:]))
}

// Missing reports whether entries are missing, and from which on.
func (l *Log) Missing() (from uint64, missing bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()

	return l.have, l.have < l.size
}

// ErrOther says that entries lead to another root than the owner's.
var ErrOther = errors.New("entries lead to another root")

// Fill completes the log up to the owner's tree: from returns entries from an index on, at
// least one. The entries behind the tree are those that were appended meanwhile. If they
// don't lead to the tree's root nothing is kept, and the error is ErrOther; the next call asks
// for all of them.
func (l *Log) Fill(tree Tree, from func(index uint64) ([]Entry, error)) error {
	at, missing, err := l.beginFill()
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}

	for missing && at < tree.Size {
		// The entries may come from another member, so the lock is free meanwhile; fill notices a reset.
		entries, err := from(at)
		if err == nil && len(entries) == 0 {
			err = ErrIncomplete
		}

		if err != nil {
			return fmt.Errorf("entry %d of the ledger: %w", at, err)
		}

		if at, err = l.fill(at, entries[:min(uint64(len(entries)), tree.Size-at)]); err != nil {
			return err
		}
	}

	if !missing {
		return nil
	}

	return l.finishFill(tree)
}

func (l *Log) beginFill() (from uint64, missing bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.have == l.size {
		return l.have, false, nil
	}

	// After a failed write the columns have values that are in no file yet.
	if err := l.flush(); err != nil {
		return 0, true, err
	}

	// The entries behind stay in the file, from which finishFill reads them.
	l.cut(l.have)

	return l.have, true, nil
}

func (l *Log) fill(at uint64, entries []Entry) (next uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.entries.n != at {
		return at, fmt.Errorf("entry %d of the ledger: %w", at, ErrIncomplete) // reset meanwhile
	}

	for _, e := range entries {
		if err := l.extend(e); err != nil {
			return at, fmt.Errorf("write entry %d of the ledger: %w", at, err)
		}

		at++
	}

	return at, nil
}

// finishFill compares the filled columns with the tree, and adds the entries that were appended since.
func (l *Log) finishFill(tree Tree) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.entries.n != tree.Size || tree.Size > l.size {
		return ErrIncomplete // reset meanwhile
	}

	root, err := tlog.TreeHash(int64(tree.Size), l.reader())
	if err == nil && directory.Hash(root) != tree.Root {
		err = ErrOther
	}

	if err == nil {
		err = l.late.flush()
	}

	// Append has put the entries behind the tree into the file.
	for at := tree.Size; err == nil && at < l.size; at++ {
		var e []Entry
		if e, err = l.local(at, 1); err == nil {
			err = l.extend(e[0])
		}
	}

	if err != nil {
		l.have = 0
		l.cut(0)

		return err
	}

	l.have, l.failed = l.size, nil

	return nil
}

// Local returns entries from an index on as they are on disk, for Fill.
func (l *Log) Local(index uint64) ([]Entry, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()

	stored, err := l.entries.stored()
	if err != nil || index >= stored {
		return nil, errors.Join(ErrIncomplete, err)
	}

	return l.local(index, min(stored-index, 1024))
}

func (l *Log) local(index, n uint64) ([]Entry, error) {
	data := make([]byte, n*uint64(bundled))
	if _, err := l.entries.file.ReadAt(data, int64(index)*l.entries.width); err != nil {
		return nil, err
	}

	return unbundle(data)
}

// unbundle reads a bundle of entries.
func unbundle(data []byte) ([]Entry, error) {
	entries := make([]Entry, 0, len(data)/bundled)
	for ; len(data) >= bundled; data = data[bundled:] {
		if data[0] != 0 || int(data[1]) != len(Entry{}) {
			return nil, errors.New("an entry has another form")
		}

		entries = append(entries, Entry(data[2:bundled]))
	}

	return entries, nil
}

// ReadEntries reads entries as bundles have them. The entries of other logs may have other
// forms, and are refused.
func ReadEntries(data []byte) ([]Entry, error) {
	if len(data)%bundled != 0 {
		return nil, fmt.Errorf("%d bytes are no run of entries", len(data))
	}

	return unbundle(data)
}

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ErrDamaged says that a member's log or snapshots are not as it wrote them.
var ErrDamaged = errors.New("what is on disk is damaged")

// Guard returns the error of f, or the value with which f panicked: the libraries panic
// when they find damage, and a mapped file that is too short faults.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()

	return f()
}

// AsDamage adds ErrDamaged to an error about the contents of the disk, and leaves errors
// of reaching it.
func AsDamage(err error) error {
	var system syscall.Errno
	if err == nil || errors.Is(err, ErrDamaged) || errors.As(err, &system) && !errors.Is(err, fs.ErrExist) {
		return err
	}

	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// ownerFile is the name of the file that says whose state a directory has.
const ownerFile = "member"

// Owner returns the member whose state dir has.
func Owner(dir string) (spiffeid.ID, error) {
	data, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return spiffeid.ID{}, fmt.Errorf("%s is no node's: it does not say whose state it has", dir)
	}

	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("read whose data this is: %w", err)
	}

	id, err := spiffeid.FromString(strings.TrimSpace(string(data)))
	if err != nil {
		return id, fmt.Errorf("%w: whose state %s has: %w", ErrDamaged, dir, err)
	}

	return id, nil
}

// CheckOwner says why dir is not to be used by node: it is another's, with votes that this
// one did not give, or the log was taken out of it.
func CheckOwner(dir string, node spiffeid.ID) error {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	owner := strings.TrimSpace(string(b))

	if errors.Is(err, fs.ErrNotExist) {
		// The directory is new. Claim refuses one that has a log.
		return nil
	}

	if err != nil {
		return fmt.Errorf("read whose data this is: %w", err)
	}

	if owner == "" {
		return fmt.Errorf("%w: %s does not say whose data this is", ErrDamaged, filepath.Join(dir, ownerFile))
	}

	if owner != node.String() {
		return fmt.Errorf("%s has the state of %s, and this is %s: give each node a data directory of its own", dir,
			owner, node)
	}

	// The votes were in the log: without them this node might vote twice in a term.
	if _, err := os.Stat(filepath.Join(dir, "log", metadb.FileName)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there was a log in %s, and it is gone", ErrDamaged, filepath.Join(dir, "log"))
	}

	return nil
}

// Claim marks dir as node's. A log or snapshots without a mark belong to no node: the
// mark was removed, because it is written before them.
func (d *Disk) Claim(dir string, node spiffeid.ID) error {
	path := filepath.Join(dir, ownerFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	empty, err := d.Empty()
	if err != nil {
		return err
	}

	if !empty {
		return fmt.Errorf("%w: %s has a log and %s is gone, which says whose it is", ErrDamaged, dir, path)
	}

	// Half of the name would look like damage.
	return durable.WriteFile(path, []byte(node.String()+"\n"), 0o600)
}

// A summedLog writes a checksum with each entry, in Extensions, and checks it when the
// entry is read. The library checks its own for the newest entries alone.
type summedLog struct{ raft.LogStore }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(entry *raft.Log) []byte {
	head := make([]byte, 0, 17)
	head = binary.BigEndian.AppendUint64(head, entry.Index)
	head = binary.BigEndian.AppendUint64(head, entry.Term)
	head = append(head, byte(entry.Type))

	return binary.BigEndian.AppendUint32(nil, crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, entry.Data))
}

func (s summedLog) StoreLogs(entries []*raft.Log) error {
	summed := make([]*raft.Log, len(entries))
	for i, e := range entries {
		with := *e
		with.Extensions = sumOf(e)
		summed[i] = &with
	}

	return s.LogStore.StoreLogs(summed)
}

func (s summedLog) StoreLog(e *raft.Log) error { return s.StoreLogs([]*raft.Log{e}) }

func (s summedLog) GetLog(index uint64, entry *raft.Log) error {
	err := Guard(func() error { return s.LogStore.GetLog(index, entry) })
	switch {
	case errors.Is(err, wal.ErrCorrupt):
		return AsDamage(err)
	case err != nil:
		return err
	case string(entry.Extensions) != string(sumOf(entry)):
		return fmt.Errorf("%w: log entry %d is not what was written", ErrDamaged, index)
	}

	entry.Extensions = nil

	return nil
}

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// sealMark is the data of an entry that is in the log for a moment: to delete it seals the file of those
// before it. Entries of Raft have a term, and this one has none.
var sealMark = []byte("roster: seal")

// Seal begins a new file of the log, and returns the last entry of those before it. Else entries would be in
// the file that is written to for as long as it has room, although the log begins behind them.
func (d *Disk) Seal() (last uint64, err error) {
	err = d.Ahead.idle(func() error {
		if last, err = d.wal.LastIndex(); err != nil || last == 0 {
			return err
		}

		mark := &raft.Log{Index: last + 1, Type: raft.LogNoop, Data: sealMark}
		if err := (summedLog{d.wal}).StoreLog(mark); err != nil {
			return err
		}

		return d.wal.DeleteRange(mark.Index, mark.Index)
	})
	if err != nil {
		// Raft must not run on behind the mark.
		d.failed(fmt.Errorf("begin a new file of the log: %w", err))
	}

	return last, err
}

// unmark deletes the mark of a process that ended while it sealed a file.
func unmark(log *wal.WAL) error {
	last, err := log.LastIndex()
	if err != nil || last == 0 {
		return err
	}

	var entry raft.Log

	// Damage is reported by the reader that needs the entry.
	if (summedLog{log}).GetLog(last, &entry) != nil || entry.Term != 0 || !bytes.Equal(entry.Data, sealMark) {
		return nil
	}

	return log.DeleteRange(last, last)
}

// Forget deletes the files of the log up to an entry, and all snapshots but the newest. It reports false, and
// deletes nothing, while the newest snapshot has not the effect of that entry.
func (d *Disk) Forget(last uint64) (bool, error) {
	// The newest snapshot comes first.
	list, err := d.Snapshots.List()
	if err != nil || len(list) == 0 || list[0].Index < last {
		return false, err
	}

	for _, old := range list[1:] {
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.dir, "snapshots", old.ID)))
	}

	first, reading := d.Logs.FirstIndex()
	if reading == nil && first > 0 && first <= last {
		reading = d.Logs.DeleteRange(first, last)
	}

	return true, errors.Join(err, reading)
}

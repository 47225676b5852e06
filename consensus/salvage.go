package consensus

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Salvage writes a backup of what the directory dir of a member that is stopped has, for
// a domain that has lost its majority for good: no member that is left may lead, and so
// none confirms a Backup. It has the newest snapshot and all of the log behind it. What
// the domain had not agreed on yet is among that, and what was acknowledged by those
// alone that are lost is not: of several members the one with the highest position has
// the most. Nothing in dir is changed.
func Salvage(dir string, domain spiffeid.TrustDomain, w io.Writer) (err error) {
	node, err := ownerOf(dir)
	if err != nil {
		return err
	}
	if err := owned(dir, node); err != nil {
		return err
	}
	d, err := openDisk(dir, raftLogger(slog.New(slog.DiscardHandler)), func(error) {}, 0, 1, func() bool { return false }, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	s, at, err := newestSnapshot(d.snapshots, domain)
	if err == nil {
		err = s.replay(d.logs, at)
	}
	switch {
	case err != nil:
		return err
	case s.sealed != "":
		return fmt.Errorf("a restore was under way in %s and its epoch has not begun: use that backup, or another node's disk", dir)
	case s.epoch == 0:
		return fmt.Errorf("%s has no domain's state yet", dir)
	}
	return s.snapshot().backup(w, backupHeader{backupVersion, node, time.Now().Unix()})
}

// ownerOf returns the member whose state dir has.
func ownerOf(dir string) (spiffeid.ID, error) {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return spiffeid.ID{}, fmt.Errorf("%s is no node's: it does not say whose state it has", dir)
	}
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("read whose data this is: %w", err)
	}
	id, err := spiffeid.FromString(strings.TrimSpace(string(b)))
	if err != nil {
		return id, fmt.Errorf("%w: whose state %s has: %w", ErrDamaged, dir, err)
	}
	return id, nil
}

// newestSnapshot returns the state of the newest snapshot that can be read, and its
// index; an empty one where there is none.
func newestSnapshot(store raft.SnapshotStore, domain spiffeid.TrustDomain) (*state, uint64, error) {
	list, err := store.List() // the newest first
	if err != nil {
		return nil, 0, err
	}
	var failed error
	for _, meta := range list {
		s, err := openSnapshot(store, meta.ID, domain)
		if err == nil {
			return s, meta.Index, nil
		}
		failed = errors.Join(failed, fmt.Errorf("the snapshot %s: %w", meta.ID, err))
	}
	return newState(domain, directory.NewIndex()), 0, failed
}

func openSnapshot(store raft.SnapshotStore, id string, domain spiffeid.TrustDomain) (*state, error) {
	_, r, err := store.Open(id)
	if err != nil {
		return nil, err
	}
	s, err := readSnapshot(r, domain, directory.NewIndex(), &snapshotHeader{})
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	s.fillIndex()
	return s, nil
}

// replay applies the log behind an index, to its end.
func (s *state) replay(logs raft.LogStore, behind uint64) error {
	first, err1 := logs.FirstIndex()
	last, err2 := logs.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if last > behind && first > behind+1 {
		return fmt.Errorf("%w: the log begins at entry %d, and the newest snapshot ends at %d", ErrDamaged, first, behind)
	}
	for i := behind + 1; i <= last; i++ {
		var entry raft.Log
		if err := logs.GetLog(i, &entry); err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		b, err := decodeBatch(entry.Data)
		if err == nil {
			_, err = s.apply(b, func() {})
		}
		if err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
	}
	return nil
}

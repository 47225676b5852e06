package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory/index"
)

// A LogEnd is how far a member's log goes. Of several members the one whose end is of the
// highest term, and of those the one of the highest entry, has all that was committed and
// that any of them has, as when Raft elects. Their positions don't tell: a leader that was
// cut off may have written more than those that went on without it.
type LogEnd struct{ Term, Entry uint64 }

// Salvage writes a backup of the directory dir of a stopped member, for a domain that has lost
// its majority for good: no remaining member may lead and confirm a Backup. The backup has the
// newest snapshot and all of the log behind it, including entries that the domain has not
// committed. It lacks entries that only the lost members acknowledged: the LogEnd shows which
// of several members to take. The member's own files in dir stay unchanged, but dir must be
// writable.
//
// Unless before is 0, the backup ends with the log entry ahead of that one, which can't be applied.
func Salvage(dir string, domain spiffeid.TrustDomain, before uint64, w io.Writer) (end LogEnd, err error) {
	node, err := disk.Owner(dir)
	if err != nil {
		return end, err
	}

	if node.TrustDomain() != domain {
		return end, fmt.Errorf("%s has the state of %s, which is no node of %s", dir, node, domain.Name())
	}

	if err := disk.CheckOwner(dir, node); err != nil {
		return end, err
	}

	d, err := OpenStopped(dir)
	if err != nil {
		return end, err
	}

	defer func() { err = errors.Join(err, d.Close()) }()

	state, end, err := salvage(d, domain, before)
	switch {
	case err != nil:
		return end, err
	case state.History().Sealed() != "":
		return end, fmt.Errorf("a restore was under way in %s and its epoch has not begun: use that backup, or "+
			"another node's disk", dir)
	case state.History().Position().Epoch == 0:
		return end, fmt.Errorf("%s has no domain's state yet", dir)
	}

	return end, Write(w, Header{Version, node, time.Now().Unix()}, state.Snapshot())
}

// An EntryError says that a member can't apply an entry of its log. Salvage can cut the log before it.
type EntryError struct {
	Entry, Term uint64
	Err         error
}

// Error implements error.
func (e *EntryError) Error() string {
	return fmt.Sprintf("log entry %d of term %d: %v", e.Entry, e.Term, e.Err)
}

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// OpenStopped opens the disk of a member that doesn't run.
func OpenStopped(dir string) (*disk.Disk, error) {
	return disk.Open(disk.Options{
		Dir:          dir,
		Log:          hclog.NewNullLogger(),
		Failed:       func(error) {},
		Trailing:     1,
		LargestEntry: state.MaxBatchBytes,
		Leads:        func() bool { return false },
	})
}

// salvage returns the state that a disk has, to the end of its log or to the entry ahead of before.
func salvage(d *disk.Disk, domain spiffeid.TrustDomain, before uint64) (*state.State, LogEnd, error) {
	state, end, unread, err := newestSnapshot(d.Snapshots, domain, before)
	if err == nil {
		end, err = replay(state, d.Logs, end, before)
	}

	// The entries behind the end of the log exist nowhere else.
	if err == nil && unread != nil && end.Entry < unread.behind {
		err = fmt.Errorf("%w: %w, and the log ends at entry %d", disk.ErrDamaged, unread.err, end.Entry)
	}

	return state, end, err
}

// unreadSnapshots are those that were passed over, since they can't be read.
type unreadSnapshots struct {
	behind uint64 // the last entry that one of them has
	err    error
}

// newestSnapshot returns the state and the end of the newest readable snapshot that ends ahead of before,
// unless that is 0, or an empty state. The newer snapshots are unreadable.
func newestSnapshot(store raft.SnapshotStore, domain spiffeid.TrustDomain, before uint64) (*state.State, LogEnd,
	*unreadSnapshots, error) {
	// The newest snapshot comes first.
	list, err := store.List()
	if err != nil {
		return nil, LogEnd{}, nil, err
	}

	var unread *unreadSnapshots
	for _, meta := range list {
		if before > 0 && meta.Index >= before {
			continue
		}

		s, err := openSnapshot(store, meta.ID, domain)
		if err == nil {
			return s, LogEnd{meta.Term, meta.Index}, unread, nil
		}

		unread = cmp.Or(unread, &unreadSnapshots{})

		unread.behind = max(unread.behind, meta.Index)
		unread.err = errors.Join(unread.err, fmt.Errorf("the snapshot %s: %w", meta.ID, err))
	}

	// An empty state would lack the changes of the snapshots that can't be read.
	if unread != nil {
		return nil, LogEnd{}, nil, unread.err
	}

	return state.New(domain, index.New()), LogEnd{}, nil, nil
}

func openSnapshot(store raft.SnapshotStore, id string, domain spiffeid.TrustDomain) (*state.State, error) {
	_, r, err := store.Open(id)
	if err != nil {
		return nil, err
	}

	s, _, err := state.Read(r, domain, index.New(), Processors())
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}

	s.Registrations().FillIndex()

	return s, nil
}

// replay applies the log behind a snapshot that ends there, to the entry ahead of before unless that is 0,
// and returns its end.
func replay(s *state.State, logs raft.LogStore, end LogEnd, before uint64) (LogEnd, error) {
	first, err1 := logs.FirstIndex()

	last, err2 := logs.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return end, err
	}

	if before > last+1 {
		return end, fmt.Errorf("the log ends at entry %d, so it can't be cut before entry %d", last, before)
	}

	if before > 0 {
		last = before - 1
	}

	// Changes of a gap between the two are neither in the snapshot nor in the log.
	if last > end.Entry && first > end.Entry+1 {
		return end, fmt.Errorf("%w: the log begins at entry %d, and the newest snapshot to use ends at entry %d",
			disk.ErrDamaged, first, end.Entry)
	}

	for i := end.Entry + 1; i <= last; i++ {
		var entry raft.Log
		if err := logs.GetLog(i, &entry); err != nil {
			return end, fmt.Errorf("log entry %d: %w", i, err)
		}

		end = LogEnd{entry.Term, i}
		if entry.Type != raft.LogCommand {
			continue
		}

		b, err := state.DecodeBatch(entry.Data)
		if err == nil {
			_, err = s.Apply(b)
		}

		if err != nil {
			return end, &EntryError{Entry: i, Term: entry.Term, Err: err}
		}
	}

	return end, nil
}

// Processors lets a snapshot be decoded on all processors.
func Processors() state.Parallel {
	return state.Parallel{Run: func(task func()) { go task() }, Ahead: 2 * runtime.GOMAXPROCS(0)}
}

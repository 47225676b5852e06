package consensus

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory"
)

// An eraser removes the contents of erased registrations from this member's disk: from the history, from
// Raft's log, and from old snapshots. A member that was away does it once it has applied the commands, or has
// a snapshot with them.
type eraser struct {
	upTo   uint64    // revision of the last erasure that is gone from the history
	sealed uint64    // the last entry of the log before a snapshot that has none of the contents
	next   time.Time // when the snapshot is tried again
	retry  time.Time // after a failure, when the disk is tried again
}

// eraseRetry is how long after a failure the disk is tried again.
const eraseRetry = time.Minute

// step takes the steps that are possible now. It is called every second.
func (e *eraser) step(m *member) {
	now := m.cfg.Clock.Now()
	if now.Before(e.retry) {
		return
	}

	if err := e.erase(m, now); err != nil {
		e.retry = now.Add(eraseRetry)
		m.log.Error("contents of registrations can't be erased from disk; trying again",
			"after_s", eraseRetry.Seconds(), "err", err)
	}
}

func (e *eraser) erase(m *member, now time.Time) error {
	kept := m.replica.history

	done, err := kept.Erased()
	if err != nil {
		return err
	}

	pending := m.replica.erasures(done)
	if len(pending) == 0 {
		return nil
	}

	// The file is scanned once for a set of erasures, and not each second until the log is cut.
	if newest := pending[len(pending)-1].Revision; e.upTo != newest {
		var rids []directory.RID
		for _, one := range pending {
			rids = append(rids, one.RID)
		}

		if err := kept.Erase(rids); err != nil {
			return err
		}

		// Entries with the contents lie before the seal, because their registrations have ended.
		if e.sealed, err = m.storage.disk.Seal(); err != nil {
			return err
		}

		e.upTo, e.next = newest, now
	}

	// Another reason may have led to the snapshot that this waits for, so it is looked for first.
	switch gone, err := m.storage.disk.Forget(e.sealed); {
	case err != nil:
		return err
	case gone:
		// Noted last: after a crash the erasure begins again, which changes nothing.
		if err := kept.NoteErased(e.upTo); err != nil {
			return err
		}

		m.log.Info("erased the contents of registrations from disk", "registrations", len(pending))
	case !now.Before(e.next):
		e.next = now.Add(snapshotRetry)

		// Without new entries Raft makes no snapshot. The next entries allow it.
		err := m.group.raft.Snapshot().Error()
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && m.life.closing.Err() == nil {
			m.log.Warn("contents stay in the log until a snapshot can be made", "err", err)
		}
	}

	return nil
}

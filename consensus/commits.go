package consensus

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
)

// notice returns the present commit notice; nil if its entry is in a snapshot already.
func (l *Leader) notice() *message.CommitNotice {
	t := message.CommitNotice{Term: l.term,
		Index: min(l.group.raft.CommitIndex(), l.storage.disk.Ahead.Durable())}

	var entry raft.Log
	if err := l.storage.disk.Logs.GetLog(t.Index, &entry); err != nil {
		return nil
	}

	t.Of = entry.Term

	return &t
}

// notifyAll sends the commit index to the other members, as an AppendEntries without
// entries (Raft, 3.5), which costs no write to a disk. A member that still has the last
// notice under way, or is away, is left to Raft's own heartbeats. The notice has the term
// that this member won, never one in which it only stands for election. It does no harm
// if this member leads no longer: an entry that it knows to be committed stays so, and a
// member with the same entry has all entries before it.
func (l *Leader) notifyAll() {
	now := l.notice()
	if now == nil {
		return
	}

	word := now.AppendEntries(Member{ID: l.cfg.Node, Address: string(l.transport.LocalAddr())})
	for _, other := range l.group.others() {
		id, address := raft.ServerID(other.ID.String()), raft.ServerAddress(other.Address)

		slot := l.underWay[id]
		if slot == nil {
			slot = make(chan struct{}, 1)
			l.underWay[id] = slot
		}

		// A member has one notice under way at most. The next one has a higher index anyway.
		select {
		case slot <- struct{}{}:
			l.life.loops.Go(func() {
				defer func() { <-slot }()
				_ = l.transport.AppendEntries(id, address, word, &raft.AppendEntriesResponse{})
			})
		default:
		}
	}
}

// notifyLoop notifies followers of commits. Raft does so with the next entry or after
// CommitTimeout; if no entry follows, they are notified at once if one of them waits, and
// a little later otherwise.
func (l *Leader) notifyLoop() {
	signals := &l.proposer.commits

	for {
		select {
		case <-signals.awaited:
		case <-signals.commit:
			// The next entry carries the commit index at no cost, so the notice waits a little for it.
			entered := signals.entered.Load()
			select {
			case <-signals.awaited:
			case <-time.After(noticeDelay):
				if signals.entered.Load() != entered {
					// The new entry has carried the index, and its own commit follows.
					continue
				}
			case <-l.over.Done():
				return
			}
		case <-l.over.Done():
			return
		}

		// A batch that waits becomes the next entry, which carries the index.
		if !l.group.alone() && l.ready.Load() && l.proposer.batches.isEmpty() && signals.pending.Swap(false) {
			l.notifyAll()
		}
	}
}

// noticeDelay is how long a leader waits with a commit notice if no follower is known to
// wait: the next write may bring it.
const noticeDelay = 5 * time.Millisecond

package consensus

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A commitNotifier lets followers know soon that their entries are committed.
type commitNotifier struct {
	cfg       *Config
	life      *lifecycle
	group     *group
	replica   *Replica
	storage   *storage
	proposer  *proposer
	transport transport.RaftTransport
	underWay  map[raft.ServerID]chan struct{} // each holds one notice under way; of run alone
}

// hear gives Raft what the leader has told beside an answer, as if it had come by
// itself: one message less for a write that was forwarded. Where an entry is not
// here yet, Raft passes over it, and the next word is not far.
func (c *commitNotifier) deliver(ctx context.Context, leader Member, t *message.CommitNotice) {
	rpc := raft.RPC{Command: t.AppendEntries(leader), RespChan: make(chan raft.RPCResponse, 1)}
	c.transport.Deliver(ctx, rpc)
}

// tell is what a leader may tell; nil where that is in a snapshot by now.
func (c *commitNotifier) notice() *message.CommitNotice {
	t := message.CommitNotice{Term: c.replica.progress.term.Load(),
		Index: min(c.group.raft.CommitIndex(), c.storage.disk.Ahead.Durable())}

	var entry raft.Log
	if err := c.storage.disk.Logs.GetLog(t.Index, &entry); err != nil {
		return nil
	}

	t.Of = entry.Term

	return &t
}

// tellAll sends the commit index to the other members, in Raft's own message for
// that (Raft, 3.5: an AppendEntries without entries), which costs nobody a write
// to a disk. A member that still has the last word under way, or that is away, is
// left to Raft, which tells it again and again.
//
// The term is the one that this member won: a message of a term in which it only
// stands for election would be a lie. That this member may lead no longer does no
// harm. What it knows to be committed is so for ever, and who has the same entry
// there has all before it.
func (c *commitNotifier) notifyAll() {
	now := c.notice()
	if now == nil {
		return
	}

	word := now.AppendEntries(Member{ID: c.cfg.Node, Address: string(c.transport.LocalAddr())})
	for _, server := range c.group.raft.GetConfiguration().Configuration().Servers {
		if id, err := spiffeid.FromString(string(server.ID)); err != nil || id == c.cfg.Node {
			continue
		}

		slot := c.underWay[server.ID]
		if slot == nil {
			slot = make(chan struct{}, 1)
			c.underWay[server.ID] = slot
		}

		select {
		case slot <- struct{}{}:
			c.life.loops.Go(func() {
				defer func() { <-slot }()
				_ = c.transport.AppendEntries(server.ID, server.Address, word, &raft.AppendEntriesResponse{})
			})
		default:
		}
	}
}

// tellLoop lets followers know soon that what they hold is committed. Raft tells
// them with the next entry or after CommitTimeout; where no entry follows, they
// are told at once if one of them is waiting, and a little later otherwise.
func (c *commitNotifier) run() {
	for {
		select {
		case <-c.proposer.batches.tell:
		case <-c.proposer.batches.commit:
			entered := c.proposer.batches.entered.Load()
			select {
			case <-c.proposer.batches.tell:
			case <-time.After(noticeDelay):
				if c.proposer.batches.entered.Load() != entered {
					continue // the entry has told them, and its own commit is there or to come
				}
			case <-c.life.closing.Done():
				return
			}
		case <-c.life.closing.Done():
			return
		}

		if !c.group.alone() && c.group.leading.Load() &&
			len(c.proposer.batches.queue)+len(c.proposer.batches.lists) == 0 && c.proposer.batches.untold.Swap(false) {
			c.notifyAll()
		}
	}
}

// tellAfter is how long a leader waits with the word of a commit where nobody is
// known to wait for it: the next write may bring it.
const noticeDelay = 5 * time.Millisecond

package consensus

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// tellAfter is how long a leader waits with the word of a commit where nobody is
// known to wait for it: the next write may bring it.
const tellAfter = 5 * time.Millisecond

// tellLoop lets followers know soon that what they hold is committed. Raft tells
// them with the next entry or after CommitTimeout; where no entry follows, they
// are told at once if one of them is waiting, and a little later otherwise.
func (s *Store) tellLoop() {
	for {
		select {
		case <-s.batches.tell:
		case <-s.batches.commit:
			select {
			case <-s.batches.tell:
			case <-time.After(tellAfter):
			case <-s.closing.Done():
				return
			}
		case <-s.closing.Done():
			return
		}
		if !s.alone() && s.leading.Load() && len(s.batches.queue) == 0 && s.batches.untold.Swap(false) {
			s.tellAll()
		}
	}
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
func (s *Store) tellAll() {
	index, term := s.raft.CommitIndex(), s.reads.term.Load()
	var last raft.Log
	if err := s.disk.logs.GetLog(index, &last); err != nil {
		return // it is in a snapshot by now
	}
	own := s.transport.EncodePeer(raft.ServerID(s.cfg.Node.String()), s.transport.LocalAddr())
	word := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(s.cfg.Node.String()), Addr: own},
		Term:      term, Leader: own,
		PrevLogEntry: index, PrevLogTerm: last.Term, LeaderCommitIndex: index,
	}
	for _, m := range s.raft.GetConfiguration().Configuration().Servers {
		if id, err := spiffeid.FromString(string(m.ID)); err != nil || id == s.cfg.Node {
			continue
		}
		slot := s.telling[m.ID]
		if slot == nil {
			slot = make(chan struct{}, 1)
			s.telling[m.ID] = slot
		}
		select {
		case slot <- struct{}{}:
			s.loops.Go(func() {
				defer func() { <-slot }()
				_ = s.transport.AppendEntries(m.ID, m.Address, word, &raft.AppendEntriesResponse{})
			})
		default:
		}
	}
}

package consensus

import (
	"context"
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
			entered := s.batches.entered.Load()
			select {
			case <-s.batches.tell:
			case <-time.After(tellAfter):
				if s.batches.entered.Load() != entered {
					continue // the entry has told them, and its own commit is there or to come
				}
			case <-s.closing.Done():
				return
			}
		case <-s.closing.Done():
			return
		}
		if !s.alone() && s.leading.Load() && len(s.batches.queue)+len(s.batches.lists) == 0 && s.batches.untold.Swap(false) {
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
	now := s.tell()
	if now == nil {
		return
	}
	word := now.request(Member{s.cfg.Node, string(s.transport.LocalAddr())})
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

// told is how far a leader's log is committed, and on its disk.
type told struct {
	Term  uint64 `cbor:"1,keyasint"` // the leader's
	Index uint64 `cbor:"2,keyasint"`
	Of    uint64 `cbor:"3,keyasint"` // the term of the entry there
}

// tell is what a leader may tell; nil where that is in a snapshot by now.
func (s *Store) tell() *told {
	t := told{Term: s.reads.term.Load(), Index: min(s.raft.CommitIndex(), s.disk.Ahead.Durable())}
	var entry raft.Log
	if err := s.disk.Logs.GetLog(t.Index, &entry); err != nil {
		return nil
	}
	t.Of = entry.Term
	return &t
}

// request is t as that leader says it to Raft.
func (t *told) request(leader Member) *raft.AppendEntriesRequest {
	id, address := []byte(leader.ID.String()), []byte(leader.Address)
	return &raft.AppendEntriesRequest{
		RPCHeader:    raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: address},
		Term:         t.Term,
		PrevLogEntry: t.Index, PrevLogTerm: t.Of, LeaderCommitIndex: t.Index,
	}
}

// hear gives Raft what the leader has told beside an answer, as if it had come by
// itself: one message less for a write that was forwarded. Where an entry is not
// here yet, Raft passes over it, and the next word is not far.
func (s *Store) hear(ctx context.Context, leader Member, t *told) {
	rpc := raft.RPC{Command: t.request(leader), RespChan: make(chan raft.RPCResponse, 1)}
	select {
	case s.transport.heard <- rpc:
	case <-ctx.Done():
	}
}

package transport

import (
	"bytes"
	"cmp"
	"sync"

	"github.com/hashicorp/raft"
)

// A candidacy lets one of two members that stand for election at the same time withdraw, so
// that they do not split the votes.
//
// Raft separates candidates by random timeouts alone. Two candidates that stand within one
// network delay of each other grant each other the pre-vote. Then each votes for itself, and
// neither wins before another election timeout. With 100 ms there and back and the default
// timing, that happened after one death of a leader in ten, and after some up to three times.
//
// So a member that receives the pre-vote request of a preceding candidate while its own
// pre-vote is under way counts no further grants of its own. Raft then grants its vote to the
// other candidate, and waits for an election timeout before it stands again. That is safe,
// because a member may refrain from an election at any time, and it needs no message that Raft
// does not send anyway. The domain still gets a leader: the order of candidates is total, and
// the first does not withdraw. If that candidate fails all the same, the others have lost one
// round. Two candidates still split the votes if the first wins its pre-vote within the jitter
// of the network before it receives the other's request.
type candidacy struct {
	mu        sync.Mutex
	own       *raft.RequestPreVoteRequest // the last round of this member; Raft makes one request for all members
	withdrawn bool
}

// stand begins a round, unless it has begun already.
func (c *candidacy) stand(own *raft.RequestPreVoteRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.own != own {
		c.own, c.withdrawn = own, false
	}
}

// compare withdraws this member's candidacy if the other candidate precedes it. Once the round
// is decided, that has no effect.
func (c *candidacy) compare(other *raft.RequestPreVoteRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.own != nil && precedes(other, c.own) {
		c.withdrawn = true
	}
}

// isWithdrawn reports whether this member has withdrawn from that round.
func (c *candidacy) isWithdrawn(own *raft.RequestPreVoteRequest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.own == own && c.withdrawn
}

// precedes reports whether candidate a goes before candidate b. The newer log goes first,
// because only its owner can get the other's vote; of equal logs, the smaller ID. A candidate
// of an older term precedes no other: it cannot win.
func precedes(a, b *raft.RequestPreVoteRequest) bool {
	if a.Term < b.Term {
		return false
	}

	return cmp.Or(
		cmp.Compare(b.LastLogTerm, a.LastLogTerm),
		cmp.Compare(b.LastLogIndex, a.LastLogIndex),
		bytes.Compare(a.ID, b.ID),
	) < 0
}

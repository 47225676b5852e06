package replica

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// followed is a ledger as far as it was followed, whose trees have the root {1}.
type followed uint64

func (f followed) Begins(_ spiffeid.TrustDomain, _, size uint64, root directory.Hash) (begins, followed bool) {
	return size <= uint64(f) && root == directory.Hash{1}, size <= uint64(f)
}

func (f followed) Lacks(spiffeid.TrustDomain, uint64, directory.Hash) (bool, error) {
	return false, nil
}

// An entry is in the ledger by the word of a node that has signed a tree with it, and never by that of the node which
// announced it: not in a tree of a fork, of another epoch, or of a part that was not followed yet.
//
// Requirement: SEC-019, LOG-013
func TestAnEntryIsInATreeThatAnotherNodeSigned(t *testing.T) {
	alpha := spiffeid.RequireTrustDomainFromString("alpha.test")
	thief, other := spiffeid.RequireFromPath(alpha, "/roster/node/1"), spiffeid.RequireFromPath(alpha, "/roster/node/2")
	states := func(node spiffeid.ID, epoch, size uint64, root byte) Testimony {
		return Testimony{Node: node, At: directory.Position{Epoch: epoch}, Size: size, Root: directory.Hash{root}}
	}

	var trees signedTrees

	demand := func(when string, want bool) {
		t.Helper()

		if got := trees.includes(7, thief); got != want {
			t.Errorf("%s, the entry is in a tree of another node: %t", when, got)
		}
	}

	trees.note(followed(10), alpha, 1, []Testimony{states(thief, 1, 10, 1), states(other, 1, 7, 1)})
	demand("in a tree of its announcer alone", false)

	trees.note(followed(10), alpha, 1, []Testimony{states(other, 1, 9, 2)})
	demand("in a fork", false)

	trees.note(followed(10), alpha, 1, []Testimony{states(other, 2, 9, 1)})
	demand("in another epoch", false)

	// The thief of its key may have stated a size before that the ledger never reaches.
	trees.note(followed(10), alpha, 1, []Testimony{states(other, 1, 1<<40, 1)})
	trees.note(followed(10), alpha, 1, []Testimony{states(other, 1, 11, 1)})
	demand("in a part that was not followed", false)

	// The node goes on, and the ledger was followed as far as it had stated before.
	trees.note(followed(11), alpha, 1, []Testimony{states(other, 1, 15, 1)})
	demand("in a part that was followed meanwhile", true)

	trees.note(followed(11), alpha, 2, []Testimony{states(other, 2, 12, 2)})
	demand("in a new epoch", false)

	// A tree that was ahead, and is of a fork, leaves room for the next one.
	trees.note(followed(12), alpha, 2, []Testimony{states(other, 2, 15, 1)})
	trees.note(followed(15), alpha, 2, nil)
	demand("in a part that was followed behind a fork", true)
}

package replica

import (
	"maps"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A Ledger has the ledgers of origins, as far as this node has followed them.
type Ledger interface {
	// Begins reports whether an origin's ledger of an epoch begins with a tree, and whether it was followed so far.
	Begins(origin spiffeid.TrustDomain, epoch, size uint64, root directory.Hash) (begins, followed bool)
	// Lacks reports whether an origin's ledger was followed beyond an index and has no such statement there. It fails
	// if this node can't read that.
	Lacks(origin spiffeid.TrustDomain, index uint64, statement directory.Hash) (bool, error)
}

// signedTrees are the trees of an origin's ledger that its nodes have signed in heads. The ledger's copy may have
// come from the node that invented a statement, so an entry counts as logged only in a tree that another one signed.
// The loop that confirms the origin uses it alone.
type signedTrees struct {
	epoch uint64
	sizes map[spiffeid.ID]uint64    // by node, of the largest tree with which the ledger as followed begins
	ahead map[spiffeid.ID]Testimony // by node, of a tree that the ledger was not followed to yet
}

// note takes the trees of testimonies, and those of earlier ones that the ledger has been followed to meanwhile.
func (s *signedTrees) note(held Ledger, origin spiffeid.TrustDomain, epoch uint64, all []Testimony) {
	if s.epoch != epoch || s.sizes == nil {
		*s = signedTrees{epoch: epoch, sizes: map[spiffeid.ID]uint64{}, ahead: map[spiffeid.ID]Testimony{}}
	}

	for _, stated := range append(slices.Collect(maps.Values(s.ahead)), all...) {
		if stated.At.Epoch != epoch {
			continue
		}

		switch begins, followed := held.Begins(origin, epoch, stated.Size, stated.Root); {
		case begins:
			s.sizes[stated.Node] = max(s.sizes[stated.Node], stated.Size)
			delete(s.ahead, stated.Node)
		case followed:
			delete(s.ahead, stated.Node)
		default:
			// The smaller tree stays, which the ledger is followed to first.
			if waits, is := s.ahead[stated.Node]; !is || stated.Size < waits.Size {
				s.ahead[stated.Node] = stated
			}
		}
	}
}

// includes reports whether a tree that another node than by has signed has an entry at an index.
func (s *signedTrees) includes(index uint64, by spiffeid.ID) bool {
	for node, size := range s.sizes {
		if node != by && index < size {
			return true
		}
	}

	return false
}

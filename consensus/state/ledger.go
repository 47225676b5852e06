package state

import (
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
)

// The types of ledger leaves (federation.md, "Bytes"): a leaf is this byte and
// the SHA-256 of a payload. Leaves disclose nothing. Type 4, a bundle's JWKS,
// comes with the command that changes bundles, and 7 with heads of members' audit trails
// ({v, iss, epoch, at, node, lines, head}).
const (
	leafStatement = 1
	leafAnnounced = 2
	leafKeys      = 3
	leafEpoch     = 5
	leafCommand   = 6
)

// A frontier is the right edge of the domain's append-only Merkle tree
// (RFC 6962, 2.1): all that appending and the root need, 32 bytes for each bit
// set in its size.
type frontier struct {
	size  uint64
	edges []tlog.Hash // of the complete subtrees, the largest first
}

// append adds the leaf of a payload and returns its index.
func (f *frontier) append(leaf byte, payload []byte) uint64 {
	digest := directory.HashOf(payload)

	h := tlog.RecordHash(append([]byte{leaf}, digest[:]...))
	for n := f.size; n&1 == 1; n >>= 1 {
		last := len(f.edges) - 1
		h = tlog.NodeHash(f.edges[last], h)
		f.edges = f.edges[:last]
	}

	f.edges = append(f.edges, h)
	f.size++

	return f.size - 1
}

// root returns the root of the tree as it is.
func (f *frontier) root() directory.Hash {
	if f.size == 0 {
		return directory.HashOf(nil)
	}

	h := f.edges[len(f.edges)-1]
	for i := len(f.edges) - 2; i >= 0; i-- {
		h = tlog.NodeHash(f.edges[i], h)
	}

	return directory.Hash(h)
}

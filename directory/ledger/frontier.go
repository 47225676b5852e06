package ledger

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
)

// The types of entries (federation.md, "Bytes").
const (
	Statement = 1
	Announced = 2
	Keys      = 3
	Bundle    = 4
	Epoch     = 5
	Command   = 6
	AuditHead = 7
)

// An Entry is a log's record of a payload: its type and its SHA-256.
type Entry [1 + sha256.Size]byte

// EntryOf returns the entry of a payload of a type.
func EntryOf(kind byte, payload []byte) Entry { return EntryOfHash(kind, directory.HashOf(payload)) }

// EntryOfHash returns the entry of a payload with a hash.
func EntryOfHash(kind byte, payload directory.Hash) (e Entry) {
	e[0] = kind
	copy(e[1:], payload[:])

	return e
}

// Hash returns the hash of the entry's leaf.
func (e Entry) Hash() directory.Hash { return directory.Hash(tlog.RecordHash(e[:])) }

// A Frontier is the right edge of a log's tree (RFC 6962, 2.1): 32 bytes for each bit set
// in its size. The zero value is that of an empty log.
type Frontier struct {
	Size  uint64
	Edges []tlog.Hash // of the complete subtrees, the largest first
}

// Append appends an entry and returns its index.
func (f *Frontier) Append(e Entry) uint64 {
	h := tlog.Hash(e.Hash())

	// Each 1 at the end of the size is a complete subtree as large as the one that h tops.
	for n := f.Size; n&1 == 1; n >>= 1 {
		last := len(f.Edges) - 1
		h = tlog.NodeHash(f.Edges[last], h)
		f.Edges = f.Edges[:last]
	}

	f.Edges = append(f.Edges, h)
	f.Size++

	return f.Size - 1
}

// Root returns the root of the tree as it is.
func (f *Frontier) Root() directory.Hash {
	if f.Size == 0 {
		return directory.HashOf(nil)
	}

	h := f.Edges[len(f.Edges)-1]
	for i := len(f.Edges) - 2; i >= 0; i-- {
		h = tlog.NodeHash(f.Edges[i], h)
	}

	return directory.Hash(h)
}

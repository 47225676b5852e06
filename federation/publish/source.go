package publish

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A Source is the own domain's committed state, from which its pages, heads and records are
// made (rules G2, G4, G5). All methods are local and never block.
type Source interface {
	// Position is the epoch and the revision applied.
	Position() directory.Position
	// Changed returns a channel that is closed when Position moves on.
	Changed() <-chan struct{}
	// Digests lists those of the stream's entries whose latest announced
	// revision lies above since, ascending and at most limit of them. The list is
	// complete up to to, as of revision at.
	Digests(aud directory.Audience, since uint64, limit int) (ds []signed.Digest, to, at uint64)
	// Tip is the highest revision ever announced in the stream.
	Tip(aud directory.Audience) uint64
	// Record returns the statement and the disclosures of that name that the
	// stream may have.
	Record(aud directory.Audience, h, m directory.Hash) (payload []byte, disclosures []string, ok bool)
	// Current returns a registration's digest in the stream.
	Current(rid directory.RID, aud directory.Audience) (signed.Digest, bool)
	// KeyDocument is the newest one; nil until one was issued.
	KeyDocument() *signed.KeyDocument
	// Ledger is the size and the root of the domain's log.
	Ledger() (size uint64, root directory.Hash)
	// Format is the format in which heads and mesh pages are written.
	Format(structure signed.Structure) uint
	// IsLeader reports whether this node leads its domain.
	IsLeader() bool
}

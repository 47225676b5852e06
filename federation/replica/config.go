package replica

import (
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Config is the part of the node's configuration that origins need.
type Config struct {
	Domain         spiffeid.TrustDomain
	Keys           KeyDocuments
	View           *index.View
	Dialect        signed.Dialect
	Logger         *slog.Logger
	Panics         *contain.Panics
	Records, Bytes uint64 // records of one origin if its peering has no quotas; 0 for any

	// Entries is the number of a stream's entries, without their records, for which there is room at any quota:
	// those over the quota of records are found again when that is raised.
	Entries int

	// IsShort reports whether the node is short of memory, so that the records of an origin on disk
	// are not shown when it starts.
	IsShort func() bool

	// Ledger shows whether statements are in the ledger of their origin; nil if this node follows none.
	Ledger Ledger

	// Doubted is called when a node of an origin is distrusted.
	Doubted func(spiffeid.TrustDomain, Doubtful)

	// SilentAfter is the silence after which an origin is unreachable: the constant, at the
	// node's pace.
	SilentAfter func() time.Duration
}

// KeyDocuments keeps the key documents of origins.
type KeyDocuments interface {
	Adopt(origin spiffeid.TrustDomain, jws string) (*signed.KeyDocument, error)
	Keys(origin spiffeid.TrustDomain) (doc *signed.KeyDocument, jws string, ok bool)
	// Certifies reports whether a present authority of origin certified an SVID that attested
	// the key, if only in the past.
	Certifies(origin spiffeid.TrustDomain, key signed.SigningKey) bool
	// Replace verifies a key document and puts it in the place of the adopted one, even if that is newer.
	Replace(origin spiffeid.TrustDomain, jws string) error
}

// Deps are the dependencies that all origins share.
type Deps struct {
	Cfg      *Config
	Store    *store.Store
	Records  *Gate
	Refusals *RefusalLog
	Moved    func()        // wakes readers that wait for a position
	Judge    chan struct{} // has an item if a policy has changed
}

// Wake wakes the loop that waits on c, or keeps it from its next wait.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

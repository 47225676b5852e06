package replica

import (
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A PeerStatus is the state of one peering as this node observes it.
type PeerStatus struct {
	Domain spiffeid.TrustDomain
	// active, behind, failing, unsupported, unlisted or unknown; or the state of the peering
	// itself, if that isn't active
	State        string
	Position     directory.Position // applied
	Watermark    uint64
	Tip          uint64 // of its stream, as far as known
	LagRevisions uint64
	LagSeconds   float64
	HeadAge      time.Duration            // of its last verified word; 0 if there was none
	LastHeard    time.Time                // zero for never
	LastError    string                   // empty once something worked again
	Entries      uint64                   // held, the pending ones too
	Pending      int                      // of which records are missing
	Unlisted     bool                     // it doesn't export to this domain
	Hidden       bool                     // its records are hidden, because it is silent
	Records      uint64                   // held on disk, of both of its streams
	Bytes        uint64                   // of them
	RecordsLimit uint64                   // 0 for none
	BytesLimit   uint64                   // as RecordsLimit
	OverQuota    uint64                   // entries for whose records the peering's quotas have no room
	BytesIn      uint64                   // of response bodies from its nodes
	BytesOut     uint64                   // of response bodies to its nodes
	GossipIn     uint64                   // bytes that its nodes gossiped to this one
	GossipOut    uint64                   // and that this one gossiped to them
	Received     map[protocol.Code]uint64 // messages about it, from any sender
	Refused      map[protocol.Code]uint64 // messages from its nodes, about any origin

	// Unsupported says why a later release is needed to follow the peer; "" if none is.
	// Unopened counts the stored records that need a later release, by format.
	Unsupported string
	Unopened    map[string]uint64
}

// MaxHeadAge is how old an origin's last word may be for it still to be called
// active (federation.md, "Peering").
const MaxHeadAge = 180 * time.Second

package replica

import (
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A PeerStatus is what this node knows of one peering, from its own observation.
type PeerStatus struct {
	Domain spiffeid.TrustDomain
	// active, behind, failing, unsupported or unlisted; or the peering's own, where that isn't active
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
	Unlisted     bool                     // it lets this domain have nothing
	Hidden       bool                     // what it told, because it wasn't heard for long
	Records      uint64                   // held on disk, of both of its streams
	Bytes        uint64                   // of them
	RecordsLimit uint64                   // 0 for none
	BytesLimit   uint64                   // as RecordsLimit
	OverQuota    uint64                   // entries for whose records the peering's quotas have no room
	BytesIn      uint64                   // of the bodies that its nodes answered
	BytesOut     uint64                   // of those that its nodes were answered
	GossipIn     uint64                   // bytes that its nodes gossiped to this one
	GossipOut    uint64                   // and that this one gossiped to them
	Received     map[protocol.Code]uint64 // messages that name it, whoever brought them
	Refused      map[protocol.Code]uint64 // messages that its nodes brought, whomever they name

	// Unsupported says for what a later release is needed to follow the peer; "" for
	// nothing. Unopened are the records that are held and wait for a later release, by
	// their format.
	Unsupported string
	Unopened    map[string]uint64
}

// MaxHeadAge is how old an origin's last word may be for it still to be called
// active (federation.md, "Peering").
const MaxHeadAge = 180 * time.Second

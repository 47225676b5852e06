package replica

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Sender says which domain's node handed a message over, and how.
type Sender struct {
	Domain spiffeid.TrustDomain
	Pushed bool // without being asked
	Again  bool // it was postponed once (putAside)
}

// A Claim holds the members that Origin.Admit checks, of a page or a head.
type Claim struct {
	Issuer   spiffeid.TrustDomain
	Aud      directory.Audience
	Epoch    uint64
	IssuedAt int64
	Digests  int
}

// A Page is one that passed the gate; accept has the last word (G3).
type Page struct {
	*signed.Page
	Text       string
	KeyID      string
	VerifiedAt time.Time
}

// Last reports whether the node has no page behind p. A link of a relay's chain says
// only that it was the tip once.
func (p *Page) Last(n protocol.Node) bool { return p.To == p.At && n.Domain == p.Issuer }

// A Pushed message came unasked.
type Pushed struct {
	From Sender
	Msg  string
}

// future is how far ahead of a reader's time a message may have been issued.
const future = 60 * time.Second

var errQuota = errors.New("origin exceeds its announcement quota")

var errEpoch = errors.New("epoch is over")

var errFuture = errors.New("issued in the future; check the clocks")

var ErrUnlisted = errors.New("the origin does not export to this domain")

var ErrPeeringEnd = errors.New("the peering has ended")

const originRate = 20_000 // digests a second

const OriginBurst = 200_000

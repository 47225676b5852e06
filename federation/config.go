package federation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/publish"
)

// A Keyring signs as this node and verifies by each origin's newest key document.
type Keyring interface {
	Sign(typ string, payload []byte) (string, error)
	// Verify's errors are signed.ErrKeyUnknown, ErrKeyRevoked, ErrHeader, and
	// ErrSignature for anything else.
	Verify(origin spiffeid.TrustDomain, typ, jws string) (payload []byte, kid string, err error)
	// Adopt verifies a key document and keeps the newer one.
	Adopt(origin spiffeid.TrustDomain, jws string) (*signed.KeyDocument, error)
	// Keys returns the adopted key document; for the own domain the newest, signed by this
	// node.
	Keys(origin spiffeid.TrustDomain) (doc *signed.KeyDocument, jws string, ok bool)
	// Certifies reports whether a present authority of origin certified an SVID that attested
	// the key, if only in the past.
	Certifies(origin spiffeid.TrustDomain, key signed.SigningKey) bool
	// VerifyBy verifies a key document without regard to the adopted one, and a JWS by that document. It
	// returns the document, and the payload and the key of the JWS.
	VerifyBy(origin spiffeid.TrustDomain, document, typ, jws string) (doc *signed.KeyDocument, payload []byte,
		key signed.SigningKey, err error)
	// Replace verifies a key document and puts it in the place of the adopted one, even if that is newer.
	Replace(origin spiffeid.TrustDomain, jws string) error
}

// Config configures a Mesh. Fields without a default are required.
type Config struct {
	Domain spiffeid.TrustDomain
	Node   spiffeid.ID
	// Inside reports whether an identity is of this domain, or of a token issuer that its
	// configuration calls its own. No peer's record may name such an identity.
	Inside func(directory.Identity) bool
	// PublicURL is the domain's base URL for the types of problems in answers; if it is
	// empty, these types are relative.
	PublicURL string
	// Address is the base URL of this node's API, which its requests state to the nodes of peers; if it
	// is empty, they state no address.
	Address string
	Dir     string // of the store; must exist
	Source  publish.Source
	Keys    Keyring
	// LogKeys returns the keys that may sign checkpoints of an origin's present ledger; nil follows
	// no ledgers.
	LogKeys func(origin spiffeid.TrustDomain) []checkpoint.VerifierKey
	// WitnessKeys returns the keys by which nodes of a domain cosign checkpoints; required with LogKeys.
	WitnessKeys func(domain spiffeid.TrustDomain) []checkpoint.VerifierKey
	// Cosigned returns the last checkpoint of a log that the domain has cosigned, or an empty string.
	Cosigned func(log string) (note string)
	View     *index.View
	Peerings func() []directory.Peering // the domain's replicated peerings
	// Member reports whether a node of the own domain is a member of it.
	Member func(spiffeid.ID) bool
	// Siblings returns the base URLs of the domain's other nodes.
	Siblings func() []string
	Client   func(peer spiffeid.TrustDomain) *http.Client // connects to nodes of that domain only
	// Gossip configures gossip; nil disables it. The Mesh sets Traffic, Panics and Stretch.
	Gossip *gossip.Config
	// Farewell is called when a node of a peer states that its domain has ended the peering.
	Farewell func(context.Context, spiffeid.TrustDomain, *directory.OperatorRequest) error
	// Doubted is called when a node of a peer is distrusted, because other nodes of the peer
	// contradict it.
	Doubted   func(peer spiffeid.TrustDomain, node Doubtful)
	Verifier  evidence.Verifier
	Dialect   signed.Dialect  // supported formats; zero is format 1 of everything
	Logger    *slog.Logger    // nil discards
	Tracer    *span.Tracer    // nil records nothing
	Panics    *contain.Panics // counts panics on foreign bytes; nil creates a new counter
	HeadEvery time.Duration   // between heads of one origin; 60 s by default
	Stretch   Stretch         // of this node's pace; nil is 1
	// Records and Bytes limit the number and the total size of one origin's records, if its
	// peering doesn't set a limit; 0 is unlimited.
	Records, Bytes uint64
	// MemoryLimit is how much memory the process may use, in bytes, and MemoryInUse the share of it
	// that the process needs. Near the limit, the largest origins are not shown.
	MemoryLimit int64
	MemoryInUse func() float64

	noSync bool // for tests of behaviour, not of disks
}

// A Stretch returns the factor by which a node lengthens the waits before periodic work:
// comparisons, removal of expired entries, retries. It is called before each wait and is at
// least 1. It serves simulations of idle weeks, whose cost is this periodic work.
type Stretch func() float64

// of returns d at the pace of s.
func (s Stretch) of(d time.Duration) time.Duration {
	if s == nil {
		return d
	}

	return time.Duration(float64(d) * s())
}

// withDefaults returns c with defaults filled in, or an error that names the invalid field.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Domain.IsZero():
		return c, errors.New("federation: Domain is missing")
	case c.Node.TrustDomain() != c.Domain:
		return c, fmt.Errorf("federation: Node %s is not of Domain %s", c.Node, c.Domain)
	case c.Dir == "":
		return c, errors.New("federation: Dir is missing")
	case c.Source == nil || c.Keys == nil || c.View == nil || c.Peerings == nil || c.Client == nil:
		return c, errors.New("federation: Source, Keys, View, Peerings and Client are required")
	}

	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))

	if c.Panics == nil {
		c.Panics = contain.New(c.Logger)
	}

	if c.HeadEvery <= 0 {
		c.HeadEvery = 60 * time.Second
	}

	return c, nil
}

// headPause is HeadEvery with a tenth of jitter.
func (c *Config) headPause() time.Duration {
	return time.Duration(float64(c.Stretch.of(c.HeadEvery)) * (0.9 + 0.2*rand.Float64()))
}

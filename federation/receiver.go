package federation

import (
	"sync"
	"sync/atomic"

	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An reporter learns what an origin signed twice, and that an origin's key document was
// taken.
type reporter interface {
	accuse(o *origin, pages, keys []string) (convicted bool)
	recall(o *origin)
}

// A receiver takes messages of other domains: pages, heads, key documents and records.
type receiver struct {
	cfg      *Config
	store    *store.Store
	client   *protocol.Client
	origins  *originSet
	access   *access
	refusals *refusalLog
	records  *recordGate
	gate     *gate
	evidence reporter // nil without a Court
}

// A puller asks nodes for page after page.
type puller struct {
	cfg      *Config
	store    *store.Store
	client   *protocol.Client
	receiver *receiver
	gate     *gate
	records  *recordGate
}

// neighbours knows which nodes there are to ask.
type neighbours struct {
	cfg     *Config
	origins *originSet
}

// A follower runs the loops that follow an origin.
type follower struct {
	cfg        *Config
	store      *store.Store
	client     *protocol.Client
	origins    *originSet
	access     *access
	neighbours *neighbours
	receiver   *receiver
	puller     *puller
	gossip     relay
}

// A relay passes verified messages on.
type relay interface {
	passOn(origin spiffeid.TrustDomain, msg string)
}

// A crossChecker compares what an origin told this node with what it told others.
type crossChecker struct {
	cfg        *Config
	client     *protocol.Client
	neighbours *neighbours
	receiver   *receiver
	gate       *gate
	evidence   reporter
}

// A prosecutor makes, judges, keeps and shows evidence.
type prosecutor struct {
	cfg        *Config
	cases      *cases
	client     *protocol.Client
	origins    *originSet
	access     *access
	neighbours *neighbours
	receiver   *receiver
	refusals   *refusalLog

	freezing sync.Mutex // held while frozen is made
	frozen   atomic.Pointer[[]spiffeid.TrustDomain]
}

// A gossipFeed is what this node tells the mesh's pool, and what it hears from there.
type gossipFeed struct {
	cfg       *Config
	publisher *publish.Publisher
	origins   *originSet
	access    *access
	gate      *gate
	receiver  *receiver
	refusals  *refusalLog
	senders   senders
	gossiped  protocol.Traffic
	ownHeard  atomic.Uint64 // how far another member gossiped the own stream

	mu   sync.Mutex // guards what follows
	pool gossiper   // nil while gossip is off
}

// A prover finds what proves a registration.
type prover struct {
	cfg        *Config
	store      *store.Store
	client     *protocol.Client
	publisher  *publish.Publisher
	origins    *originSet
	neighbours *neighbours
	receiver   *receiver
}

// holdings is what this node can give to others.
type holdings struct {
	cfg       *Config
	store     *store.Store
	publisher *publish.Publisher
	origins   *originSet
	access    *access
}

// A reopener opens records again.
type reopener struct {
	cfg     *Config
	store   *store.Store
	records *recordGate
}

// upkeep runs the loops that look after all origins.
type upkeep struct {
	cfg     *Config
	origins *originSet
	judge   chan struct{}
}

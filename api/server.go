package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
)

// A Registry takes changes for this node's domain, on whatever member it runs,
// and says how far the domain's history has come here. Its errors are
// *directory.Error.
type Registry interface {
	Register(context.Context, directory.Registering) (directory.Outcome, error)
	Refresh(context.Context, directory.Refreshing) (directory.Outcome, error)
	// RefreshMany is Refresh of many, each with an outcome of its own.
	RefreshMany(context.Context, directory.RefreshingMany) (directory.Outcome, error)
	Remove(context.Context, directory.Removing) (directory.Outcome, error)
	TransferOwner(context.Context, directory.Transferring) (directory.Outcome, error)
	// Position is that of the last change that this node's answers show.
	Position() directory.Position
	// Heard is how long ago the domain's leader was heard; 0 on the leader.
	Heard() time.Duration
	// Linearize returns nil once this node's answers show all that any node of the
	// domain had acknowledged before the call, and Unavailable at once where no
	// majority confirms that.
	Linearize(context.Context) error
}

// A Policy says who may do what. The zero identity is an anonymous caller.
type Policy interface {
	Register(id directory.Identity, agent string, p *directory.Projection, v directory.Visibility) directory.Decision
	// OnBehalf is asked where a commissioning tool names another owner.
	OnBehalf(tool, owner directory.Identity, agent string, p *directory.Projection, v directory.Visibility) directory.Decision
	Read(id directory.Identity, e *directory.Entry) directory.Decision
	// Operate is asked for an operator's route with its action, such as raft.read.
	Operate(id directory.Identity, action string) directory.Decision
	// Commission is whether id may change what others own.
	Commission(id directory.Identity) bool
	// Invoke is asked where there is a gateway.
	Invoke(id directory.Identity, e *directory.Entry) directory.Decision
	DefaultVisibility() directory.Visibility
	// Version is that of the domain's policy by which the next answers are, at least.
	Version() uint64
	// Generation counts what the answers depend on: it changes after they do, at once.
	Generation() uint64
	// Changed is closed when Generation is another one than when it was asked.
	Changed() <-chan struct{}
}

// Records hands out the signed evidence for a registration of any domain.
type Records interface {
	// Record is the registration's signed record, an SD-JWT in compact form with
	// the disclosures that this domain has.
	Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error)
	// Proof is the registration's proof file, JSON that roster verify reads.
	Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error)
}

// A Finder finds registrations by what they can do: a *discovery.Finder. What is
// in the View when Find is called is searched. Its errors are the context's, and
// *discovery.UnsupportedError.
type Finder interface {
	Find(context.Context, discovery.Query) (*discovery.Result, error)
	// Explain says what becomes of an entry of the View in a query. Its errors are
	// Find's, and discovery.ErrUnknown where the reader doesn't see it.
	Explain(context.Context, discovery.Query, *directory.Entry) (*discovery.Explanation, error)
	// About tells what it answers by.
	About() discovery.About
	// Flagged lists the registrations that are flagged: at most limit, by origin and rid.
	Flagged(limit int) []discovery.FlaggedEntry
}

// DefaultMaxStale is how long after the leader was last heard default reads
// are still answered.
const DefaultMaxStale = 300 * time.Second

// Config is what a Server needs. Domain, PublicURL, Registry, View, Policy and
// Finder are required.
type Config struct {
	Domain    spiffeid.TrustDomain
	PublicURL string // the domain's, https://HOST[:PORT] without a slash behind it
	// Service is the public URL of another domain; empty where it is not known.
	Service  func(spiffeid.TrustDomain) string
	Registry Registry
	View     *index.View
	Policy   Policy
	Finder   Finder
	// Panics counts those on entries that can't be shown; nil counts nothing.
	Panics *contain.Panics
	// StrictFilters takes every request for discovery as strict: a filter that can't be
	// applied fails it (XU-012).
	StrictFilters bool
	// Fronts is whether this node's gateway calls an agent. Nil is a node without a
	// gateway.
	Fronts func(*directory.Entry) bool
	// Identify is who was verified to make the request. No error and the zero
	// identity is an anonymous caller; an error is a credential that doesn't hold.
	Identify func(*http.Request) (Credential, error)
	Takes    Takes
	// CredentialLives is how many lifetimes of its registrant's credential a
	// registration is granted at most (jimenez 8.2); 0 is any number.
	CredentialLives uint32
	// Spend uses up a proof by which a request came that is no change and yet has an
	// effect for longer than the proof holds, until when it could be shown again (Unix
	// seconds): Replayed where it was used before, at any node of the domain. Without it
	// no such request may come by a proof.
	Spend func(ctx context.Context, proof directory.Hash, until int64) error
	// Refused is told the reason of a 401 that was found behind Identify; may be nil.
	Refused func(reason string)
	Records Records
	// Probed is what asking an agent what it is came to, where that is known; nil where
	// nobody asks.
	Probed func(*directory.Entry) (directory.Probe, bool)
	// Frozen are the domains that nothing is taken from any more: what is shown of
	// them is disputed. It is asked for each item, and its answer isn't changed. May
	// be nil.
	Frozen func() []spiffeid.TrustDomain
	// Bundle is this domain's SPIFFE trust bundle, for anyone; nil where it is not
	// served.
	Bundle func() ([]byte, error)
	// Federation serves /federation/v1/ and decides itself who may call.
	Federation http.Handler
	// Settled is whether this node has had all that its domain had, once since it
	// was started: until then it reads its own log again, and answers no default
	// read of its domain. Nil is yes.
	Settled func() bool
	// Reached is how far another domain's history has come at this node.
	Reached func(spiffeid.TrustDomain) (directory.Position, bool)
	// Await waits until this node has reached a position of a domain's history, its
	// own or another's, and returns the context's error when that ends first. Nil
	// never waits.
	Await    func(context.Context, spiffeid.TrustDomain, directory.Position) error
	Trail    Trail // told of every change; nil for no audit trail
	Operator Operator
	Peerings Peerings // with Operator; none where it is nil
	Cluster  Cluster  // with Backups: routes of an operator; none where it is nil
	Backups  Backups
	// Gateway invokes agents; there are no routes for that where it is nil.
	Gateway       Gateway
	MaxInvocation int64         // bytes of an invocation's body; DefaultMaxInvocation where it is 0
	MaxStale      time.Duration // DefaultMaxStale where it is 0
	Limits        Limits
	// MinLifetime is the shortest lifetime that may be asked for, in seconds, and Terms
	// what holds for some callers instead of that and of Limits.
	MinLifetime uint32
	Terms       []Terms
	// How many streams of events there may be, at the node and of one caller;
	// DefaultMaxWatches and DefaultMaxWatchesEach where they are 0.
	MaxWatches, MaxWatchesEach int
	// Workers is how many requests are worked on at once, and Waiting how many wait for
	// that; a few for each processor, and 4,096, where they are 0. Beyond them requests
	// are shed: queries first, then lookups, registrations, and refreshes last.
	Workers, Waiting int
	// MemoryInUse is what share of its memory limit the process needs; nil is never
	// short of memory.
	MemoryInUse func() float64
	Shed        func(class string) // is told of each request that is shed; may be nil
	Logger      *slog.Logger       // nobody is told where it is nil
	// Observe is told of every answer, with the route as the table has it; may be nil.
	Observe func(method, route string, status int, took time.Duration)
}

// A Server answers a node's HTTP requests.
type Server struct {
	cfg       Config
	log       *slog.Logger
	limits    *limiter
	described func() *description // what the node says of its own surface
	watches   *watches
	items     items
	pages     *http.CrossOriginProtection // against those of other sites (OPS-021)
	awaiting  shares                      // the reads that wait
	unread    unread                      // the answers that do
	overload  *overload
	tools     func() http.Handler // MCP, behind s.mcp
	fronted   *woaPages           // of the Web of Agents document
	handler   http.Handler
}

// New returns a server over cfg.
func New(cfg Config) *Server {
	if cfg.MaxStale == 0 {
		cfg.MaxStale = DefaultMaxStale
	}
	if cfg.Service == nil {
		cfg.Service = func(spiffeid.TrustDomain) string { return "" }
	}
	if cfg.Identify == nil {
		cfg.Identify = func(*http.Request) (Credential, error) { return Credential{}, nil }
	}
	if cfg.Spend == nil {
		cfg.Spend = func(context.Context, directory.Hash, int64) error {
			return directory.Refuse(directory.Unavailable, "This node keeps no proofs; use a client certificate.")
		}
	}
	if cfg.Refused == nil {
		cfg.Refused = func(string) {}
	}
	if cfg.Reached == nil {
		cfg.Reached = func(spiffeid.TrustDomain) (directory.Position, bool) { return directory.Position{}, false }
	}
	if cfg.Settled == nil {
		cfg.Settled = func() bool { return true }
	}
	if cfg.Await == nil {
		cfg.Await = func(context.Context, spiffeid.TrustDomain, directory.Position) error { return context.DeadlineExceeded }
	}
	if cfg.Trail != nil {
		cfg.audit()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Registry = yieldingRegistry{cfg.Registry}
	if cfg.Records != nil {
		cfg.Records = yieldingRecords{cfg.Records}
	}
	s := &Server{cfg: cfg, overload: newOverload(&cfg), awaiting: newShares(maxAwaiting, maxAwaitingEach), unread: newUnread(maxUnread), log: cfg.Logger, limits: newLimiter(cfg.Limits, cfg.Terms), watches: newWatches(cfg.MaxWatches, cfg.MaxWatchesEach), fronted: newWoAPages()}
	s.pages = http.NewCrossOriginProtection()
	_ = s.pages.AddTrustedOrigin(cfg.PublicURL) // which has the form of one
	s.described = sync.OnceValue(s.describe)
	s.tools = sync.OnceValue(s.newMCP)
	s.handler = s.observe(s.limit(s.route()))
	return s
}

// Handler returns the handler of the API listener. It expects a verified client
// certificate, where there is one, in the request's TLS state.
func (s *Server) Handler() http.Handler { return s.handler }

// A row is one route: a method at a path, who may call it, and what answers.
// Braces in a path hold the name of one variable segment.
type row struct {
	method, path string
	who          access
	do           handler
}

// table is every route of the API listener, grouped by who may call it. HEAD,
// OPTIONS and 405 follow from it (AD-078).
func (s *Server) table() []row {
	rows := []row{
		// Anyone.
		{"GET", "/.well-known/ad", anyone, s.wellKnown},
		{"GET", "/.well-known/agent-discovery", anyone, s.discoverer},
		{"GET", "/.well-known/api-catalog", anyone, s.apiCatalog},
		{"GET", woaPath, anyone, s.woa},
		{"GET", "/openapi.json", anyone, s.openAPI},
		{"GET", "/schemas/{kind}.json", anyone, s.schema},
		{"GET", "/problems/{name}", anyone, s.problemPage},

		// Whoever policy lets read what is asked for.
		{"GET", "/ad/l", reader, s.lookup},
		{"GET", "/ad/watch", watcher, s.watch},
		{"GET", "/ad/r/{id}", reader, s.get},
		{"GET", "/discovery/agents/{id}", reader, s.getProfile},
		{"POST", "/discovery/query", querier, s.query},
		{"GET", "/ad/r/{id}/record", reader, s.record},
		{"GET", "/ad/r/{id}/proof", reader, s.proof},
		{"GET", "/ad/r/{origin}/{id}", reader, s.get},
		{"GET", "/ad/r/{origin}/{id}/record", reader, s.record},
		{"GET", "/ad/r/{origin}/{id}/proof", reader, s.proof},
		{"GET", "/agents", reader, s.agents},
		{"GET", "/agents/{id}", reader, s.agent},
		{"POST", "/agents/search", querier, s.searchAgents},

		// Whoever may ask what the tools ask.
		{"POST", "/mcp", toolUser, s.mcp},

		// A verified identity: to register if policy lets it, and then the owner
		// and commissioning tools.
		{"POST", "/ad/r", identified, s.register},
		{"POST", "/ad/r/{id}/transfer", identified, s.transferOwner},
		{"POST", "/ad/refresh", refresher, s.refreshMany},
		{"POST", "/discovery/agents", identified, s.publish},
		{"PUT", "/discovery/agents/{id}", identified, s.replaceProfile},
		{"DELETE", "/discovery/agents/{id}", identified, s.remove},
		{"POST", "/ad/r/{id}", updater, s.update},
		{"DELETE", "/ad/r/{id}", identified, s.remove},
		{"POST", "/ad/r/{origin}/{id}", updater, s.update},
		{"DELETE", "/ad/r/{origin}/{id}", identified, s.remove},
		{"POST", "/agents", identified, s.publishAgent},
		{"PUT", "/agents/{id}", identified, s.replaceAgent},
		{"DELETE", "/agents/{id}", identified, s.remove},
	}
	if s.cfg.Finder != nil {
		rows = append(rows,
			row{"POST", "/agents/resolve", querier, s.resolve},
		)
	}
	if s.cfg.Bundle != nil {
		rows = append(rows, row{"GET", BundlePath, anyone, s.bundle})
	}
	if len(s.cfg.Takes.Issuers) > 0 {
		rows = append(rows, row{"GET", resourcePath, anyone, s.protectedResource})
	}
	if s.cfg.Gateway != nil {
		rows = append(rows,
			// Whoever policy lets invoke the agent.
			row{"POST", "/agents/{id}/invoke", invoker, s.invoke},
			row{"POST", "/agents/{id}/{operation}", invoker, s.invoke},
		)
	}
	if s.cfg.Operator != nil {
		rows = append(rows,
			// Operators.
			row{"GET", "/v1/operator/raft", operator("raft.read"), s.raft},
			row{"GET", "/v1/operator/members", operator("members.read"), s.members},
			row{"GET", "/v1/operator/peers", operator("peer.read"), s.peers},
			row{"GET", "/v1/operator/peers/evidence", operator("peer.read"), s.evidence},
			row{"POST", "/v1/operator/peers", operator("peer.write"), s.setPeering},
			row{"GET", "/v1/operator/keys", operator("keys.read"), s.keys},
			row{"POST", "/v1/operator/keys/rotate", operator("keys.write"), s.rotateKey},
			row{"POST", "/v1/operator/keys/revoke", operator("keys.write"), s.revokeKey},
			row{"GET", "/v1/operator/policy", operator("policy.read"), s.policy},
			row{"PUT", "/v1/operator/policy", operator("policy.write"), s.setPolicy},
			row{"GET", wire.OwnedPath, operator("registration.read"), s.owned},
			row{"POST", wire.OwnedPath + "/end", operator("registration.write"), s.disown},
		)
	}
	if s.cfg.Peerings != nil {
		rows = append(rows,
			row{"POST", "/v1/operator/peers/invite", operator("peer.write"), s.invite},
			row{"POST", "/v1/operator/peers/accept", operator("peer.write"), s.accept},
			row{"POST", "/v1/operator/peers/change", operator("peer.write"), s.changePeering},
			// Whoever has the secret of an invitation.
			row{"POST", wire.RedeemPath, guest, s.redeem},
		)
	}
	if s.cfg.Operator != nil && s.cfg.Finder != nil {
		rows = append(rows, row{"GET", "/v1/operator/flagged", operator("flagged.read"), s.flagged})
	}
	if s.cfg.Cluster != nil {
		rows = append(rows,
			row{"POST", "/v1/operator/raft/transfer", operator("raft.write"), s.transfer},
			row{"POST", "/v1/operator/raft/remove", operator("raft.write"), s.removeMember},
			row{"POST", "/v1/operator/raft/admit", operator("raft.write"), s.admitMember},
			row{"POST", "/v1/operator/raft/leave", operator("raft.write"), s.leave},
		)
	}
	if s.cfg.Backups != nil {
		rows = append(rows,
			row{"GET", "/v1/operator/snapshot", operator("snapshot.read"), s.saveSnapshot},
			row{"POST", "/v1/operator/snapshot", operator("snapshot.write"), s.restoreSnapshot},
		)
	}
	if s.cfg.Federation != nil {
		rows = append(rows,
			// Nodes of this domain and of its peers.
			row{"GET", "/federation/v1/heads", nodes, s.federation},
			row{"GET", "/federation/v1/keys", nodes, s.federation},
			row{"GET", "/federation/v1/pages", nodes, s.federation},
			row{"POST", "/federation/v1/records", nodes, s.federation},
			row{"POST", "/federation/v1/farewell", nodes, s.federation},
			row{"POST", "/federation/v1/evidence", nodes, s.federation},
			row{"GET", "/federation/v1/evidence", nodes, s.federation},
		)
	}
	return rows
}

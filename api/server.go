package api

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/agents"
	"github.com/roster-mesh/roster/api/catalog"
	"github.com/roster-mesh/roster/api/discovery"
	"github.com/roster-mesh/roster/api/ledger"
	"github.com/roster-mesh/roster/api/mcp"
	"github.com/roster-mesh/roster/api/openapi"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit"
)

// Bounds of the log lines about streams that a domain's agents end early.
var failureRate = limit.Rate{PerSecond: 0.2, Burst: 20}

const maxFailingDomains = 1024

// surfaces are the handlers of all routes.
type surfaces struct {
	ad          *ad.Handler
	watch       *ad.Watcher
	agents      *agents.Handler
	invoke      *agents.Invoker // nil without a gateway
	discovery   *discovery.Handler
	wellKnown   *catalog.WellKnown
	description *catalog.Description
	ledger      *ledger.Handler
	webOfAgents *catalog.WebOfAgents
	mcp         *mcp.Handler

	status        *operator.Status
	keys          *operator.Keys
	history       *operator.History
	policy        *operator.Policy
	registrations *operator.Registrations
	peerings      *operator.Peerings
	bundles       *operator.Bundles
	cluster       *operator.Cluster
	backups       *operator.Backups
	audit         *operator.Audit
}

// A Server answers a node's HTTP requests.
type Server struct {
	cfg       Config
	log       *slog.Logger
	guard     *access.Guard
	limiter   *admission.Limiter
	overload  *admission.Overload
	pools     *admission.Pools
	parties   admission.Parties
	refusals  *refusalLog
	freshness *freshness
	browsers  *http.CrossOriginProtection // against pages of other sites (OPS-021)
	surfaces  surfaces
	router    *router
	params    knownParams
	handler   http.Handler
	draining  atomic.Bool
}

// New returns a server.
func New(cfg Config) *Server {
	cfg.MaxStale = cmp.Or(cfg.MaxStale, DefaultMaxStale)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))

	// The surfaces below get the wrapped registry alone, so none changes anything without the audit log.
	cfg.Registry = domainRegistry{Registry: cfg.Registry, audit: cfg.audit(), view: cfg.View, own: cfg.Domain}
	cfg.Records = yieldingRecords{cfg.Records}

	server := &Server{
		cfg:     cfg,
		log:     cfg.Logger,
		guard:   access.NewGuard(cfg.Domain, cfg.Policy, cfg.View),
		limiter: admission.NewLimiter(cfg.Limits, cfg.CallerLimits),
		overload: admission.NewOverload(admission.OverloadConfig{
			Workers: cfg.Workers, Waiting: cfg.Waiting, MemoryInUse: cfg.MemoryInUse, Shed: cfg.Shed,
			Logger: cfg.Logger,
		}),
		pools:    admission.NewPools(cfg.Sizes, cfg.IsOperator),
		parties:  admission.Parties{Domain: cfg.Domain, Own: cfg.OwnPrefixes},
		refusals: newRefusalLog(cfg.Logger),
		browsers: http.NewCrossOriginProtection(),
	}
	_ = server.browsers.AddTrustedOrigin(cfg.PublicURL) // no error: it has the form of an origin
	server.freshness = &freshness{&server.cfg, server.pools}
	server.makeSurfaces()
	server.router = newRouter(server.table())
	server.params = newKnownParams(server.table())
	server.handler = server.observe(http.HandlerFunc(server.answer))

	return server
}

// makeSurfaces makes the handlers of all surfaces from the configuration.
func (s *Server) makeSurfaces() {
	cfg := &s.cfg
	reader := &registration.Reader{
		View: cfg.View, Guard: s.guard, Limiter: s.limiter, Position: cfg.Position, Offer: cfg.Registry.Offer,
		Render: view.NewRenderer(view.Config{
			Domain: cfg.Domain, PublicURL: cfg.PublicURL, Service: cfg.Service,
			DefaultVisibility: cfg.Policy.DefaultVisibility, Invocable: cfg.Invocable, Probed: cfg.Probed,
			Frozen: cfg.Frozen, Logged: cfg.Logged, Panics: cfg.Panics,
		}),
	}
	writer := &registration.Writer{
		Domain: cfg.Domain, Reader: reader, Registry: cfg.Registry, DefaultVisibility: cfg.Policy.DefaultVisibility,
		IsPeer: cfg.IsPeer,
		Lifetimes: registration.Lifetimes{Min: cfg.MinLifetime, Credentials: cfg.CredentialLives,
			Callers: s.limiter.Callers},
	}

	s.surfaces = surfaces{
		ad: &ad.Handler{
			Domain: cfg.Domain, Reader: reader, Writer: writer, Registry: cfg.Registry, Records: cfg.Records,
			Limiter: s.limiter, Operate: cfg.Policy.Operate, Recipients: cfg.Recipients, Past: cfg.Past,
		},
		watch: ad.NewWatcher(ad.WatchConfig{
			Reader: reader, Policy: cfg.Policy, Limiter: s.limiter, Heard: cfg.Registry.Heard, MaxStale: cfg.MaxStale,
			ConsumeProof: cfg.ConsumeProof, Logger: s.log,
		}),
		agents: &agents.Handler{
			Domain: cfg.Domain, Reader: reader, Writer: writer, Finder: cfg.Finder, Frozen: cfg.Frozen,
		},
		discovery: &discovery.Handler{
			Domain: cfg.Domain, Reader: reader, Writer: writer, Finder: cfg.Finder, Strict: cfg.StrictFilters,
		},
		wellKnown: &catalog.WellKnown{
			Domain: cfg.Domain.Name(), PublicURL: cfg.PublicURL, LookupParams: ad.LookupParams,
			Accepted: cfg.AcceptedCredentials, Bundle: cfg.Bundle,
		},
		ledger: &ledger.Handler{Log: cfg.Ledger},
		description: catalog.NewDescription(Description(), openapi.Node{
			Domain: cfg.Domain.Name(), PublicURL: cfg.PublicURL, Has: s.has,
		}),
		webOfAgents: catalog.NewWebOfAgents(catalog.WebOfAgentsConfig{
			Domain: cfg.Domain, PublicURL: cfg.PublicURL, Reader: reader, Limiter: s.limiter,
			Read: cfg.Policy.Read, Generation: cfg.Policy.Generation, Invocable: cfg.Invocable,
			Current: s.freshness.current, Index: func() string { return s.freshness.index(nil) },
		}),
		mcp: mcp.NewHandler(mcp.Config{
			PublicURL: cfg.PublicURL, Description: Description(), Routes: s.Handler,
			MayRegister: s.mayRegister, Invokes: cfg.Gateway != nil, Verify: cfg.VerifyProof, Logger: s.log,
		}),

		status:  &operator.Status{State: cfg.Operator},
		keys:    &operator.Keys{Keyring: cfg.Operator, Logger: s.log},
		history: &operator.History{Eraser: cfg.Operator, Logger: s.log},
		policy:  &operator.Policy{Domain: cfg.Domain, Store: cfg.Operator, Logger: s.log},
		registrations: &operator.Registrations{
			Domain: cfg.Domain, Reader: reader, Registry: cfg.Registry, Orders: cfg.Orders, Finder: cfg.Finder,
		},
		peerings: &operator.Peerings{Domain: cfg.Domain, Peers: cfg.Peerings, Store: cfg.Operator, Logger: s.log},
		bundles:  &operator.Bundles{Held: cfg.Bundles},
		cluster:  &operator.Cluster{Members: cfg.Cluster, Logger: s.log},
		backups:  &operator.Backups{Domain: cfg.Domain, Store: cfg.Backups, Logger: s.log},
		audit:    operator.NewAudit(cfg.Node.String(), cfg.Trail),
	}

	if cfg.Gateway != nil {
		s.surfaces.invoke = &agents.Invoker{
			Domain: cfg.Domain, Reader: reader, Gateway: cfg.Gateway, Limiter: s.limiter, MayInvoke: cfg.Policy.Invoke,
			Frozen: cfg.Frozen, AuditLog: cfg.AuditLog, Logger: s.log,
			Failures: limit.NewLines[spiffeid.TrustDomain](maxFailingDomains, failureRate),
		}
	}
}

// mayRegister tells whether a caller may register agents at all. All policies so far
// decide by the registrant and not by the document, so an empty registration will do.
func (s *Server) mayRegister(call *request.Call) bool {
	visibility := s.cfg.Policy.DefaultVisibility()

	return !call.Anonymous() && s.cfg.Policy.Inside(call.Identity) &&
		s.cfg.Policy.Register(call.Identity, "an-agent", &directory.Projection{}, visibility).Allow
}

// Handler returns the handler of the API listener. It expects a verified client
// certificate, if there is one, in the request's TLS state.
func (s *Server) Handler() http.Handler { return s.handler }

// Registry is the domain's, whose changes are recorded in the audit log: for changes that
// the node makes itself.
func (s *Server) Registry() Registry { return s.cfg.Registry }

// Pools returns the pools that callers share.
func (s *Server) Pools() *admission.Pools { return s.pools }

// SetLimits replaces the rates of callers, and the lifetimes of callers with limits of their own.
func (s *Server) SetLimits(general admission.Limits, callers []admission.CallerLimits) {
	s.limiter.Set(general, callers)
}

// Drain ends the streams of events, each with its reason. A node that stops calls it
// first, since they would go on for ever.
func (s *Server) Drain() {
	// Refusals from here on are logged as those of a node that stops.
	s.draining.Store(true)
	s.surfaces.watch.Drain()
	s.surfaces.audit.Drain()
}

// DefaultMaxStale is how long after the leader was last heard default reads are still
// answered.
const DefaultMaxStale = 300 * time.Second

package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/agents"
	surface "github.com/roster-mesh/roster/api/discovery"
	"github.com/roster-mesh/roster/api/ledger"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/span"
)

// A Registry takes changes for this node's domain, on whichever member it runs, and has
// the position of the domain's history at this node. Its errors are *directory.Error.
type Registry interface {
	ad.Registry
	// Position is that of the last change that this node's answers show.
	Position() directory.Position
	// Restored is the last revision of the backup that the present epoch began with; 0 for
	// the first epoch.
	Restored() uint64
	// Heard is the time since the domain's leader was heard; 0 on the leader.
	Heard() time.Duration
}

// A Policy decides about the requests of callers. The zero identity is an anonymous caller.
type Policy interface {
	access.Policy
	ad.WatchPolicy
	// Operate decides about an operator's action, such as raft.read.
	Operate(id directory.Identity, action string) directory.Decision
	// Invoke decides about invocations through the gateway.
	Invoke(id directory.Identity, e *directory.Entry) directory.Decision
	DefaultVisibility() directory.Visibility
}

// A Finder finds registrations by what they can do: a *discovery.Finder.
type Finder interface {
	surface.Finder
	operator.Finder
}

// An Operator reports the state of a node to its operators, and makes their changes.
type Operator interface {
	operator.State
	operator.Keyring
	operator.PolicyStore
	operator.Eraser
	operator.PeeringStore
}

// An AuditLog records changes, and requests for changes that were refused.
type AuditLog interface {
	// Intend is called before a change is proposed. If it fails, which is Unavailable, the
	// change is not made. Else done is called with its outcome.
	Intend(directory.AuditEvent) (done func(directory.AuditEvent), err error)
	// Refused is called for a request that was refused before. It doesn't wait.
	Refused(directory.AuditEvent)
}

// Config configures a Server. What isn't optional is required.
type Config struct {
	Domain    spiffeid.TrustDomain
	PublicURL string // the domain's, https://HOST[:PORT] without a slash at its end
	// Service returns the public URL of another domain; empty if it is not known.
	Service func(spiffeid.TrustDomain) string

	// The directory.
	Registry Registry
	View     *index.View
	Policy   Policy
	Records  ad.Records
	// Recipients returns the peers to which a registration of the domain is sent, or not.
	Recipients func(*directory.Entry) []wire.Recipient
	Finder     Finder
	// StrictFilters takes every discovery query as strict: a filter that can't be applied
	// fails it (XU-012).
	StrictFilters bool
	// Panics counts those on entries that can't be shown; nil counts nothing.
	Panics *contain.Panics

	// Authentication. Identify verifies the credential of a request. The zero identity
	// without an error is an anonymous caller; an error is an invalid credential.
	Identify func(*http.Request) (request.Credential, error)
	// Claimed returns the identity that the token of a request names, without verifying it; zero if
	// it has no token.
	Claimed             func(*http.Request) directory.Identity
	AcceptedCredentials request.AcceptedCredentials
	// ConsumeProof uses up the proof of a request that is no change but whose effect
	// outlasts the proof, until the proof can't be shown again (Unix seconds). It fails with
	// Replayed if the proof was used before, at any node of the domain.
	ConsumeProof func(ctx context.Context, proof directory.Hash, until int64) error
	// CredentialRefused is called with the reason of a 401 that Identify didn't cause.
	CredentialRefused func(reason string)

	// Freshness. CaughtUp tells whether this node has had everything that its domain had,
	// once since it was started; until then it answers no default read of its domain.
	CaughtUp func() bool
	// Without returns the domains whose registrations the node does not show, because it is short of
	// memory.
	Without func() []string
	// MaxStale is the longest time since the leader was heard in which default reads are
	// answered; DefaultMaxStale if it is 0.
	MaxStale time.Duration
	// Position returns the position of another domain's history at this node.
	Position func(spiffeid.TrustDomain) (directory.Position, bool)
	// Await waits until this node has reached a position of any domain's history. It
	// returns the context's error if that ends first.
	Await func(context.Context, spiffeid.TrustDomain, directory.Position) error

	// Admission.
	Limits admission.Limits
	// CallerLimits are limits of some callers in place of Limits and MinLifetime.
	CallerLimits []admission.CallerLimits
	// MinLifetime is the shortest lifetime that may be asked for, in seconds.
	MinLifetime uint32
	// CredentialLives is how many lifetimes of its registrant's credential a registration is
	// granted at most (jimenez 8.2); 0 is any number.
	CredentialLives uint32
	// OwnPrefixes are the prefixes of further identities that count as the domain's own; see
	// admission.Parties.
	OwnPrefixes []string
	// Sizes are the sizes of the pools that callers share, and IsOperator tells whether an
	// identity of the domain may use the places that are reserved for operators; nil is no one.
	Sizes      admission.Sizes
	IsOperator func(id string) bool
	// Workers is how many requests are worked on at once, and Waiting how many wait for
	// that; a few for each processor, and 4,096, if they are 0. More are shed: queries
	// first, then lookups, registrations, and refreshes last.
	Workers, Waiting int
	// MemoryInUse returns the share of its memory limit that the process needs.
	MemoryInUse func() float64
	Shed        func(class string) // called for each request that is shed

	// Agents. Gateway invokes them; without it there are no routes for that.
	Gateway agents.Gateway
	// MaxInvocation bounds the body of an invocation in bytes; agents.DefaultMaxInvocation
	// if it is 0.
	MaxInvocation int64
	// Invocable tells whether this node's gateway calls an agent; nil without a gateway.
	Invocable func(*directory.Entry) bool
	// Probed returns the result of asking an agent about itself, if it is known; nil if
	// agents are not asked.
	Probed func(*directory.Entry) (directory.Probe, bool)

	// Other domains. Frozen returns the domains from which nothing is accepted any more:
	// their registrations are shown as disputed. It is called for each item, and its result
	// isn't changed.
	Frozen func() []spiffeid.TrustDomain
	// IsPeer tells whether another domain is an active peer.
	IsPeer func(spiffeid.TrustDomain) bool
	// Past returns the history of a registration of any domain; see ad.Handler.
	Past func(origin spiffeid.TrustDomain, rid directory.RID, before directory.Position) (*directory.Past, error)

	// Ledger has the domain's transparency log, for anyone, and Logged is view.Config's, which may be nil.
	Ledger ledger.Log
	Logged func(*directory.Entry) (directory.Inclusion, bool)

	// Bundle is this domain's SPIFFE trust bundle, for anyone; nil if it is not served.
	Bundle func() ([]byte, error)
	// Bundles are all trust bundles that this node holds.
	Bundles operator.TrustBundles
	// VerifyProof verifies a proof file by the bundles that this node holds, and returns the
	// report as JSON; nil offers no tool for that.
	VerifyProof func(ctx context.Context, proof []byte) ([]byte, error)
	// Federation serves /federation/v1/ and authorises its callers itself.
	Federation http.Handler
	// Witness serves /witness/ to anyone: a log's signature authenticates what it submits.
	Witness http.Handler

	// Operators.
	Operator Operator
	// Stranger reports whether an identity is a node's of the domain that is no member of it.
	Stranger func(directory.Identity) bool
	// Nodes returns the base URLs of the domain's other members, for callers of the domain who
	// ask for them.
	Nodes func() []string
	// Orders checks the proofs of operators' changes.
	Orders   Orders
	Peerings operator.Peers
	Cluster  operator.Members
	Backups  operator.BackupStore

	AuditLog AuditLog
	// Trail is the audit log of this node, which is Node, for operators and auditors.
	Trail  operator.Trail
	Node   spiffeid.ID
	Logger *slog.Logger // may be nil
	Tracer *span.Tracer // nil records nothing
	// Observe is called for every answer. The method is one of a fixed set, or
	// other. The route is a path of the table, and empty if no row of it took the request.
	Observe func(method, route string, status int, took time.Duration)
}

package view

import (
	"net/url"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
)

// Config configures a Renderer. Domain, PublicURL, Service and DefaultVisibility are
// required.
type Config struct {
	Domain    spiffeid.TrustDomain
	PublicURL string // the domain's, https://HOST[:PORT] without a slash at its end
	// Service returns the public URL of another domain; empty if it is not known.
	Service           func(spiffeid.TrustDomain) string
	DefaultVisibility func() directory.Visibility
	// Invocable tells whether this node's gateway calls an agent; nil without a gateway.
	Invocable func(*directory.Entry) bool
	// Probed returns the result of asking an agent about itself, if it was asked; may be
	// nil.
	Probed func(*directory.Entry) (directory.Probe, bool)
	// Frozen returns the domains that contradicted themselves; their registrations are
	// disputed. It is called for each item, and its result isn't changed. May be nil.
	Frozen func() []spiffeid.TrustDomain
	// Logged returns where a registration's statement is in its origin's ledger; false if that is
	// not known, or was not verified here. May be nil.
	Logged func(*directory.Entry) (directory.Inclusion, bool)
	// Panics counts entries that can't be shown; may be nil.
	Panics *contain.Panics
}

// A Renderer writes registrations as a node of a domain shows them. It is safe for
// concurrent use.
type Renderer struct {
	cfg   Config
	items itemCache
}

// NewRenderer returns a Renderer.
func NewRenderer(cfg Config) *Renderer { return &Renderer{cfg: cfg} }

// Options select the members of a registration's provenance.
type Options struct {
	Registrant bool // the identity that registered it, if it is known
	Brief      bool // authority, revision, deadline and verification alone
	Timeless   bool // without the time at which the agent was probed
}

// A Surface is how one draft shows a registration.
type Surface struct {
	// Href is the path of a registration; its origin and rid are enough.
	Href func(e *directory.Entry) string
	// Append appends the whole registration, one JSON object.
	Append func(b []byte, e *directory.Entry, opt Options) []byte
}

// Href is the path of a registration's resource at this node: its own, or the mirror of
// another domain's.
func (r *Renderer) Href(entry *directory.Entry) string {
	if r.isOwn(entry) {
		return PathOf(entry.RID)
	}

	return "/ad/r/" + url.PathEscape(entry.Origin.Name()) + "/" + entry.RID.String()
}

// PathOf is the path of a registration of this domain, whether it is known here yet or
// not.
func PathOf(rid directory.RID) string { return "/ad/r/" + rid.String() }

// OriginHref is the absolute URI of a registration at its origin; empty if that domain's
// public URL is not known.
func (r *Renderer) OriginHref(e *directory.Entry) string {
	if base := r.service(e); base != "" {
		return base + PathOf(e.RID)
	}

	return ""
}

func (r *Renderer) isOwn(e *directory.Entry) bool { return e.Origin == r.cfg.Domain }

// service is the public URL of a registration's origin; empty if it is not known.
func (r *Renderer) service(entry *directory.Entry) string {
	if r.isOwn(entry) {
		return r.cfg.PublicURL
	}

	return r.cfg.Service(entry.Origin)
}

// Active is the status of an agent that has no other.
const Active = "active"

// Projection is e's, or an empty one if its document is of a kind that this release
// doesn't know.
func Projection(e *directory.Entry) *directory.Projection {
	projection := e.Projection()
	if projection == nil {
		projection = &directory.Projection{Status: Active}
	}

	return projection
}

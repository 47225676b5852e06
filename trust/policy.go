package trust

import (
	_ "embed" // the policy sets
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

var (
	//go:embed policies/shipped.cedar
	shippedText []byte
	//go:embed policies/development.cedar
	developmentText []byte
)

// A Policy decides what identities may do and what peers may have, by Cedar
// policies: deny by default, a forbid wins. It is never asked inside apply. It
// is safe for concurrent use.
type Policy struct {
	domain     spiffeid.TrustDomain
	set        slicedSet
	visibility directory.Visibility
	own        []string                             // see Adopt
	exported   func(peer spiffeid.TrustDomain) bool // see Exports

	mu    sync.RWMutex
	known map[question]directory.Decision // at most maxKnown
}

// maxKnown bounds the answers that are kept.
const maxKnown = 1 << 14

// A question is one that may be asked again: it has all that its answer depends
// on, and nothing that no policy looks at.
type question struct {
	ask       string
	principal types.EntityUID
	resource  registration
}

// A registration is what policies may look at of one. They look at the
// projection as well, but not where an answer is kept.
type registration struct {
	agent, owner, origin, visibility string
	own                              bool // of this domain
	streamed                         bool // of a read: a stream of the reader's domain holds it
	exported                         bool // of an export: the operator lets the peer have something
	visible                          bool // of an export: its visibility lets the peer have it
}

// NewPolicy returns one of the sets that are built in, for a directory of
// domain: "shipped", or "development".
func NewPolicy(name string, domain spiffeid.TrustDomain) (*Policy, error) {
	switch name {
	case "shipped":
		return parsePolicy("shipped.cedar", shippedText, domain, directory.Visibility{})
	case "development":
		return parsePolicy("development.cedar", developmentText, domain, directory.Visibility{Mesh: true})
	}
	return nil, fmt.Errorf("there is no policy set %q: use shipped or development", name)
}

func parsePolicy(file string, text []byte, domain spiffeid.TrustDomain, v directory.Visibility) (*Policy, error) {
	set, err := parsePolicies(file, text)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return &Policy{domain: domain, set: set, visibility: v, known: map[question]directory.Decision{}}, nil
}

// Adopt makes the identities whose URIs begin with one of prefixes count among the
// domain's own, as its SPIFFE IDs do. It is for the time before the first question.
func (p *Policy) Adopt(prefixes []string) { p.own = prefixes }

// Exports makes f say which peers the operator lets have something. It is for the
// time before the first question; f must not block.
func (p *Policy) Exports(f func(peer spiffeid.TrustDomain) bool) { p.exported = f }

// DefaultVisibility returns the visibility of a registration whose registrant
// asked for none.
func (p *Policy) DefaultVisibility() directory.Visibility { return p.visibility }

// Register decides whether id may register that name with that visibility. Who
// holds the name already is for the directory to say. Decisions share their
// lists of policies, which must not be modified.
func (p *Policy) Register(id directory.Identity, agent string, proj *directory.Projection, v directory.Visibility) directory.Decision {
	r := registration{agent: agent, owner: id.String(), origin: p.domain.Name(), visibility: v.String(), own: true}
	return p.decide(askRegister, p.identity(id), r.entity(proj), types.Record{})
}

// Read decides whether id, who may be nobody, may see e.
func (p *Policy) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	return p.see(askRead, id, e)
}

// Invoke decides whether id, who may be nobody, may call the agent e through
// the gateway.
func (p *Policy) Invoke(id directory.Identity, e *directory.Entry) directory.Decision {
	return p.see(askInvoke, id, e)
}

// Export decides whether a peer domain may have a registration. Never one whose
// visibility leaves that peer out.
func (p *Policy) Export(peer spiffeid.TrustDomain, agent string, owner directory.Identity, v directory.Visibility, proj *directory.Projection) directory.Decision {
	s := p.set[askExport]
	r := registration{visible: v.Mesh || slices.Contains(v.Peers, peer)}
	r.exported = s.looksAt("exported") && p.exported != nil && p.exported(peer)
	keep(s, "agent", &r.agent, agent)
	keep(s, "owner", &r.owner, owner.String())
	keep(s, "visibility", &r.visibility, v.String())
	uid := types.NewEntityUID("Peer", types.String(peer.Name()))
	decide := func() directory.Decision {
		return p.decide(askExport, types.Entity{UID: uid}, r.entity(proj), types.Record{})
	}
	if s.readsProjection() {
		return decide()
	}
	return p.remember(question{askExport, uid, r}, decide)
}

// Operate decides whether id may do an operator's action: raft.read,
// members.read, peer.read and so on.
func (p *Policy) Operate(id directory.Identity, action string) directory.Decision {
	context := types.NewRecord(types.RecordMap{"operation": types.String(action)})
	return p.decide(askOperate, p.identity(id), p.directory(), context)
}

// Commission reports whether id may change registrations that others own
// (jimenez 8.2, commissioning tools).
func (p *Policy) Commission(id directory.Identity) bool {
	return p.decide(askCommission, p.identity(id), p.directory(), types.Record{}).Allow
}

// Class names what decides who may see e: its origin, its owner where that is an
// identity of this domain, and what policies look at. Whoever may see one
// registration of a class may see them all.
func (p *Policy) Class(e *directory.Entry) string {
	s := p.set[askRead]
	r := registration{own: e.Origin == p.domain, origin: e.Origin.Name()}
	keep(s, "agent", &r.agent, e.Agent)
	keep(s, "visibility", &r.visibility, e.Visibility.String())
	if r.own {
		r.owner = e.Owner.String()
	} else {
		keep(s, "owner", &r.owner, e.Owner.String())
	}
	if r.own && s.looksAt("streamed") {
		x := p.set[askExport] // which decides of each what streams hold it
		keep(x, "agent", &r.agent, e.Agent)
		r.visibility = e.Visibility.String()
		if x.readsProjection() {
			r.agent = e.RID.String()
		}
	}
	return strings.Join([]string{r.origin, r.owner, r.visibility, r.agent}, "\x00")
}

// see answers a question about a registration that this node serves.
func (p *Policy) see(ask string, id directory.Identity, e *directory.Entry) directory.Decision {
	s := p.set[ask]
	r := registration{own: e.Origin == p.domain}
	keep(s, "agent", &r.agent, e.Agent)
	keep(s, "owner", &r.owner, e.Owner.String())
	keep(s, "origin", &r.origin, e.Origin.Name())
	keep(s, "visibility", &r.visibility, e.Visibility.String())
	r.streamed = r.own && s.looksAt("streamed") && p.streamed(id, e)
	return p.remember(question{ask, uidOf(id), r}, func() directory.Decision {
		return p.decide(ask, p.identity(id), r.entity(nil), types.Record{})
	})
}

func keep(s *slice, attribute string, to *string, value string) {
	if s.looksAt(attribute) {
		*to = value
	}
}

// streamed reports whether a stream to the peer domain that id is of holds e. What
// other domains told us is not ours to pass on to identities of a third.
func (p *Policy) streamed(id directory.Identity, e *directory.Entry) bool {
	peer, ok := id.SPIFFE()
	if !ok || peer.MemberOf(p.domain) {
		return false
	}
	return p.Export(peer.TrustDomain(), e.Agent, e.Owner, e.Visibility, e.Projection()).Allow
}

func (p *Policy) remember(q question, decide func() directory.Decision) directory.Decision {
	p.mu.RLock()
	d, ok := p.known[q]
	p.mu.RUnlock()
	if ok {
		return d
	}
	d = decide()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxKnown {
		clear(p.known)
	}
	p.known[q] = d
	return d
}

func (p *Policy) decide(ask string, principal, resource types.Entity, context types.Record) directory.Decision {
	request := cedar.Request{
		Principal: principal.UID,
		Action:    types.NewEntityUID("Action", types.String(ask)),
		Resource:  resource.UID,
		Context:   context,
	}
	allow, why := cedar.Authorize(p.set[ask].policies, &pair{principal, resource}, request)
	d := directory.Decision{Allow: allow == cedar.Allow}
	for _, reason := range why.Reasons {
		d.Policies = append(d.Policies, string(reason.PolicyID))
	}
	return d
}

func uidOf(id directory.Identity) types.EntityUID {
	if id.IsZero() {
		return types.NewEntityUID("Anonymous", "")
	}
	return types.NewEntityUID("Identity", types.String(id.String()))
}

func (p *Policy) identity(id directory.Identity) types.Entity {
	if id.IsZero() {
		return types.Entity{UID: uidOf(id)}
	}
	// A WIMSE identifier of the same text is of another name space, and ours only
	// where it was adopted.
	spiffe, _ := id.SPIFFE()
	return types.Entity{
		UID: uidOf(id),
		Attributes: types.NewRecord(types.RecordMap{
			"own":    types.Boolean(!spiffe.IsZero() && spiffe.MemberOf(p.domain) || hasPrefix(id, p.own)),
			"domain": types.String(spiffe.TrustDomain().Name()),
			"path":   types.String(spiffe.Path()),
		}),
	}
}

func (p *Policy) directory() types.Entity {
	return types.Entity{UID: types.NewEntityUID("Directory", types.String(p.domain.Name()))}
}

func (r *registration) entity(proj *directory.Projection) types.Entity {
	var names, kinds, protocols []types.Value
	if proj != nil {
		for _, c := range proj.Capabilities {
			names, kinds = append(names, types.String(c.Name)), append(kinds, types.String(c.Type))
		}
		for _, protocol := range proj.Protocols {
			protocols = append(protocols, types.String(protocol))
		}
	}
	return types.Entity{
		UID: types.NewEntityUID("Registration", types.String(r.agent)),
		Attributes: types.NewRecord(types.RecordMap{
			"agent":        types.String(r.agent),
			"owner":        types.String(r.owner),
			"origin":       types.String(r.origin),
			"own":          types.Boolean(r.own),
			"visibility":   types.String(r.visibility),
			"streamed":     types.Boolean(r.streamed),
			"visible":      types.Boolean(r.visible),
			"exported":     types.Boolean(r.exported),
			"capabilities": types.NewSet(names...),
			"types":        types.NewSet(kinds...),
			"protocols":    types.NewSet(protocols...),
		}),
	}
}

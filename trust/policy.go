package trust

import (
	_ "embed" // the policy sets
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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
	visibility directory.Visibility
	exported   func(peer spiffeid.TrustDomain) bool // see Exports
	own        []string                             // see Adopt
	builtIn    *ruling
	current    atomic.Pointer[ruling]
	setting    sync.Mutex // held to replace current
}

// A ruling is a set of policies in force, with the answers that it has given. A
// question is answered by one alone, so that no answer mixes two.
type ruling struct {
	p       *Policy
	set     slicedSet
	text    []byte
	version uint64

	generation uint64
	over       chan struct{} // closed when another one is in force

	mu     sync.RWMutex                    // guards the rest
	known  map[question]directory.Decision // at most maxKnown
	views  map[viewOf]*view
	viewed int // policies in views; at most maxViewed
}

// maxKnown bounds the answers that are kept.
const maxKnown = 1 << 14

// A view is what there is of policies about one question for one principal: those whose
// guards hold of it, in the place of all.
type view struct {
	principal             types.Entity
	policies, withholding scoped
}

type viewOf struct {
	ask       string
	principal types.EntityUID
}

// maxViewed bounds the policies that are in views, each of which counts for as many
// and one more.
const maxViewed = 1 << 18

// view returns a principal's view of a question's policies. make makes the principal.
func (q *ruling) view(ask string, uid types.EntityUID, make func() types.Entity) *view {
	key := viewOf{ask, uid}
	q.mu.RLock()
	v := q.views[key]
	q.mu.RUnlock()
	if v != nil {
		return v
	}
	s := q.set[ask]
	v = &view{principal: make()}
	v.policies, v.withholding = s.policies.of(uid).seenBy(v.principal), s.withholding.of(uid).seenBy(v.principal)
	size := 1 + v.policies.len() + v.withholding.len()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.viewed+size > maxViewed {
		clear(q.views)
		q.viewed = 0
	}
	if q.views[key] == nil {
		q.viewed += size
	}
	q.views[key] = v
	return v
}

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
	p := &Policy{domain: domain, visibility: v}
	p.builtIn = &ruling{set: set, text: text}
	p.enforce(set, text, 0)
	return p, nil
}

// enforce puts a set in force.
func (p *Policy) enforce(set slicedSet, text []byte, version uint64) {
	p.setting.Lock()
	defer p.setting.Unlock()
	p.replace(&ruling{set: set, text: text, version: version})
}

// replace puts next in the place of what is in force. The caller holds setting.
func (p *Policy) replace(next *ruling) {
	next.p, next.over, next.known, next.views = p, make(chan struct{}), map[question]directory.Decision{}, map[viewOf]*view{}
	old := p.current.Load()
	if old != nil {
		next.generation = old.generation + 1
	}
	p.current.Store(next)
	if old != nil {
		close(old.over)
	}
}

// Reconsider forgets all answers: what they depend on beside the policy's text has
// changed, such as which peers are exported to.
func (p *Policy) Reconsider() {
	p.setting.Lock()
	defer p.setting.Unlock()
	q := p.current.Load()
	p.replace(&ruling{set: q.set, text: q.text, version: q.version})
}

// Generation counts what was in force, by the policy's text or by what else answers
// depend on. It changes with the answers.
func (p *Policy) Generation() uint64 { return p.current.Load().generation }

// Changed is closed when Generation has become another one.
func (p *Policy) Changed() <-chan struct{} { return p.current.Load().over }

// MaxPolicy bounds the text of a domain's policy, in bytes.
const MaxPolicy = 256 << 10

// CheckPolicy says what is wrong with a text of Cedar policies, by file and line. The
// error is a *directory.Error.
func CheckPolicy(file string, text []byte) error {
	if len(text) > MaxPolicy {
		return directory.Refuse(directory.TooLarge, "the policy has %d bytes; at most %d are allowed", len(text), MaxPolicy)
	}
	if _, err := parsePolicies(file, text); err != nil {
		return directory.Refuse(directory.BadRequest, "the policy is not good: %w", err)
	}
	return nil
}

// ParsePolicy returns the policy of a text, for a directory of domain.
func ParsePolicy(file string, text []byte, domain spiffeid.TrustDomain) (*Policy, error) {
	if err := CheckPolicy(file, text); err != nil {
		return nil, err
	}
	return parsePolicy(file, text, domain, directory.Visibility{})
}

// Set puts the domain's policy in force at once: every question that is asked from
// now on is answered by it. Without a text that is the set which is built in. A text
// that this release can't read permits nothing, since whoever has read it may have
// forbidden what an older one permits.
func (p *Policy) Set(text []byte, version uint64) error {
	if len(text) == 0 {
		p.enforce(p.builtIn.set, p.builtIn.text, version)
		return nil
	}
	set, err := parsePolicies("policy.cedar", text)
	if err != nil {
		set, _ = parsePolicies("policy.cedar", nil)
	}
	p.enforce(set, text, version)
	return err
}

// Version is that of what is in force: the revision at which the domain took it, 0
// for what is built in.
func (p *Policy) Version() uint64 { return p.current.Load().version }

// InForce returns what is in force, in Cedar, and its version.
func (p *Policy) InForce() (text []byte, version uint64) {
	q := p.current.Load()
	return q.text, q.version
}

// With returns what p would be with another text. p stays as it is.
func (p *Policy) With(file string, text []byte) (*Policy, error) {
	o, err := ParsePolicy(file, text, p.domain)
	if err == nil {
		o.visibility, o.own = p.visibility, p.own
	}
	return o, err
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
	q := p.current.Load()
	return q.decide(askRegister, p.identity(id), r.entity(q.set[askRegister].uses, proj), types.Record{})
}

// OnBehalf decides whether a commissioning tool may register that for owner. What owner
// may claim is Register's to say.
func (p *Policy) OnBehalf(tool, owner directory.Identity, agent string, proj *directory.Projection, v directory.Visibility) directory.Decision {
	r := registration{agent: agent, owner: owner.String(), origin: p.domain.Name(), visibility: v.String(), own: true}
	q := p.current.Load()
	return q.decide(askOnBehalf, p.identity(tool), r.entity(q.set[askOnBehalf].uses, proj), types.Record{})
}

// Read decides whether id, who may be nobody, may see e.
func (p *Policy) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	return p.current.Load().see(askRead, id, e)
}

// Invoke decides whether id, who may be nobody, may call the agent e through
// the gateway.
func (p *Policy) Invoke(id directory.Identity, e *directory.Entry) directory.Decision {
	return p.current.Load().see(askInvoke, id, e)
}

// Export decides whether a peer domain may have a registration. Never one whose
// visibility leaves that peer out.
func (p *Policy) Export(peer spiffeid.TrustDomain, agent string, owner directory.Identity, v directory.Visibility, proj *directory.Projection) directory.Decision {
	return p.current.Load().export(peer, agent, owner, v, proj)
}

func (q *ruling) export(peer spiffeid.TrustDomain, agent string, owner directory.Identity, v directory.Visibility, proj *directory.Projection) directory.Decision {
	s := q.set[askExport]
	r := registration{visible: v.Mesh || slices.Contains(v.Peers, peer)}
	r.exported = s.looksAt(looksAtExported) && q.p.exported != nil && q.p.exported(peer)
	keep(s, looksAtAgent, &r.agent, agent)
	keep(s, looksAtOwner, &r.owner, owner.String)
	keep(s, looksAtVisibility, &r.visibility, v.String)
	uid := types.NewEntityUID("Peer", types.String(peer.Name()))
	decide := func() directory.Decision {
		return q.decide(askExport, principal{uid, func() types.Entity { return types.Entity{UID: uid} }}, r.entity(s.uses, proj), types.Record{})
	}
	if s.looksAt(looksAtProjection) {
		return decide()
	}
	return q.remember(question{askExport, uid, r}, decide)
}

// Operate decides whether id may do an operator's action: raft.read,
// members.read, peer.read and so on.
func (p *Policy) Operate(id directory.Identity, action string) directory.Decision {
	context := types.NewRecord(types.RecordMap{"operation": types.String(action)})
	return p.current.Load().decide(askOperate, p.identity(id), p.directory(), context)
}

// Commission reports whether id may change registrations that others own
// (jimenez 8.2, commissioning tools).
func (p *Policy) Commission(id directory.Identity) bool {
	q := p.current.Load()
	return q.remember(question{ask: askCommission, principal: uidOf(id)}, func() directory.Decision {
		return q.decide(askCommission, p.identity(id), p.directory(), types.Record{})
	}).Allow
}

// Class names what decides who may see e: its origin, its owner where that is an
// identity of this domain, and what policies look at. Whoever may see one
// registration of a class may see them all.
func (p *Policy) Class(e *directory.Entry) string {
	q := p.current.Load()
	s := q.set[askRead]
	r := registration{own: e.Origin == p.domain, origin: e.Origin.Name()}
	keep(s, looksAtAgent, &r.agent, e.Agent)
	keep(s, looksAtVisibility, &r.visibility, e.Visibility.String)
	if r.own {
		r.owner = e.Owner.String()
	} else {
		keep(s, looksAtOwner, &r.owner, e.Owner.String)
	}
	if r.own && s.looksAt(looksAtStreamed) {
		x := q.set[askExport] // which decides of each what streams hold it
		keep(x, looksAtAgent, &r.agent, e.Agent)
		r.visibility = e.Visibility.String()
		if x.looksAt(looksAtProjection) {
			r.agent = e.RID.String()
		}
	}
	return strings.Join([]string{r.origin, r.owner, r.visibility, r.agent}, "\x00")
}

// see answers a question about a registration that this node serves.
func (q *ruling) see(ask string, id directory.Identity, e *directory.Entry) directory.Decision {
	s := q.set[ask]
	r := registration{own: e.Origin == q.p.domain}
	keep(s, looksAtAgent, &r.agent, e.Agent)
	keep(s, looksAtOwner, &r.owner, e.Owner.String)
	keep(s, looksAtOrigin, &r.origin, e.Origin.Name)
	keep(s, looksAtVisibility, &r.visibility, e.Visibility.String)
	var streamed directory.Decision
	if r.own && s.looksAt(looksAtStreamed) {
		streamed = q.streamed(id, e)
		r.streamed = streamed.Allow
	}
	d := q.remember(question{ask, uidOf(id), r}, func() directory.Decision {
		return q.decide(ask, q.p.identity(id), r.entity(s.uses, nil), types.Record{})
	})
	if r.streamed { // a peer's identity sees no more than its domain is told
		d.Sight = d.Sight.And(streamed.Sight)
	}
	return d
}

// keep notes what a registration has of an attribute that policies look at.
func keep[V string | func() string](s *slice, which attributes, to *string, value V) {
	if !s.looksAt(which) {
		return
	}
	switch v := any(value).(type) {
	case string:
		*to = v
	case func() string:
		*to = v()
	}
}

// streamed is what a stream to the peer domain that id is of holds of e. What
// other domains told us is not ours to pass on to identities of a third.
func (q *ruling) streamed(id directory.Identity, e *directory.Entry) directory.Decision {
	peer, ok := id.SPIFFE()
	if !ok || peer.MemberOf(q.p.domain) {
		return directory.Decision{}
	}
	return q.export(peer.TrustDomain(), e.Agent, e.Owner, e.Visibility, e.Projection())
}

func (q *ruling) remember(asked question, decide func() directory.Decision) directory.Decision {
	q.mu.RLock()
	d, ok := q.known[asked]
	q.mu.RUnlock()
	if ok {
		return d
	}
	d = decide()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.known) >= maxKnown {
		clear(q.known)
	}
	q.known[asked] = d
	return d
}

func (q *ruling) decide(ask string, who principal, resource types.Entity, context types.Record) directory.Decision {
	v := q.view(ask, who.uid, who.entity)
	request := cedar.Request{
		Principal: who.uid,
		Action:    types.NewEntityUID("Action", types.String(ask)),
		Resource:  resource.UID,
		Context:   context,
	}
	s, entities := q.set[ask], &pair{v.principal, resource}
	allow, why := cedar.Authorize(v.policies, entities, request)
	d := directory.Decision{Allow: allow == cedar.Allow}
	for _, reason := range why.Reasons {
		d.Policies = append(d.Policies, string(reason.PolicyID))
	}
	if !d.Allow || len(s.members) == 0 {
		return d
	}
	d.Sight = s.permitted(why.Reasons)
	_, why = cedar.Authorize(v.withholding, entities, request)
	for _, reason := range why.Reasons { // of forbids alone: that is all there is in it
		d.Policies = append(d.Policies, string(reason.PolicyID))
		d.Sight = d.Sight.And(directory.SightWithout(s.members[reason.PolicyID]...))
	}
	return d
}

// permitted is what the policies that permit something let be seen together.
func (s *slice) permitted(reasons []cedar.DiagnosticReason) directory.Sight {
	sight := directory.SightOf()
	for _, reason := range reasons {
		names, some := s.members[reason.PolicyID]
		if !some {
			return directory.Sight{}
		}
		sight = sight.Or(directory.SightOf(names...))
	}
	return sight
}

func uidOf(id directory.Identity) types.EntityUID {
	if id.IsZero() {
		return types.NewEntityUID("Anonymous", "")
	}
	return types.NewEntityUID("Identity", types.String(id.String()))
}

// A principal is who a question is about, made where it is not known yet.
type principal struct {
	uid    types.EntityUID
	entity func() types.Entity
}

func (p *Policy) identity(id directory.Identity) principal {
	uid := uidOf(id)
	return principal{uid, func() types.Entity {
		if id.IsZero() {
			return types.Entity{UID: uid}
		}
		// A WIMSE identifier of the same text is of another name space, and ours only
		// where it was adopted.
		spiffe, _ := id.SPIFFE()
		return types.Entity{
			UID: uid,
			Attributes: types.NewRecord(types.RecordMap{
				"own":    types.Boolean(!spiffe.IsZero() && spiffe.MemberOf(p.domain) || hasPrefix(id, p.own)),
				"domain": types.String(spiffe.TrustDomain().Name()),
				"path":   types.String(spiffe.Path()),
			}),
		}
	}}
}

func (p *Policy) directory() types.Entity {
	return types.Entity{UID: types.NewEntityUID("Directory", types.String(p.domain.Name()))}
}

// entity is a registration as the policies of one question see it, who look at no
// other attributes.
func (r *registration) entity(uses attributes, proj *directory.Projection) types.Entity {
	m := make(types.RecordMap, bits.OnesCount16(uint16(uses)))
	put := func(which attributes, name types.String, value func() types.Value) {
		if uses&which != 0 {
			m[name] = value()
		}
	}
	text := func(which attributes, name types.String, value string) {
		put(which, name, func() types.Value { return types.String(value) })
	}
	truth := func(which attributes, name types.String, value bool) {
		put(which, name, func() types.Value { return types.Boolean(value) })
	}
	text(looksAtAgent, "agent", r.agent)
	text(looksAtOwner, "owner", r.owner)
	text(looksAtOrigin, "origin", r.origin)
	text(looksAtVisibility, "visibility", r.visibility)
	truth(looksAtOwn, "own", r.own)
	truth(looksAtStreamed, "streamed", r.streamed)
	truth(looksAtVisible, "visible", r.visible)
	truth(looksAtExported, "exported", r.exported)
	if proj == nil {
		proj = &directory.Projection{}
	}
	put(looksAtCapabilities, "capabilities", func() types.Value {
		return setOf(proj.Capabilities, func(c *directory.Capability) []string { return []string{c.Name} })
	})
	put(looksAtTypes, "types", func() types.Value {
		return setOf(proj.Capabilities, func(c *directory.Capability) []string { return []string{c.Type} })
	})
	put(looksAtTags, "tags", func() types.Value {
		return setOf(proj.Capabilities, func(c *directory.Capability) []string { return c.Tags }, proj.Tags...)
	})
	put(looksAtProtocols, "protocols", func() types.Value { return setOf(nil, nil, proj.Protocols...) })
	return types.Entity{UID: types.NewEntityUID("Registration", types.String(r.agent)), Attributes: types.NewRecord(m)}
}

// setOf is the set of what capabilities have, and of some texts.
func setOf(cs []directory.Capability, of func(*directory.Capability) []string, texts ...string) types.Value {
	var all []types.Value
	for i := range cs {
		for _, text := range of(&cs[i]) {
			all = append(all, types.String(text))
		}
	}
	for _, text := range texts {
		all = append(all, types.String(text))
	}
	return types.NewSet(all...)
}

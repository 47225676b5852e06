package policy

import (
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/roster-mesh/roster/directory"
)

// An activeSet is a set of policies in force and a cache of its decisions. Each
// question is answered by one activeSet, so that no decision mixes two.
type activeSet struct {
	in      *surroundings
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

// A view holds the policies about one question that apply to one principal: those whose
// guards hold for it.
type view struct {
	principal             types.Entity
	policies, withholding scoped
}

type viewOf struct {
	ask       string
	principal types.EntityUID
}

// maxViewed bounds the policies that are in views. A view of n policies counts as n+1.
const maxViewed = 1 << 18

// view returns a principal's view of a question's policies. make makes the principal.
func (q *activeSet) view(ask string, uid types.EntityUID, make func() types.Entity) *view {
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

	// An order of use would need the lock for writing at every question, which costs more than new views.
	if q.viewed+size > maxViewed {
		clear(q.views)
		q.viewed = 0
	}

	// Another caller may have made the same view meanwhile; it is counted once.
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

// A registration holds the attributes of a registration that policies may use. They use
// the projection as well, but not if the answer is cached.
type registration struct {
	agent, owner, origin, visibility string
	own                              bool // of this domain
	streamed                         bool // of a read: a stream of the reader's domain holds it
	exported                         bool // of an export: the operator lets the peer have something
	visible                          bool // of an export: its visibility lets the peer have it
	// rid and statement stand for a document's contents: of a renewal, if policies look into the document.
	rid       directory.RID
	statement uint64
}

// see answers a question about a registration that this node serves. streamed returns the
// decision whether a stream to the domain of id holds it.
func (q *activeSet) see(
	ask string, id directory.Identity, entry *directory.Entry,
	streamed func(directory.Identity, *directory.Entry) directory.Decision,
) directory.Decision {
	slice := q.set[ask]
	r := registration{own: entry.Origin == q.in.domain}
	keep(slice, looksAtAgent, &r.agent, entry.Agent)
	keep(slice, looksAtOwner, &r.owner, entry.Owner.String)
	keep(slice, looksAtOrigin, &r.origin, entry.Origin.Name)
	keep(slice, looksAtVisibility, &r.visibility, entry.Visibility.String)

	// The decision on the stream costs an evaluation of its own, so it is made only if policies look at it.
	var stream directory.Decision
	if r.own && slice.looksAt(looksAtStreamed) {
		stream = streamed(id, entry)
		r.streamed = stream.Allow
	}

	decision := q.remember(question{ask, uidOf(id), r}, func() directory.Decision {
		return q.decide(ask, q.in.identity(id), r.entity(slice.uses, nil), types.Record{})
	})
	if r.streamed { // a peer's identity sees no more than the stream to its domain holds
		decision.Redaction = decision.Redaction.And(stream.Redaction)
	}

	return decision
}

// renew decides whether the owner of a registration of the domain may register it as it is.
func (q *activeSet) renew(entry *directory.Entry) directory.Decision {
	slice := q.set[askRegister]
	r := registration{own: true}
	keep(slice, looksAtAgent, &r.agent, entry.Agent)
	keep(slice, looksAtOwner, &r.owner, entry.Owner.String)
	keep(slice, looksAtOrigin, &r.origin, entry.Origin.Name)
	keep(slice, looksAtVisibility, &r.visibility, entry.Visibility.String)

	// The projection follows from the statement, whose number stands for it in the cache.
	if slice.looksAt(looksAtProjection) {
		r.rid, r.statement = entry.RID, entry.Statement
	}

	return q.remember(question{askRegister, uidOf(entry.Owner), r}, func() directory.Decision {
		resource := r.entity(slice.uses, entry.Projection())
		return q.decide(askRegister, q.in.identity(entry.Owner), resource, types.Record{})
	})
}

// keep stores an attribute of a registration in to if policies use it.
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

// streamed returns the decision on exporting e to the peer domain of id. Imports are not
// passed on to identities of a third domain.
func (q *activeSet) streamed(id directory.Identity, entry *directory.Entry) directory.Decision {
	peer, ok := id.SPIFFE()
	if !ok || peer.MemberOf(q.in.domain) {
		return directory.Decision{}
	}

	return q.export(peer.TrustDomain(), entry.Agent, entry.Owner, entry.Visibility, entry.Projection())
}

func (q *activeSet) remember(asked question, decide func() directory.Decision) directory.Decision {
	q.mu.RLock()
	decision, ok := q.known[asked]
	q.mu.RUnlock()

	if ok {
		return decision
	}

	// The decision is made without the lock; two callers that make it at once agree.
	decision = decide()
	q.mu.Lock()
	defer q.mu.Unlock()

	if len(q.known) >= maxKnown {
		clear(q.known)
	}

	q.known[asked] = decision

	return decision
}

// decide answers a question. A forbid that can't be evaluated forbids, and one with members withholds
// them: Cedar would skip it, and so permit what its author meant to forbid.
func (q *activeSet) decide(ask string, who principal, resource types.Entity, context types.Record) directory.Decision {
	view := q.view(ask, who.uid, who.entity)
	request := cedar.Request{
		Principal: who.uid,
		Action:    types.NewEntityUID("Action", types.String(ask)),
		Resource:  resource.UID,
		Context:   context,
	}
	slice, entities := q.set[ask], &pair{view.principal, resource}
	allow, why := cedar.Authorize(view.policies, entities, request)
	failed := q.failed(ask, why)

	decision := directory.Decision{Allow: allow == cedar.Allow && len(failed) == 0}

	// If only a failed forbid denies, the permits are no reasons for the answer.
	if decision.Allow || allow == cedar.Deny {
		for _, reason := range why.Reasons {
			decision.Policies = append(decision.Policies, string(reason.PolicyID))
		}
	}

	for _, id := range failed {
		decision.Policies = append(decision.Policies, string(id))
	}

	// Without @members, a permit shows the whole and no forbid withholds a part; a second evaluation would double the
	// cost.
	if !decision.Allow || len(slice.members) == 0 {
		return decision
	}

	decision.Redaction = slice.permitted(why.Reasons)

	// They are evaluated apart, because among the others a forbid of members would deny the whole.
	_, why = cedar.Authorize(view.withholding, entities, request)

	withholding := q.failed(ask, why)
	for _, reason := range why.Reasons { // of forbids alone: that is all there is in it
		withholding = append(withholding, reason.PolicyID)
	}

	for _, id := range withholding {
		decision.Policies = append(decision.Policies, string(id))
		decision.Redaction = decision.Redaction.And(directory.Withhold(slice.members[id]...))
	}

	return decision
}

// failed returns the forbids that could not be evaluated, and reports them.
func (q *activeSet) failed(ask string, why cedar.Diagnostic) (ids []cedar.PolicyID) {
	for _, err := range why.Errors {
		if !q.set[ask].forbids[err.PolicyID] {
			continue
		}

		ids = append(ids, err.PolicyID)

		if q.in.failing != nil {
			q.in.failing(string(err.PolicyID), ask, err.Message)
		}
	}

	return ids
}

// permitted returns the members that the permitting policies together make visible.
func (s *slice) permitted(reasons []cedar.DiagnosticReason) directory.Redaction {
	sight := directory.ShowOnly()
	for _, reason := range reasons {
		names, some := s.members[reason.PolicyID]
		if !some {
			// A single permit without @members shows the whole.
			return directory.Redaction{}
		}

		sight = sight.Or(directory.ShowOnly(names...))
	}

	return sight
}

func uidOf(id directory.Identity) types.EntityUID {
	if id.IsZero() {
		return types.NewEntityUID("Anonymous", "")
	}

	return types.NewEntityUID("Identity", types.String(id.String()))
}

// A principal is the subject of a question. Its entity is made only if it is not known
// yet.
type principal struct {
	uid    types.EntityUID
	entity func() types.Entity
}

func (s *surroundings) identity(id directory.Identity) principal {
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
				"own":    types.Boolean(spiffe.MemberOf(s.domain) || hasPrefix(id, s.own)),
				"domain": types.String(spiffe.TrustDomain().Name()),
				"path":   types.String(spiffe.Path()),
			}),
		}
	}}
}

// hasPrefix reports whether the URI of id begins with one of prefixes.
func hasPrefix(id directory.Identity, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(id.String(), prefix) })
}

func (p *Policy) directory() types.Entity {
	return types.Entity{UID: types.NewEntityUID("Directory", types.String(p.domain.Name()))}
}

// entity returns a registration as an entity. It has only the attributes that the
// policies of one question use.
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

	// A registration without a projection has empty sets, because a missing attribute would be an error.
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

// setOf returns the set of the texts that of returns for each capability, and of texts.
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

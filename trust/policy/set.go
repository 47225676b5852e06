package policy

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The questions of policy: Cedar's actions.
const (
	askRegister   = "register"
	askRead       = "read"
	askInvoke     = "invoke"
	askExport     = "export"
	askOperate    = "operate"
	askCommission = "commission"
	askOnBehalf   = "on-behalf-of"
)

var questions = []string{askRegister, askRead, askInvoke, askExport, askOperate, askCommission, askOnBehalf}

// A slicedSet holds, for each question, the policies that can answer it, because the
// cost of a decision grows with the number of policies evaluated.
type slicedSet map[string]*slice

// A slice is the policies that can answer one question, and the attributes of
// the resource that they look at.
type slice struct {
	policies scopes
	// withholding are the policies that forbid members, and not the whole.
	withholding scopes
	members     map[cedar.PolicyID][]string // of the policies that have @members
	forbids     map[cedar.PolicyID]bool
	uses        attributes
}

// looksAt reports whether the answer may depend on one of some attributes.
func (s *slice) looksAt(which attributes) bool { return s.uses&which != 0 }

// A scopes holds policies by the principals that their heads are about, so that policies about
// others are not evaluated.
type scopes struct {
	all      policyList
	byType   map[types.EntityType]policyList
	byEntity map[types.EntityUID]policyList
}

func (s *scopes) add(principal head, policy namedPolicy) {
	entity := principal.Entity
	switch {
	case entity != nil: // == and in are the same, because there are no groups
		if s.byEntity == nil {
			s.byEntity = map[types.EntityUID]policyList{}
		}

		uid := types.NewEntityUID(types.EntityType(entity.Type), types.String(entity.ID))
		s.byEntity[uid] = append(s.byEntity[uid], policy)
	case principal.Type != "":
		if s.byType == nil {
			s.byType = map[types.EntityType]policyList{}
		}

		t := types.EntityType(principal.Type)
		s.byType[t] = append(s.byType[t], policy)
	default:
		s.all = append(s.all, policy)
	}
}

// of returns the policies that may be about a principal.
func (s *scopes) of(uid types.EntityUID) scoped {
	return scoped{s.all, s.byType[uid.Type], s.byEntity[uid]}
}

// A scoped is the policies that may be about one principal.
type scoped [3]policyList

// All makes scoped a cedar.PolicyIterator.
func (l scoped) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, list := range l {
			for _, p := range list {
				if !yield(p.id, p.policy) {
					return
				}
			}
		}
	}
}

func (l scoped) len() int { return len(l[0]) + len(l[1]) + len(l[2]) }

// seenBy returns the policies whose guards hold for a principal, and as a whole the forbids whose
// guards can't be evaluated.
func (l scoped) seenBy(who types.Entity) (seen scoped) {
	request := cedar.Request{Principal: who.UID}
	for i, list := range l {
		for _, policy := range list {
			if policy.guard == nil {
				seen[i] = append(seen[i], policy)
				continue
			}

			guard := scoped{{{id: policy.id, policy: policy.guard}}}
			holds, why := cedar.Authorize(guard, &pair{principal: who}, request)

			// A permit whose guard fails does not apply; a forbid is kept, so that it fails in the decision as well.
			switch {
			case holds == cedar.Allow:
				seen[i] = append(seen[i], policy)
			case len(why.Errors) > 0 && policy.whole.Effect() == cedar.Forbid:
				seen[i] = append(seen[i], namedPolicy{id: policy.id, policy: policy.whole})
			}
		}
	}

	return seen
}

// A namedPolicy is one policy without the conditions that depend on the principal alone.
// Those are the guard: if it does not hold, the policy does not apply to the principal.
type namedPolicy struct {
	id     cedar.PolicyID
	policy *cedar.Policy
	guard  *cedar.Policy // nil if there is none
	whole  *cedar.Policy // as it was written
}

type policyList []namedPolicy

// parsePolicies reads Cedar policies. Each must carry an @id of its own, the name by
// which a decision refers to it.
func parsePolicies(file string, text []byte) (slicedSet, error) {
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil { // the library calls every text <input>
		return nil, errors.New(strings.Replace(err.Error(), "<input>", file, 1))
	}

	set, seen := slicedSet{}, map[cedar.PolicyID]bool{}
	for _, q := range questions {
		set[q] = &slice{members: map[cedar.PolicyID][]string{}, forbids: map[cedar.PolicyID]bool{}}
	}

	for _, p := range list {
		id := cedar.PolicyID(p.Annotations()["id"])
		if id == "" || seen[id] {
			return nil, fmt.Errorf("%s:%d: a policy needs an @id of its own", file, p.Position().Line)
		}

		seen[id] = true
		if err := set.add(id, p); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, p.Position().Line, err)
		}
	}

	return set, nil
}

// add adds p to the slices of the questions that the action in its head matches.
func (s slicedSet) add(id cedar.PolicyID, p *cedar.Policy) error {
	text, parts, err := partsOfPolicy(p)
	if err != nil {
		return err
	}

	asked, err := parts.Action.questions()
	if err != nil {
		return err
	}

	members, err := membersOf(p, asked)
	if err != nil {
		return err
	}

	lean, guard, err := leaned(text)
	if err != nil {
		return err
	}

	for _, q := range asked {
		to := &s[q].policies
		if p.Effect() == cedar.Forbid {
			s[q].forbids[id] = true
		}

		if members != nil {
			s[q].members[id] = members
			if p.Effect() == cedar.Forbid {
				to = &s[q].withholding
			}
		}

		to.add(parts.Principal, namedPolicy{id, lean, guard, p})

		uses := usesOf(parts.Conditions)

		// The conditions leave out the head, which may be about one registration.
		if parts.Resource.Op != opAll {
			uses = looksAtWhole
		}

		s[q].uses |= uses & knownOf[q]
	}

	return nil
}

// policyJSON is a policy in Cedar's JSON format, whose annotations decide nothing.
type policyJSON struct {
	Effect     string         `json:"effect"`
	Principal  jsontext.Value `json:"principal"`
	Action     jsontext.Value `json:"action"`
	Resource   jsontext.Value `json:"resource"`
	Conditions []condition    `json:"conditions"`
}

// A condition is a when or an unless.
type condition struct {
	Kind string         `json:"kind"`
	Body jsontext.Value `json:"body"`
}

func (j *policyJSON) policy() (*cedar.Policy, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}

	p := new(cedar.Policy)

	return p, p.UnmarshalJSON(text)
}

// leaned splits the conditions of a policy, in JSON: guard has those that depend on the principal
// alone, and lean the rest. lean omits the action, which its place in the set implies: an action in a
// list costs more than the conditions.
func leaned(text []byte) (lean, guard *cedar.Policy, err error) {
	var whole policyJSON
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, nil, err
	}

	anything := jsontext.Value(`{"op":"All"}`)

	about, rest := divided(whole.Conditions, whole.Effect == "forbid")
	if len(about) > 0 {
		// The guard of a forbid is a permit too: its answer says whether the conditions hold.
		guard, err = (&policyJSON{"permit", anything, anything, anything, about}).policy()
		if err != nil {
			return nil, nil, err
		}
	}

	whole.Action, whole.Conditions = anything, rest
	lean, err = whole.policy()

	return lean, guard, err
}

// divided separates the conditions that depend on the principal alone from the rest. All
// of them must hold. So "when a && b" is two conditions, as "unless a || b" is. In a permit
// their order does not matter, because a condition whose evaluation fails does not hold. A
// forbid whose evaluation fails applies: ordered keeps its conditions in their order, so
// that one fails in parts if it fails as a whole.
func divided(all []condition, ordered bool) (about, rest []condition) {
	for _, c := range all {
		joins := "&&"
		if c.Kind == "unless" {
			joins = "||"
		}

		for _, part := range partsOf(c.Body, joins) {
			if ofPrincipal(part) && !(ordered && len(rest) > 0) {
				about = append(about, condition{c.Kind, part})
			} else {
				rest = append(rest, condition{c.Kind, part})
			}
		}
	}

	return about, rest
}

// partsOf returns the operands of an operator, in their order.
func partsOf(body jsontext.Value, operator string) []jsontext.Value {
	var joined map[string]struct {
		Left  jsontext.Value `json:"left"`
		Right jsontext.Value `json:"right"`
	}

	// An expression of another form, such as a variable, has no sides.
	_ = json.Unmarshal(body, &joined)
	if sides, ok := joined[operator]; ok {
		return append(partsOf(sides.Left, operator), partsOf(sides.Right, operator)...)
	}

	return []jsontext.Value{body}
}

// ofPrincipal reports whether an expression depends on nothing but the principal and
// literals. An entity is excluded, because it may be the resource.
func ofPrincipal(expression jsontext.Value) bool {
	var value any
	return json.Unmarshal(expression, &value) == nil && !mentions(value)
}

// mentions reports whether there is an entity, or a variable besides the principal, in
// an expression.
func mentions(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, mentions)
	case map[string]any:
		if name, ok := v["Var"]; ok && name != "principal" {
			return true
		}

		for name, part := range v {
			if name == "__entity" || name == "Slot" || mentions(part) {
				return true
			}
		}
	}

	return false
}

// membersOf returns the members that a policy's @members names, nil for none: of a
// permit all that it lets be seen, of a forbid those that it alone forbids.
func membersOf(p *cedar.Policy, asked []string) ([]string, error) {
	text, ok := p.Annotations()["members"]
	if !ok {
		return nil, nil
	}

	for _, q := range asked {
		if q != askRead && q != askExport {
			return nil, fmt.Errorf("@members is for policies about read or export, and this one is about %s", q)
		}
	}

	var names []string
	for name := range strings.SplitSeq(string(text), ",") {
		if name = strings.TrimSpace(name); name == "" {
			return nil,
				errors.New(`@members is not as in @members("description, tags"): names of members with commas between`)
		}

		names = append(names, name)
	}

	return names, nil
}

// opAll is the operator of a head that is about everything.
const opAll = "All"

// A head is the scope of one variable in a policy's first line.
type head struct {
	Op       string       `json:"op"`
	Type     string       `json:"entity_type"` // of is
	Entity   *headEntity  `json:"entity"`
	Entities []headEntity `json:"entities"`
}

type headEntity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func (h head) questions() ([]string, error) {
	if h.Op == opAll {
		return questions, nil
	}

	named := h.Entities
	if h.Entity != nil {
		named = append(named, *h.Entity)
	}

	var asked []string
	for _, entity := range named {
		if entity.Type != "Action" || !slices.Contains(questions, entity.ID) {
			return nil, fmt.Errorf("there is no action %s::%q", entity.Type, entity.ID)
		}

		asked = append(asked, entity.ID)
	}

	if len(asked) == 0 {
		return nil, errors.New("the policy names no action")
	}

	slices.Sort(asked)

	return slices.Compact(asked), nil
}

// usesOf returns which attributes of the resource a condition looks at: those of
// resource.NAME and resource has NAME; any other mention is of the whole, by the name of
// a registration too.
func usesOf(condition any) (uses attributes) {
	switch c := condition.(type) {
	case []any:
		for _, part := range c {
			uses |= usesOf(part)
		}
	case map[string]any:
		named, _ := c["__entity"].(map[string]any)
		if c["Var"] == "resource" || named["type"] == "Registration" {
			return looksAtWhole
		}

		left, _ := c["left"].(map[string]any)
		if attribute, ok := c["attr"].(string); ok && left["Var"] == "resource" {
			return attributeNames[attribute] // there are no others
		}

		for _, part := range c {
			uses |= usesOf(part)
		}
	}

	return uses
}

// Domains returns the domains besides its own that the policy in force names, sorted: those
// of peers, of identities, and those that the domain of a principal or the origin of a
// registration is compared with.
func (p *Policy) Domains() []string {
	list, err := cedar.NewPolicyListFromBytes("", p.current.Load().text)
	if err != nil { // a text that this release can't read is empty in force
		return nil
	}

	var names []string
	for _, policy := range list {
		var parts any
		if text, err := policy.MarshalJSON(); err == nil && json.Unmarshal(text, &parts) == nil {
			names = append(names, domainsIn(parts)...)
		}
	}

	slices.Sort(names)

	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == p.domain.Name() })
}

// domainsIn returns the domains that a part of a policy, in Cedar's JSON format, names.
func domainsIn(part any) (names []string) {
	switch part := part.(type) {
	case []any:
		for _, each := range part {
			names = append(names, domainsIn(each)...)
		}
	case map[string]any:
		kind, _ := part["type"].(string)
		id, _ := part["id"].(string)

		switch kind {
		case "Peer":
			names = append(names, id)
		case "Identity":
			if spiffe, err := spiffeid.FromString(id); err == nil {
				names = append(names, spiffe.TrustDomain().Name())
			}
		}

		for _, operator := range []string{"==", "!=", "contains"} {
			names = append(names, comparedDomains(part[operator])...)
		}

		for _, each := range part {
			names = append(names, domainsIn(each)...)
		}
	}

	return names
}

// comparedDomains returns the literals with which a comparison compares an attribute that is a
// domain: the other side, or the members of a set.
func comparedDomains(comparison any) (names []string) {
	sides, _ := comparison.(map[string]any)
	for _, order := range [][2]string{{"left", "right"}, {"right", "left"}} {
		attribute, _ := sides[order[0]].(map[string]any)

		access, _ := attribute["."].(map[string]any)
		if access["attr"] != "domain" && access["attr"] != "origin" {
			continue
		}

		other, _ := sides[order[1]].(map[string]any)
		set, _ := other["Set"].([]any)

		for _, value := range append(set, other) {
			literal, _ := value.(map[string]any)
			if name, ok := literal["Value"].(string); ok {
				names = append(names, name)
			}
		}
	}

	return names
}

// A pair is the two entities that one question is about.
type pair struct{ principal, resource types.Entity }

// Get makes pair a cedar.EntityGetter.
func (p *pair) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case p.principal.UID:
		return p.principal, true
	case p.resource.UID:
		return p.resource, true
	}

	return types.Entity{}, false
}

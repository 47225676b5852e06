package trust

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
)

// The questions of policy: Cedar's actions.
const (
	askRegister   = "register"
	askRead       = "read"
	askInvoke     = "invoke"
	askExport     = "export"
	askOperate    = "operate"
	askCommission = "commission"
)

var questions = []string{askRegister, askRead, askInvoke, askExport, askOperate, askCommission}

// A slicedSet holds, for each question, the policies that can answer it: what a
// decision costs grows with the policies that are looked at.
type slicedSet map[string]*slice

// A slice is the policies that can answer one question, and the attributes of
// the resource that they look at: "" among them where it is looked at whole.
type slice struct {
	policies policyList
	uses     map[string]bool
}

// looksAt reports whether the answer may depend on an attribute.
func (s *slice) looksAt(attribute string) bool { return s.uses[attribute] || s.uses[""] }

// readsProjection reports whether the answer may depend on what a document says.
func (s *slice) readsProjection() bool {
	return s.looksAt("capabilities") || s.looksAt("types") || s.looksAt("protocols")
}

type namedPolicy struct {
	id     cedar.PolicyID
	policy *cedar.Policy
}

type policyList []namedPolicy

// All makes policyList a cedar.PolicyIterator, in written order.
func (l policyList) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range l {
			if !yield(p.id, p.policy) {
				return
			}
		}
	}
}

// parsePolicies reads Cedar policies, each of which must carry an @id of its
// own: the name by which a decision tells of it.
func parsePolicies(file string, text []byte) (slicedSet, error) {
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil { // the library calls every text <input>
		return nil, errors.New(strings.Replace(err.Error(), "<input>", file, 1))
	}
	set, seen := slicedSet{}, map[cedar.PolicyID]bool{}
	for _, q := range questions {
		set[q] = &slice{uses: map[string]bool{}}
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
	text, err := p.MarshalJSON() // Cedar's JSON format, where heads and expressions are plain to see
	if err != nil {
		return err
	}
	var w struct {
		Action     head  `json:"action"`
		Resource   head  `json:"resource"`
		Conditions []any `json:"conditions"`
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	asked, err := w.Action.questions()
	if err != nil {
		return err
	}
	for _, q := range asked {
		s[q].policies = append(s[q].policies, namedPolicy{id, p})
		if w.Resource.Op != "All" {
			s[q].uses[""] = true
		}
		findUses(w.Conditions, s[q].uses)
	}
	return nil
}

// A head is what a policy's first line says of one of its variables.
type head struct {
	Op       string       `json:"op"`
	Entity   *headEntity  `json:"entity"`
	Entities []headEntity `json:"entities"`
}

type headEntity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func (h head) questions() ([]string, error) {
	if h.Op == "All" {
		return questions, nil
	}
	named := h.Entities
	if h.Entity != nil {
		named = append(named, *h.Entity)
	}
	var asked []string
	for _, e := range named {
		if e.Type != "Action" || !slices.Contains(questions, e.ID) {
			return nil, fmt.Errorf("there is no action %s::%q", e.Type, e.ID)
		}
		asked = append(asked, e.ID)
	}
	if len(asked) == 0 {
		return nil, errors.New("the policy names no action")
	}
	slices.Sort(asked)
	return slices.Compact(asked), nil
}

// findUses notes which attributes of the resource a condition looks at: those of
// resource.NAME and resource has NAME; any other mention is of the whole.
func findUses(condition any, uses map[string]bool) {
	switch c := condition.(type) {
	case []any:
		for _, part := range c {
			findUses(part, uses)
		}
	case map[string]any:
		if c["Var"] == "resource" {
			uses[""] = true
			return
		}
		left, _ := c["left"].(map[string]any)
		if attribute, ok := c["attr"].(string); ok && left["Var"] == "resource" {
			uses[attribute] = true
			return
		}
		for _, part := range c {
			findUses(part, uses)
		}
	}
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

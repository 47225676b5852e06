package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json"
)

// attributes are a set of a registration's attributes, one bit for each.
type attributes uint16

const (
	looksAtAgent attributes = 1 << iota
	looksAtOwner
	looksAtOrigin
	looksAtOwn
	looksAtVisibility
	looksAtStreamed
	looksAtVisible
	looksAtExported
	looksAtCapabilities
	looksAtTypes
	looksAtTags
	looksAtProtocols

	looksAtWhole attributes = 1<<16 - 1
	// looksAtProjection are the attributes that come from the document.
	looksAtProjection = looksAtCapabilities | looksAtTypes | looksAtTags | looksAtProtocols
	// looksAtCommon are the attributes that every question about a registration knows.
	looksAtCommon = looksAtAgent | looksAtOwner | looksAtOrigin | looksAtOwn | looksAtVisibility
)

var attributeNames = map[string]attributes{
	"agent": looksAtAgent, "owner": looksAtOwner, "origin": looksAtOrigin, "own": looksAtOwn,
	"visibility": looksAtVisibility, "streamed": looksAtStreamed, "visible": looksAtVisible,
	"exported":     looksAtExported,
	"capabilities": looksAtCapabilities, "types": looksAtTypes, "tags": looksAtTags, "protocols": looksAtProtocols,
}

// knownOf has the attributes of the resource that each question knows. The resource of operate and
// commission, the directory, has none.
var knownOf = map[string]attributes{
	askRegister: looksAtCommon | looksAtProjection,
	askOnBehalf: looksAtCommon | looksAtProjection,
	askExport:   looksAtCommon | looksAtProjection | looksAtVisible | looksAtExported,
	askRead:     looksAtCommon | looksAtStreamed,
	askInvoke:   looksAtCommon | looksAtStreamed,
}

// principalAttributes are those of an identity. Anonymous callers and peers have none.
var principalAttributes = []string{"own", "domain", "path"}

// The variables of a condition whose attributes are checked.
const (
	varPrincipal = "principal"
	varResource  = "resource"
	varContext   = "context"
)

// A mentioned holds which attributes the conditions of a policy look at.
type mentioned struct {
	// access has the attributes that are read, and has those whose presence is tested, by variable.
	access, has map[string][]string
	// typed has the variables whose entity, or whose entity's type, is compared.
	typed map[string]bool
}

// mentionedIn collects the attributes and variables that conditions, in Cedar's JSON format, look at.
func mentionedIn(conditions any) mentioned {
	found := mentioned{access: map[string][]string{}, has: map[string][]string{}, typed: map[string]bool{}}
	found.collect(conditions)

	return found
}

func (m *mentioned) collect(part any) {
	switch part := part.(type) {
	case []any:
		for _, each := range part {
			m.collect(each)
		}
	case map[string]any:
		for operator, operands := range part {
			m.note(operator, operands)
			m.collect(operands)
		}
	}
}

// note adds the attribute or variable that one operator looks at.
func (m *mentioned) note(operator string, operands any) {
	sides, _ := operands.(map[string]any)

	// A comparison may have the variable on either side.
	for _, side := range []string{"left", "right"} {
		operand, _ := sides[side].(map[string]any)
		variable, _ := operand["Var"].(string)
		attribute, _ := sides["attr"].(string)

		switch {
		case variable == "":
		case operator == ".":
			m.access[variable] = append(m.access[variable], attribute)
		case operator == "has":
			m.has[variable] = append(m.has[variable], attribute)
		case operator == "is" || operator == "==" || operator == "in":
			m.typed[variable] = true
		}
	}
}

// checkAttributes reports the first attribute in a policy that does not exist, or that one of its
// questions does not know: a permit with it would permit nothing, and a forbid would forbid everything.
func checkAttributes(policy *cedar.Policy) error {
	_, parts, err := partsOfPolicy(policy)
	if err != nil {
		return err
	}

	asked, err := parts.Action.questions()
	if err != nil {
		return err
	}

	found := mentionedIn(parts.Conditions)

	// A head that names the resource guards its attributes as a test in the conditions does.
	found.typed[varResource] = found.typed[varResource] || parts.Resource.Op != opAll

	// An unknown name is a mistake even in a has test, which would never hold.
	for _, each := range []map[string][]string{found.has, found.access} {
		if err := checkNames(each); err != nil {
			return err
		}
	}

	for _, variable := range []string{varResource, varContext} {
		for _, attribute := range found.access[variable] {
			know := questionsThatKnow(variable, attribute)
			unknown := slices.DeleteFunc(slices.Clone(asked), func(ask string) bool {
				return slices.Contains(know, ask)
			})
			// A permit may be about other questions too: it permits nothing of these.
			fails := len(unknown) > 0 && (policy.Effect() == cedar.Forbid || len(unknown) == len(asked))

			if fails && !found.guards(variable, attribute) {
				return fmt.Errorf("%s.%s is not known of the action %s: name one of %s in the policy's head",
					variable, attribute, unknown[0], strings.Join(know, ", "))
			}
		}
	}

	if policy.Effect() == cedar.Permit || parts.Principal.Op != opAll {
		return nil // a permit permits nothing to those without the attribute, as it should
	}

	for _, attribute := range found.access[varPrincipal] {
		if !found.guards(varPrincipal, attribute) {
			return fmt.Errorf("anonymous callers and peers have no principal.%s, and this policy would forbid them "+
				"everything: write (principal is Identity, in its head, or principal is Identity && before it",
				attribute)
		}
	}

	return nil
}

// guards reports whether conditions test the presence of a variable's attribute, or the variable's type.
func (m *mentioned) guards(variable, attribute string) bool {
	return m.typed[variable] || slices.Contains(m.has[variable], attribute)
}

// checkNames reports an attribute that no question knows.
func checkNames(attributesOf map[string][]string) error {
	for _, known := range []struct {
		variable string
		names    []string
	}{
		{varResource, slices.Sorted(maps.Keys(attributeNames))},
		{varPrincipal, principalAttributes},
		{varContext, []string{"operation"}},
	} {
		for _, attribute := range attributesOf[known.variable] {
			if !slices.Contains(known.names, attribute) {
				return fmt.Errorf("there is no %s.%.64s: use one of %s", known.variable, attribute,
					strings.Join(known.names, ", "))
			}
		}
	}

	return nil
}

// questionsThatKnow returns the questions that know an attribute of the resource or the context.
func questionsThatKnow(variable, attribute string) (asks []string) {
	if variable == varContext {
		return []string{askOperate}
	}

	for _, ask := range questions {
		if knownOf[ask]&attributeNames[attribute] != 0 {
			asks = append(asks, ask)
		}
	}

	return asks
}

// policyParts are a policy's parts in Cedar's JSON format, where heads and expressions are plain to see.
type policyParts struct {
	Principal  head  `json:"principal"`
	Action     head  `json:"action"`
	Resource   head  `json:"resource"`
	Conditions []any `json:"conditions"`
}

// partsOfPolicy returns the JSON text of a policy, and its parts.
func partsOfPolicy(policy *cedar.Policy) (text []byte, parts policyParts, err error) {
	if text, err = policy.MarshalJSON(); err == nil {
		err = json.Unmarshal(text, &parts)
	}

	return text, parts, err
}

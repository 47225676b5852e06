package node

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// difference returns the effect of an applied command, for its line in the audit log; nil if action and target describe
// it.
func (o *orders) difference(command *directory.OperatorCommand) *directory.AuditDifference {
	switch {
	case command.OperatorChange.Policy != nil:
		return o.policyDifference(command)
	case command.Peering != nil && command.Peering.Was != nil:
		return audit.DifferenceOf(peeringText(*command.Peering.Was), peeringText(command.Peering.Next))
	case command.Peering != nil:
		return audit.DifferenceOf(nil, peeringText(command.Peering.Next))
	case command.Bundle != nil:
		next := command.Bundle.Was
		next.Bundle = command.Bundle.Next

		return audit.DifferenceOf(peeringText(command.Bundle.Was), peeringText(next))
	case command.Admission != nil && command.Admission.Max > 0:
		return audit.DifferenceOf(nil, fmt.Appendf(nil, "max %d\n", command.Admission.Max))
	case !command.Owner.IsZero():
		return audit.DifferenceOf(nil, fmt.Appendf(nil, "owner %s\n", command.Owner))
	}

	return nil
}

// policyDifference is difference for a policy. An empty text is the built-in policy.
func (o *orders) policyDifference(command *directory.OperatorCommand) *directory.AuditDifference {
	was, is := command.Policy, command.OperatorChange.Policy.Text

	builtIn, _ := o.builtin.InForce()
	if len(was) == 0 {
		was = builtIn
	}

	if len(is) == 0 {
		is = builtIn
	}

	difference := audit.DifferenceOf(was, is)
	difference.WasVersion, difference.Version = &command.PolicyVersion, &command.Position.Revision

	if string(command.Policy) == string(command.OperatorChange.Policy.Text) {
		difference.Version = difference.WasVersion // it was in force already
	}

	return difference
}

// peeringText is a peering as text of which each line is one setting. Its bundle is a hash, and the
// invitation's secret is absent.
func peeringText(peering directory.Peering) []byte {
	var shown struct {
		directory.Peering
		Bundle directory.Hash `json:"bundle,omitzero"`
	}

	if len(peering.Bundle) > 0 {
		shown.Bundle = directory.HashOf(peering.Bundle)
	}

	shown.Peering = peering
	shown.Secret = directory.Hash{}

	text, err := json.Marshal(&shown, jsontext.WithIndent("  "))
	if err != nil {
		text = []byte(err.Error())
	}

	return append(text, '\n')
}

package node

import (
	"context"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/policy"
)

// policyFile is what errors call the domain's policy.
const policyFile = "policy.cedar"

func checkPolicy(text []byte) error { return policy.Check(policyFile, text) }

// enact puts the domain's policy in force at this node.
func (n *Node) enact(text []byte, revision uint64) {
	if err := n.policy.Set(text, revision); err != nil {
		n.log.Error("this release can't read the domain's policy: until it can, nothing is permitted here: upgrade this node", "version", revision, "err", err)
	}
}

// Policy implements api.Operator.
func (o operator) Policy() wire.PolicyText {
	text, version := o.n.policy.InForce()
	return wire.PolicyText{Policy: string(text), Version: version}
}

// SetPolicy implements api.Operator.
func (o operator) SetPolicy(ctx context.Context, by directory.Identity, text string, replaces []uint64) (directory.Outcome, error) {
	if text != "" {
		p, err := o.n.policy.With(policyFile, []byte(text))
		if err != nil {
			return directory.Outcome{}, err
		}
		if !p.Operate(by, "policy.write").Allow {
			return directory.Outcome{}, directory.Refuse(directory.Conflict, "by this policy, %s could not change it again; nothing was changed: permit operate to who does policy.write", by)
		}
	}
	return o.n.store.SetPolicy(ctx, []byte(text), replaces)
}

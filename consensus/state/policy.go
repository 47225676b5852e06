package state

import (
	"bytes"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// policyText is the text of the domain's policy and its version: the revision at which
// it came into force, 0 for the built-in policy. A member that gets it in a snapshot judges it
// by the operator's request and the policies that it was to replace.
type policyText struct {
	Text     []byte    `cbor:"1,keyasint"`
	Revision uint64    `cbor:"2,keyasint"`
	Replaces *[]uint64 `cbor:"3,keyasint,omitempty"`
	Origin   *Origin   `cbor:"4,keyasint,omitempty"` // nil of a domain that does not trace commands yet
}

// MaxPolicy bounds a policy's text, in bytes.
const MaxPolicy = 256 << 10

// PolicyState is the domain's policy and how far grants are decided by it.
type PolicyState struct {
	history *History

	current policyText
	basis   uint64
	verdict *Verdict // nil while some grants may not be decided by the basis
}

// Policy returns the policy in force and its version.
func (p *PolicyState) Policy() (text []byte, version uint64) {
	return p.current.Text, p.current.Revision
}

// Basis returns the revision of the newest policy or peering. Grants are accepted only
// if they were decided for it.
func (p *PolicyState) Basis() uint64 { return p.basis }

// Verdict returns the last verdict; nil while some grants may have to be decided again.
func (p *PolicyState) Verdict() *Verdict { return p.verdict }

// setPolicy puts a policy in force, unless another change came first. A text that is in
// force already is accepted regardless of Replaces: it is a repeated request whose first
// answer was lost (RFC 9110, 13.1.1). The basis moves, so that no grant that was decided
// before is accepted after.
func (p *PolicyState) setPolicy(policy *Policy, origin *Origin) (directory.Outcome, error) {
	if bytes.Equal(policy.Text, p.current.Text) {
		return p.inForce(), nil
	}

	if policy.Replaces != nil && !slices.Contains(*policy.Replaces, p.current.Revision) {
		return directory.Outcome{}, directory.Refuse(directory.PreconditionFailed,
			"the policy in force is version %d, which is not what this was to replace; "+
				"nothing was changed: read it again and repeat the change on that", p.current.Revision)
	}

	p.current = policyText{Text: policy.Text, Revision: p.history.next(), Replaces: policy.Replaces, Origin: origin}
	p.basis = p.current.Revision

	return p.inForce(), nil
}

// inForce returns the position at which the policy came into force.
func (p *PolicyState) inForce() directory.Outcome {
	return directory.Outcome{Position: directory.Position{Epoch: p.history.epoch, Revision: p.current.Revision}}
}

// conclude records a verdict, unless policy or peerings have changed meanwhile.
func (p *PolicyState) conclude(c *Decide) {
	if c.Verdict == nil || c.Verdict.Policy == p.basis {
		p.verdict = c.Verdict
	}
}

package consensus

import (
	"bytes"
	"context"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// A law is the domain's policy, and the revision at which it came in force.
type law struct {
	Text     []byte `cbor:"1,keyasint"`
	Revision uint64 `cbor:"2,keyasint"`
}

// maxPolicy bounds a policy's text, in bytes.
const maxPolicy = 256 << 10

// SetPolicy puts a policy in force on all members, where the one that is in force has
// one of the revisions replaces, and in any case where replaces is nil; a domain that
// never made a policy has revision 0. Else it changes nothing, and the error is
// directory.PreconditionFailed. The leader then decides anew, in bounded commands, who
// beyond the domain may have what. It returns once this member's answers are by it, with
// the position of the change that put it in force, whose revision is its version.
func (s *Store) SetPolicy(ctx context.Context, text []byte, replaces []uint64) (directory.Outcome, error) {
	p := &policy{Text: text}
	if replaces != nil {
		p.Replaces = &replaces
	}
	return s.write(ctx, &request{Policy: p})
}

func (s *Store) checkPolicy(p *policy) error {
	if len(p.Text) > maxPolicy {
		return directory.Refuse(directory.TooLarge, "the policy has %d bytes; at most %d are allowed", len(p.Text), maxPolicy)
	}
	if s.cfg.CheckPolicy == nil || len(p.Text) == 0 {
		return nil
	}
	return s.cfg.CheckPolicy(p.Text)
}

// legislate puts another policy in force, unless another change came first. What is in
// force already is taken whatever it was to replace: a request that was repeated, since
// its answer was lost, has done what it asked for (RFC 9110, 13.1.1). policy moves, so
// that no grant that was asked for before is taken after.
func (s *state) legislate(p *policy) (directory.Outcome, error) {
	if bytes.Equal(p.Text, s.law.Text) {
		return s.enacted(), nil
	}
	if p.Replaces != nil && !slices.Contains(*p.Replaces, s.law.Revision) {
		return directory.Outcome{}, directory.Refuse(directory.PreconditionFailed,
			"the policy in force is version %d, which is not what this was to replace; nothing was changed: read it again and repeat the change on that", s.law.Revision)
	}
	s.law = law{p.Text, s.next()}
	s.policy = s.law.Revision
	return s.enacted(), nil
}

// enacted is where in the history the policy came in force.
func (s *state) enacted() directory.Outcome {
	return directory.Outcome{Position: directory.Position{Epoch: s.epoch, Revision: s.law.Revision}}
}

// promulgate tells of the law where another is in force. The caller holds mu, so
// that nobody sees the state after it with the policy before.
func (s *Store) promulgate() {
	if s.cfg.Policy != nil && s.told != s.state.law.Revision {
		s.told = s.state.law.Revision
		s.cfg.Policy(s.state.law.Text, s.told)
	}
}

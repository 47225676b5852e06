package state

import (
	"maps"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// outline is the state without its registrations and streams.
func (s *State) Outline() *State {
	o := New(s.history.domain, nil)
	o.history.epoch, o.history.revision, o.history.now, o.policy.basis, o.owners.rules, o.keys.issued, o.history.sealed = s.history.epoch, s.history.revision, s.history.now, s.policy.basis, s.owners.rules, s.keys.issued, s.history.sealed
	o.policy.current, o.members.written = s.policy.current, s.members.written
	o.history.ledger = frontier{s.history.ledger.size, slices.Clone(s.history.ledger.edges)}
	o.peers.byDomain, o.keys.byNode, o.keys.rotated, o.keys.revoked = maps.Clone(s.peers.byDomain), maps.Clone(s.keys.byNode), s.keys.rotated, s.keys.revoked
	o.members.byID, o.members.admitted = maps.Clone(s.members.byID), maps.Clone(s.members.admitted)
	o.spent.take(&s.spent)
	o.claims.take(&s.claims)
	return o
}

// succeed makes of a backup's state what the domain goes on with in the place of
// live: everything that counts up goes on above both, what is agreed stays agreed,
// what was used once stays used, and nothing is announced. The policy is the backup's
// only where the domain never made one, as one that lost its disks. It is sealed.
func (s *State) Succeed(live *State, reason string) {
	s.history.restored = s.history.revision
	if s.history.Position().Before(live.history.Position()) {
		s.history.ledger = live.history.ledger
	}
	s.history.epoch, s.history.revision = max(s.history.epoch, live.history.epoch), max(s.history.revision, live.history.revision)
	s.history.now, s.policy.basis = max(s.history.now, live.history.now), max(s.policy.basis, live.policy.basis)
	s.owners.rules, s.keys.issued, s.keys.byNode, s.keys.rotated, s.members.byID, s.members.admitted = live.owners.rules, live.keys.issued, live.keys.byNode, live.keys.rotated, live.members.byID, live.members.admitted
	s.policy.verdict, s.members.written = nil, live.members.written
	if live.policy.current.Revision > 0 {
		s.policy.current = live.policy.current
	}
	maps.Copy(s.peers.byDomain, live.peers.byDomain)
	s.spent.take(&live.spent)
	s.claims.take(&live.claims)
	s.streams.byAudience = map[directory.Audience]*stream{}
	for reg := range s.registrations.regs.each() { // nobody else has seen them yet
		reg.grants = nil
	}
	s.history.sealed = reason
}

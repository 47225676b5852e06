package state

import (
	"maps"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// Outline returns the state without its registrations and streams.
func (s *State) Outline() *State {
	state := New(s.history.domain, nil)
	state.history.epoch = s.history.epoch
	state.history.revision = s.history.revision
	state.history.now = s.history.now
	state.policy.basis = s.policy.basis
	state.owners.rules = s.owners.rules
	state.keys.issued = s.keys.issued
	state.history.sealed = s.history.sealed
	state.history.commands = s.history.commands
	state.policy.current, state.members.written = s.policy.current, s.members.written
	state.history.ledger = ledger.Frontier{Size: s.history.ledger.Size, Edges: slices.Clone(s.history.ledger.Edges)}
	state.peers.byDomain, state.keys.byNode, state.keys.rotated, state.keys.revoked = maps.Clone(s.peers.byDomain),
		maps.Clone(s.keys.byNode), s.keys.rotated, s.keys.revoked
	state.members.byID, state.members.admitted = maps.Clone(s.members.byID), maps.Clone(s.members.admitted)
	state.members.standing, state.decided = maps.Clone(s.members.standing), maps.Clone(s.decided)
	state.spent.take(&s.spent)
	state.ordered.take(&s.ordered)
	state.claims.take(&s.claims)
	state.witness.take(&s.witness)
	state.erasures.known, state.erasures.queue = maps.Clone(s.erasures.known), slices.Clip(s.erasures.queue)

	return state
}

// Succeed turns a backup's state into the successor of the domain's state live. Counters
// continue above both, agreements stay as they are in live, used proofs and keys stay used, cosigned
// logs stay cosigned, erased contents stay erased, and nothing is announced. by ordered the restore.
// Offers of ownership end, because they are of other contents. The policy is the backup's only if the
// domain never set one, as after the loss of its disks. The state is sealed.
func (s *State) Succeed(live *State, reason string, by *Origin) {
	s.history.restored = s.history.revision

	// Before the counters rise: the ledger is that of the later position.
	if s.history.Position().Before(live.history.Position()) {
		s.history.ledger = live.history.ledger
	}

	s.history.epoch = max(s.history.epoch, live.history.epoch)
	s.history.revision = max(s.history.revision, live.history.revision)
	s.history.now = max(s.history.now, live.history.now)
	s.policy.basis = max(s.policy.basis, live.policy.basis)
	s.owners.rules = live.owners.rules
	s.keys.issued = live.keys.issued
	s.keys.byNode = live.keys.byNode
	s.keys.rotated = live.keys.rotated
	s.members.byID = live.members.byID
	s.members.admitted = live.members.admitted
	s.members.standing = live.members.standing
	s.history.commands = max(s.history.commands, live.history.commands)

	// There is no verdict, because the grants are dropped below.
	s.policy.verdict, s.members.written = nil, live.members.written
	if live.policy.current.Revision > 0 {
		s.policy.current = live.policy.current
	}

	// The domain's agreements replace those of the backup.
	maps.Copy(s.peers.byDomain, live.peers.byDomain)
	maps.Copy(s.decided, live.decided)
	s.spent.take(&live.spent)
	s.ordered.take(&live.ordered)
	s.claims.take(&live.claims)
	s.witness.take(&live.witness)
	s.erasures.succeed(&live.erasures)

	for _, offer := range s.offers.all() {
		s.offers.drop(offer.RID)
	}

	s.streams.byAudience = map[directory.Audience]*stream{}

	// No reader has them yet, so they are changed in place.
	for reg := range s.registrations.regs.each() {
		reg.grants = nil
	}

	s.history.sealed = reason
	s.history.restoredBy = by
}

// A Loss is the loss of a domain by the restore of a backup.
type Loss struct {
	Made    int // registrations that were made since the backup: they end
	Changed int // registrations with other contents or another owner since: they are set back
	Removed int // registrations that were removed or have ended since: they come back
	Lapsed  int // registrations whose deadline in the backup has passed: they end
	// Exported is how many registrations of the backup were exported to peers. They drop each until its owner
	// refreshes it (rules P2, P3).
	Exported int
}

// Changes returns how many registrations are not as they were.
func (l Loss) Changes() int { return l.Made + l.Changed + l.Removed + l.Lapsed }

// LossBy returns the loss of a domain in the state live by the restore of old. A domain without
// registrations, such as a new one, loses nothing.
func LossBy(live, old *State) (loss Loss) {
	if live.registrations.Len() == 0 {
		return Loss{}
	}

	both := 0

	for reg := range old.registrations.regs.each() {
		// An erased registration does not come back, so it brings no change.
		if live.erasures.Has(reg.entry.RID) {
			continue
		}

		if len(reg.grants) > 0 {
			loss.Exported++
		}

		now := live.registrations.regs.get(reg.entry.RID)
		if now != nil {
			both++
		}

		switch lapsed := reg.entry.ExpiresAt <= live.history.now; {
		case now == nil && !lapsed:
			loss.Removed++
		case now == nil:
			// The registration has ended, and ends again.
		case now.entry.UpdatedAt != reg.entry.UpdatedAt || now.entry.Owner != reg.entry.Owner:
			loss.Changed++
		case lapsed:
			loss.Lapsed++
		}
	}

	loss.Made = live.registrations.regs.len() - both

	return loss
}

package state

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// decided are the commands that put the decisions of operators on peerings and admissions in force: the
// newest command of an operator, and after it those by which nodes went on. A member that gets the state in
// a snapshot judges it by them.
type decided map[string][]Command

// maxDecided bounds the commands of one decision. Nodes go on with a peering three times at most.
const maxDecided = 8

// decidedKey returns the key of the commands of a decision; empty for a command without one.
func decidedKey(command *Command) string {
	switch {
	case command.Peer != nil:
		return "peer " + command.Peer.Domain.Name()
	case command.Amend != nil:
		return "peer " + command.Amend.Peer.Domain.Name()
	case command.Redeem != nil:
		return "peer " + command.Redeem.Peer.Domain.Name()
	case command.Admit != nil:
		return command.Admit.key()
	}

	return ""
}

func (a *Admission) key() string {
	if a.Pattern != "" {
		return "nodes " + a.Pattern
	}

	return "node " + a.ID.String()
}

// keepDecided keeps an applied command, if it is one of a decision.
func (s *State) keepDecided(command *Command) {
	key := decidedKey(command)
	if key == "" || command.Origin == nil {
		return
	}

	kept := *command
	kept.Spend = nil

	if change, _ := command.Change(); !change.Node {
		s.decided[key] = []Command{kept}
	} else if len(s.decided[key]) < maxDecided {
		s.decided[key] = append(slices.Clip(s.decided[key]), kept)
	}

	if command.Admit != nil {
		s.decided = s.decided.inForce(s)
	}
}

// inForce returns the commands of the decisions that are in force in a state.
func (d decided) inForce(s *State) decided {
	kept := decided{}
	keep := func(key string) {
		if commands, is := d[key]; is {
			kept[key] = commands
		}
	}

	for domain := range s.peers.byDomain {
		keep("peer " + domain.Name())
	}

	for _, admission := range slices.Concat(s.members.Admissions(), s.members.Standing()) {
		keep(admission.key())
	}

	return kept
}

// list returns the commands in the order of their keys, and then of the log.
func (d decided) list() (all []Command) {
	for _, key := range slices.Sorted(maps.Keys(d)) {
		all = append(all, d[key]...)
	}

	return all
}

// put adds a command of a snapshot.
func (d decided) put(command Command) {
	key := decidedKey(&command)
	d[key] = append(d[key], command)
}

// CheckDecided returns why the peerings, admissions and erasures of s don't follow from those of had by commands
// that check accepts. Bundles that nodes refresh at an endpoint are not compared (see BundlesSince), and a
// restored backup brings back peerings that the domain has no more.
func (s *State) CheckDecided(had *State, check func(*Command) error) error {
	for domain, peering := range s.peers.byDomain {
		before, known := had.peers.byDomain[domain]
		before.Domain = domain

		// A restored backup brings peerings back whose commands are not in this domain's log.
		if !known && s.Restored(had) || decidedOf(before).Equal(decidedOf(peering)) {
			continue
		}

		if err := s.checkPeering(had, before, peering, check); err != nil {
			return fmt.Errorf("the peering with %s: %w", domain.Name(), err)
		}
	}

	for domain := range had.peers.byDomain {
		if _, is := s.peers.byDomain[domain]; !is {
			return fmt.Errorf("the peering with %s is missing", domain.Name())
		}
	}

	for _, admission := range slices.Concat(s.members.Admissions(), s.members.Standing()) {
		if had.hasAdmission(admission) {
			continue
		}

		commands := s.decided[admission.key()]
		if len(commands) != 1 || commands[0].Admit == nil || *commands[0].Admit != admission {
			return fmt.Errorf("the admission of %s: no command of an operator admits it", admission.key())
		}

		if err := check(&commands[0]); err != nil {
			return fmt.Errorf("the admission of %s: %w", admission.key(), err)
		}
	}

	return s.erasures.check(&had.erasures, check)
}

func (s *State) hasAdmission(admission Admission) bool {
	if admission.Pattern != "" {
		return s.members.standing[admission.Pattern] == admission.Max
	}

	return s.members.admitted[admission.ID] == admission.Until
}

// checkPeering returns why a peering doesn't follow from the one before by its commands.
func (s *State) checkPeering(had *State, before, peering directory.Peering, check func(*Command) error) error {
	key := "peer " + peering.Domain.Name()
	steps, known := s.decided[key], had.decided[key]

	// Commands behind those of had are the nodes' own.
	if len(known) > 0 && len(steps) >= len(known) && sameProof(steps[0].Origin, known[0].Origin) {
		steps = steps[len(known):]
	}

	if len(steps) == 0 {
		return errors.New("no command leads to it")
	}

	for c := range steps {
		next, err := stepFrom(before, &steps[c])
		if err == nil {
			err = check(&steps[c])
		}

		if err != nil {
			return err
		}

		before = next
	}

	if !decidedOf(before).Equal(decidedOf(peering)) {
		return errors.New("its commands lead to another one")
	}

	return nil
}

// stepFrom returns the peering that a command makes of another.
func stepFrom(was directory.Peering, command *Command) (next directory.Peering, err error) {
	switch {
	case command.Peer != nil:
		return directory.Peering(*command.Peer), nil
	case command.Amend != nil:
		if !decidedOf(was).Equal(decidedOf(directory.Peering(command.Amend.Was))) {
			return next, errors.New("an operator's command is about another one than this member's")
		}

		return directory.Peering(command.Amend.Peer), nil
	case command.Redeem != nil:
		redeem := command.Redeem
		if was.State != directory.PeeringPending || was.Secret != redeem.Secret ||
			directory.HashOf([]byte(redeem.Shown)) != redeem.Secret {
			return next, refuseInvitation(was.Domain)
		}

		return directory.Peering(redeem.of(was)), nil
	}

	return next, errors.New("a command is of another kind")
}

// decidedOf returns a peering without its bundle, if nodes refresh that at its endpoint. Without an endpoint
// operators alone replace the bundle.
func decidedOf(peering directory.Peering) directory.Peering {
	if !peering.Endpoint.IsZero() {
		peering.Bundle = nil
	}

	return peering
}

// BundlesSince returns the changes of peers' bundles between had and s, of a snapshot: those that nodes
// refresh at an endpoint. A restored backup has none, because its bundles are those of its time. Was has the
// endpoint of s.
func (s *State) BundlesSince(had *State) (changes []*directory.BundleChange) {
	if s.Restored(had) {
		return nil
	}

	for _, peering := range s.peers.List() {
		before, known := had.peers.byDomain[peering.Domain]
		if known && !peering.Endpoint.IsZero() && !bytes.Equal(before.Bundle, peering.Bundle) {
			was := peering
			was.Bundle = before.Bundle
			changes = append(changes, &directory.BundleChange{Was: was, Next: peering.Bundle})
		}
	}

	return changes
}

// OrdersBundle reports whether the newest command of an operator on a peering, which check accepts, has put the
// bundle of a change in force.
func (s *State) OrdersBundle(change *directory.BundleChange, check func(*Command) error) bool {
	steps := s.decided["peer "+change.Was.Domain.Name()]
	if len(steps) == 0 {
		return false
	}

	var ordered []byte

	switch first := &steps[0]; {
	case first.Peer != nil:
		ordered = first.Peer.Bundle
	case first.Amend != nil:
		ordered = first.Amend.Peer.Bundle
	}

	return bytes.Equal(ordered, change.Next) && check(&steps[0]) == nil
}

// sameProof reports whether two commands are of one request of an operator.
func sameProof(a, b *Origin) bool {
	one, other := a.Request(), b.Request()

	return one != nil && other != nil && one.Proof != "" && one.ProofID == other.ProofID
}

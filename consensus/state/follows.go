package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Follows returns why s, of a snapshot, can't be a later state of the domain than had, which a member
// has come to by itself; nil if it can. No restore of a backup sets a counter back either. The committed time
// may be earlier: a confirmed step of the clocks corrects it (rule T2).
func (s *State) Follows(had *State) error {
	now, before := &s.history, &had.history

	switch {
	case now.epoch < before.epoch || now.revision < before.revision:
		return fmt.Errorf("it is at position %s, behind this member's %s", now.Position(), before.Position())
	case now.commands < before.commands:
		return fmt.Errorf("it has %d operators' commands and this member has applied %d", now.commands, before.commands)
	case s.policy.current.Revision < had.policy.current.Revision:
		return fmt.Errorf("its policy is version %d, and this member has version %d", s.policy.current.Revision,
			had.policy.current.Revision)
	case s.policy.current.Revision == had.policy.current.Revision &&
		directory.HashOf(s.policy.current.Text) != directory.HashOf(had.policy.current.Text):
		return fmt.Errorf("its policy of version %d is another than this member's of that version",
			s.policy.current.Revision)
	case !s.ordered.knows(&had.ordered):
		return errors.New("it has forgotten operators' proofs that this member knows as used")
	case !s.erasures.knows(&had.erasures):
		return errors.New("it has forgotten erasures that this member knows")
	case s.Restored(had):
		// A restore begins another ledger, so those below need not follow each other.
		return nil
	case s.witness.forgotten(&had.witness) != "":
		return fmt.Errorf("it has cosigned less of %s than this member, or another branch",
			s.witness.forgotten(&had.witness))
	case now.ledger.Size < before.ledger.Size:
		return fmt.Errorf("its ledger has %d leaves and this member's has %d", now.ledger.Size, before.ledger.Size)
	case now.ledger.Size == before.ledger.Size && now.ledger.Root() != before.ledger.Root():
		return fmt.Errorf("its ledger of %d leaves has another root than this member's", now.ledger.Size)
	case s.policy.basis == had.policy.basis && s.decisions() != had.decisions():
		return fmt.Errorf("its policy and peerings of revision %d are others than this member's", s.policy.basis)
	}

	return nil
}

// Restored reports whether a backup was restored, by which the domain went from the state had to s.
func (s *State) Restored(had *State) bool {
	return s.history.epoch != had.history.epoch || s.history.sealed != had.history.sealed
}

// A Decision identifies the decisions of operators: the policy, the peerings, the admissions and the erasures. Bundles
// of peers that nodes refresh at an endpoint are not among it.
type Decision struct {
	Epoch    uint64         `cbor:"1,keyasint"`
	Basis    uint64         `cbor:"2,keyasint"` // revision of the newest policy or peering
	Hash     directory.Hash `cbor:"3,keyasint"`
	Admitted directory.Hash `cbor:"4,keyasint,omitzero"` // the nodes that may join
	Erased   directory.Hash `cbor:"5,keyasint,omitzero"`
}

// Decision returns the identity of the decisions in force.
func (s *State) Decision() Decision {
	admitted, err := Marshal([]any{s.members.Admissions(), s.members.Standing()})
	if err != nil {
		// It never fails, because the admission was decoded from the same.
		panic(err)
	}

	return Decision{Epoch: s.history.epoch, Basis: s.policy.basis, Hash: s.decisions(),
		Admitted: directory.HashOf(admitted), Erased: s.erasures.hash()}
}

func (s *State) decisions() directory.Hash {
	peerings := s.peers.hash()

	data, err := Marshal([]any{s.policy.current.Revision, s.policy.current.Text, peerings})
	if err != nil {
		// It has numbers and bytes alone, so this never fails.
		panic(err)
	}

	return directory.HashOf(data)
}

// hash returns the hash of all peerings as operators have decided them.
func (p *Peerings) hash() (sum directory.Hash) {
	all := sha256.New()

	for _, peering := range p.List() {
		data, err := Marshal(Peer(decidedOf(peering)))
		if err != nil {
			// It never fails, because the peering was decoded from the same.
			panic(err)
		}

		_, _ = all.Write(data)
	}

	return directory.Hash(all.Sum(nil))
}

// PolicyOrder returns the policy in force as the command of an operator that has set it. The request is
// nil if the state has none.
func (s *State) PolicyOrder() directory.OperatorCommand {
	current := &s.policy.current

	order := directory.OperatorCommand{Request: current.Origin.Request(), OperatorChange: directory.OperatorChange{
		Action: directory.ActionPolicy,
		Policy: &directory.PolicyChange{Text: current.Text, Replaces: current.Replaces},
	}}
	if current.Origin != nil {
		order.From, order.Judged = current.Origin.From, time.UnixMilli(current.Origin.Judged)
	}

	return order
}

// RestoreOrder returns the restore of a backup with which the epoch began, as PolicyOrder does the policy.
func (s *State) RestoreOrder() directory.OperatorCommand {
	order := directory.OperatorCommand{Request: s.history.restoredBy.Request()}
	order.Action = directory.ActionRestore

	if by := s.history.restoredBy; by != nil {
		order.From, order.Judged = by.From, time.UnixMilli(by.Judged)
	}

	return order
}

package consensus

import (
	"context"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// The checkpoints that this domain has cosigned, and the cosignatures of its own.
type (
	// A Checkpoint is one of another log that this domain is to cosign behind the last one.
	Checkpoint = state.Cosign
	// A CosignedLog is the last checkpoint of a log that this domain has cosigned.
	CosignedLog = state.CosignedLog
	// Cosignatures are those of a checkpoint of the domain's own ledger.
	Cosignatures = state.Witnessed
)

// Cosign takes a checkpoint if the last one that the domain has cosigned of its log has the size Old,
// and otherwise fails with directory.Conflict. The proof shows the leader that the one continues the
// other. The outcome has the committed time and the epoch for whose keys the checkpoint is good: no
// other branch of the log is taken in that epoch.
func (s *Store) Cosign(ctx context.Context, c Checkpoint, proof []directory.Hash) (directory.Outcome, error) {
	return s.forwarder.write(ctx, &message.Request{Cosign: &message.Cosign{Checkpoint: c, Proof: proof}})
}

// KeepCosignatures has all members know the cosignatures of a checkpoint of the domain's ledger. Only
// the leader can: they are not forwarded.
func (s *Store) KeepCosignatures(ctx context.Context, c Cosignatures) error {
	return s.forwarder.change(ctx, &message.Request{Witnessed: &c})
}

// Cosigned returns the last checkpoint of a log that this domain has cosigned, as applied here, and the
// epoch for whose keys it is good.
func (r *Replica) Cosigned(origin string) (log CosignedLog, epoch uint64, ok bool) {
	r.view(func(s *state.State) {
		log, ok = s.Witness().Cosigned(origin)
		epoch = s.History().Position().Epoch
	})

	return log, epoch, ok
}

// Cosignatures returns those of the domain's own ledger in this epoch; zero without any.
func (r *Replica) Cosignatures() Cosignatures {
	return ask(r, func(s *state.State) Cosignatures { return s.Witness().Own() })
}

// prepareCosign makes the command that takes a checkpoint. Another member's is verified once more.
func (p *preparer) prepareCosign(c *message.Cosign, forwarded bool) (*state.Command, error) {
	var last CosignedLog

	checkpoint := c.Checkpoint

	err := ask(p.replica, func(s *state.State) error {
		last, _ = s.Witness().Cosigned(checkpoint.Origin)
		return s.Witness().Check(&checkpoint)
	})
	if err != nil {
		return nil, err
	}

	if forwarded && p.cfg.CheckCheckpoint != nil {
		if err := p.cfg.CheckCheckpoint(checkpoint, last, c.Proof); err != nil {
			return nil, err
		}
	}

	return &state.Command{Cosign: &checkpoint}, nil
}

// checkWitnessed refuses cosignatures of another checkpoint than one of the ledger, or of an older one.
func (p *preparer) checkWitnessed(c *state.Witnessed) error {
	return ask(p.replica, func(s *state.State) error { return s.Witness().CheckOwn(c) })
}

package node

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/federation/witness"
	"github.com/roster-mesh/roster/node/config"
)

// witnessStore is the domain's memory of the checkpoints that it has cosigned.
type witnessStore struct{ store *consensus.Store }

// Cosigned implements witness.Store.
func (s witnessStore) Cosigned(origin string) (witness.Taken, uint64, bool) {
	log, epoch, ok := s.store.Cosigned(origin)
	return witness.Taken(log), epoch, ok
}

// Cosign implements witness.Store.
func (s witnessStore) Cosign(ctx context.Context, next witness.Next, proof []directory.Hash) (uint64, time.Time,
	error) {
	outcome, err := s.store.Cosign(ctx, consensus.Checkpoint(next), proof)
	return outcome.Position.Epoch, time.Unix(outcome.CosignedAt, 0), err
}

// Linearize implements witness.Store.
func (s witnessStore) Linearize(ctx context.Context) error { return s.store.Linearize(ctx) }

// checkCheckpoint is consensus.Config's.
func (n *Node) checkCheckpoint(c consensus.Checkpoint, last consensus.CosignedLog, proof []directory.Hash) error {
	return n.logs.Check(witness.Next(c), witness.Taken(last), proof)
}

// witnessedLogs returns the logs that the domain cosigns.
func (n *Node) witnessedLogs() *witness.Logs {
	return &witness.Logs{
		Keys: n.keyring, Peerings: n.agreements.List, Outside: outsideLogs(n.cfg.Witness.Logs),
		Every: n.cfg.Witness.Every,
	}
}

// outsideLogs returns the logs of the configuration, which was validated. A log may have several keys.
func outsideLogs(configured []config.OutsideLog) (logs []witness.Log) {
	places := map[string]int{}

	for _, one := range configured {
		key, err := checkpoint.ParseVerifierKey(one.VKey)
		if err != nil {
			continue
		}

		if i, known := places[key.Name]; known {
			logs[i].Keys = append(logs[i].Keys, key)
			continue
		}

		places[key.Name] = len(logs)
		logs = append(logs, witness.Log{Keys: []checkpoint.VerifierKey{key}, Every: one.Every, Contact: one.Contact})
	}

	return logs
}

// newWitness returns the witness that this node's API serves.
func (n *Node) newWitness() *witness.Witness {
	return witness.New(witness.Config{
		PublicURL: n.cfg.PublicURL, Logs: n.logs, Store: witnessStore{n.store}, Keys: n.keyring,
	})
}

package state

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// What was used once since the backup stays used: a proof, and the key of a request
// that an agent has acted on.
func TestWhatWasUsedOnceIsNotRestored(t *testing.T) {
	d := newDrive(t)
	proof := &Spend{directory.Hash{7}, genesis/1000 + 100}
	ends := &Spend{directory.Hash{8}, genesis/1000 + 100}
	d.at(1, Command{Spend: ends})
	d.at(1, Command{Claim: claimOf(2, 1, 1)})
	backup := restore(t, d.state)
	d.at(2, Command{Spend: proof})
	d.at(2, Command{Claim: claimOf(1, 1, 1)})
	d.at(2, Command{Settle: &Settle{directory.Hash{2}, directory.Hash{1}, false, nil}})
	backup.Succeed(d.state.Outline(), "test", nil)

	d.state = restore(t, backup)
	directorytest.Must(t, d.at(3, Command{Epoch: &Epoch{uint64(genesis/1000) + 1, "test"}}).Err)

	problem(t, d.at(4, Command{Spend: proof}).Err, directory.Replayed)
	problem(t, d.at(4, Command{Spend: ends}).Err, directory.Replayed)
	problem(t, d.at(4, Command{Claim: claimOf(1, 1, 2)}).Err, directory.KeyInUse)
	problem(t, d.at(4, Command{Claim: claimOf(2, 1, 2)}).Err, directory.KeySpent)
}

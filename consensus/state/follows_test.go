package state

import "testing"

// A member that lags while a confirmed step sets the committed time back takes the domain's snapshot.
//
// Requirement: FLD-024
func TestASnapshotAfterAStepBackFollows(t *testing.T) {
	d := newDrive(t)
	d.register(7200, ada, "agent", 600)

	had := d.state.Outline()

	if d.register(60, bob, "scout", 600); d.state.history.now >= had.history.now {
		t.Fatalf("committed time went from %d to %d", had.history.now, d.state.history.now)
	}

	if err := restore(t, d.state).Follows(had); err != nil {
		t.Errorf("an honest snapshot is refused: %v", err)
	}
}

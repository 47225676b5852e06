package consensus

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A leader that is stopped keeps nobody waiting for longer than it takes to have another:
// of a write that it was sent the outcome is unknown, one that it was to be sent goes to
// its successor.
func TestAStoppedLeaderKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, other := d.leader()

		third := 3 - leader - other // has no line to the leader
		if _, err := d.nodes[other].Register(t.Context(), put(t, ada, "before", 600)); err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		d.net.hold(d.members[leader].Address, true)
		sent := make(chan error, 1)
		go func() {
			_, err := d.nodes[other].Register(t.Context(), put(t, ada, "sent", 600))
			sent <- err
		}()

		if _, err := d.nodes[third].Register(t.Context(), put(t, ada, "unsent", 600)); err != nil {
			t.Errorf("what nobody was sent: %v", err)
		}

		problem(t, <-sent, directory.OutcomeUnknown)

		if took := time.Since(began); took >= DefaultTiming.Write {
			t.Errorf("both have an answer after %s", took)
		}

		if _, err := d.nodes[other].Register(t.Context(), put(t, ada, "sent", 600)); err != nil {
			t.Errorf("once more: %v", err)
		}

		d.net.hold(d.members[leader].Address, false)
		d.ready()
		d.settled()
		d.close()
	})
}

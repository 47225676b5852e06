package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
)

// A follower sends its time to its leader at intervals and learns the leader's position, which
// Raft does not give it.
type follower struct {
	*member

	terms  *terms
	clocks *clocks
}

// askLeader sends this member's time to the leader, learns the leader's position, and waits a
// little for this member to reach it.
func (f *follower) askLeader() bool {
	leader, term, ok := f.group.follow()
	if !ok || leader.ID == f.cfg.Node {
		return false
	}

	// The end of the leader's term ends the question, because a successor stamps nothing before it knows this clock.
	ctx, cancel := context.WithTimeout(term, f.cfg.Timing.Presence)
	defer cancel()

	var answer message.PresenceAnswer

	began := f.cfg.clock()
	if err := f.messenger.post(ctx, leader, presencePath, f.clocks.presenceRequest(began), &answer); err != nil {
		return false
	}

	f.clocks.judgeClock(began, answer.Time)
	f.clocks.keep(answer.Kept)

	if answer.Epoch == 0 {
		// The leader still replays its log, or no history has begun.
		return false
	}

	at := directory.Position{Epoch: answer.Epoch, Revision: answer.Revision}
	f.checkSeal(at)

	// The wait may end early. The position is judged below.
	_ = f.replica.Await(ctx, at)

	return !f.replica.Position().Before(at)
}

// checkSeal latches a sealed member if its leader, at that position, continues in the same
// epoch: nothing but an epoch follows a restore.
func (f *follower) checkSeal(leader directory.Position) {
	at := f.replica.Position()
	if f.replica.isSealed() && leader.Epoch == at.Epoch && leader.Revision > at.Revision {
		f.life.fail(fmt.Errorf("%w: empty %s and start it again; let it in with: roster raft remove %s && "+
			"roster raft admit %s", errLoneRestore, f.cfg.Dir, f.cfg.Node, f.cfg.Node))
	}
}

// run sends the time to the leader at intervals, and at once to a new leader.
func (f *follower) run() {
	elected, deaf := f.group.elections()
	defer deaf()

	for {
		pause := f.cfg.Timing.Presence
		if f.terms.leader() == nil {
			f.caughtUp.Store(f.askLeader())

			if f.caughtUp.Load() {
				f.replica.settle()
			} else {
				pause = catchUpPause
			}
		}

		// A new leader stamps nothing before it knows its followers' clocks, so it gets this one at once.
		select {
		case <-time.After(pause):
		case <-elected:
		case <-f.life.closing.Done():
			return
		}
	}
}

// catchUpPause is between a follower's words until it has caught up.
const catchUpPause = 50 * time.Millisecond

package consensus

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
)

// A follower sends its time to its leader at intervals and learns the leader's position, which
// Raft does not give it.
type follower struct {
	cfg       *Config
	life      *lifecycle
	group     *group
	replica   *Replica
	clocks    *clocks
	messenger *messenger
	caughtUp  atomic.Bool // has applied the leader's recent position
}

// askLeader sends this member's time to the leader, learns the leader's position, and waits a
// little for this member to reach it.
func (f *follower) askLeader() bool {
	leader, term, ok := f.group.follow()
	if !ok || leader.ID == f.cfg.Node {
		return false
	}

	ctx, cancel := context.WithTimeout(term, f.cfg.Timing.Presence) // a successor waits to hear of this clock
	defer cancel()

	var answer message.PresenceAnswer

	began := f.cfg.clock()
	if err := f.messenger.post(ctx, leader, presencePath, &message.PresenceRequest{Time: began.UnixMilli()},
		&answer); err != nil {
		return false
	}

	f.clocks.judgeClock(began, answer.Time)

	if answer.Epoch == 0 {
		return false // the leader reads its own log again, or there is no history yet
	}

	at := directory.Position{Epoch: answer.Epoch, Revision: answer.Revision}
	f.checkSeal(at)
	_ = f.replica.Await(ctx, at)

	return !f.replica.Position().Before(at)
}

// checkSeal latches a sealed member if its leader, at that position, continues in the same
// epoch: nothing but an epoch follows a restore.
func (f *follower) checkSeal(leader directory.Position) {
	at := f.replica.Position()
	if f.replica.isSealed() && leader.Epoch == at.Epoch && leader.Revision > at.Revision {
		f.life.fail(fmt.Errorf("%w: empty %s and start it again", errLoneRestore, f.cfg.Dir))
	}
}

// run sends the time to the leader at intervals, and at once to a new leader.
func (f *follower) run() {
	elected, deaf := f.group.elections()
	defer deaf()

	for {
		pause := f.cfg.Timing.Presence
		if !f.group.leading.Load() {
			f.caughtUp.Store(f.askLeader())

			if f.caughtUp.Load() {
				f.replica.settle()
			} else {
				pause = catchUpPause
			}
		}

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

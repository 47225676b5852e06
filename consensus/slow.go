package consensus

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// A slow disk is worse than a dead one: the leader's heartbeats flow on while
// every write waits for it. So appends to the log are timed, and a leader whose
// appends are slow for long hands over.

// yieldPause is how long a member keeps the leadership after it handed it over
// because of its disk and got it back: where all disks are slow, to pass it round
// helps nobody.
const yieldPause = time.Minute

var errDiskHangs = errors.New("the disk of this member's log does not answer")

// diskLoop watches how long appends take.
func (s *Store) diskLoop() {
	ticker := time.NewTicker(s.cfg.Timing.Sweep)
	defer ticker.Stop()
	var yielded time.Time
	for {
		select {
		case <-ticker.C:
			s.watchDisk(&yielded)
		case <-s.closing.Done():
			return
		}
	}
}

// watchDisk hands the leadership over when the disk has been slow for too long.
// Raft can do that between two appends only. A leader that hangs in one is made
// silent instead, so that the others elect another; Raft finds out when the disk
// answers again.
func (s *Store) watchDisk(yielded *time.Time) {
	row, current := s.disk.Clock.Slow(time.Now())
	leads := s.raft.State() == raft.Leader
	s.cluster.silence(leads && s.hangs(current))
	if row < s.cfg.Timing.SlowDiskFor || !leads || time.Since(*yielded) < yieldPause {
		return
	}
	*yielded = time.Now()
	s.log.Warn("handing the leadership over: the disk of this member's log is slow",
		"for", row, "current_append", current, "slow_is_over", s.cfg.Timing.SlowDisk)
	s.handOn() // its outcome is seen by the next rounds
}

func (s *Store) hangs(current time.Duration) bool {
	return current > s.cfg.Timing.SlowDisk && current >= s.cfg.Timing.SlowDiskFor && s.watchesDisk()
}

// watchesDisk reports whether there is somebody to hand over to, and it is
// wanted.
func (s *Store) watchesDisk() bool { return s.cfg.Timing.SlowDisk > 0 && s.hasHeir() }

// diskHangs returns how long the log's disk has not answered, where that is too
// long, and 0 otherwise.
func (s *Store) diskHangs() time.Duration {
	if _, current := s.disk.Clock.Slow(time.Now()); s.hangs(current) {
		return current
	}
	return 0
}

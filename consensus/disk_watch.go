package consensus

import (
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
)

// A diskWatch hands the leadership over if the disk of this member's log is slow. A slow
// disk is worse than a dead one: the leader's heartbeats flow on while every write waits
// for it.
type diskWatch struct {
	cfg       *Config
	log       *slog.Logger
	life      *lifecycle
	group     *group
	messenger *messenger
	storage   *storage
	operator  *operator
}

// Heard returns how long ago the leader was heard; 0 on the leader itself, unless
// its disk hangs: then the others have another by now.
func (d *diskWatch) Heard() time.Duration {
	if d.group.raft.State() == raft.Leader {
		return d.hanging()
	}

	last := d.group.raft.LastContact()
	if last.IsZero() {
		last = d.group.opened
	}

	return time.Since(last)
}

// diskHangs returns how long the log's disk has not answered, where that is too
// long, and 0 otherwise.
func (d *diskWatch) hanging() time.Duration {
	if _, current := d.storage.disk.Clock.Slow(time.Now()); d.hangs(current) {
		return current
	}

	return 0
}

func (d *diskWatch) hangs(current time.Duration) bool {
	return current > d.cfg.Timing.SlowDisk && current >= d.cfg.Timing.SlowDiskFor && d.wanted()
}

// diskLoop watches how long appends take.
func (d *diskWatch) run() {
	ticker := time.NewTicker(d.cfg.Timing.Sweep)
	defer ticker.Stop()

	var yielded time.Time
	for {
		select {
		case <-ticker.C:
			d.watch(&yielded)
		case <-d.life.closing.Done():
			return
		}
	}
}

// watchesDisk reports whether there is somebody to hand over to, and it is
// wanted.
func (d *diskWatch) wanted() bool { return d.cfg.Timing.SlowDisk > 0 && d.group.hasOtherVoter() }

// watchDisk hands the leadership over when the disk has been slow for too long.
// Raft can do that between two appends only. A leader that hangs in one is made
// silent instead, so that the others elect another; Raft finds out when the disk
// answers again.
func (d *diskWatch) watch(yielded *time.Time) {
	row, current := d.storage.disk.Clock.Slow(time.Now())
	leads := d.group.raft.State() == raft.Leader
	d.messenger.cluster.Silence(leads && d.hangs(current))

	if row < d.cfg.Timing.SlowDiskFor || !leads || time.Since(*yielded) < yieldPause {
		return
	}

	*yielded = time.Now()
	d.log.Warn("handing the leadership over: the disk of this member's log is slow",
		"for", row, "current_append", current, "slow_is_over", d.cfg.Timing.SlowDisk)
	d.operator.transferToBest() // its outcome is seen by the next rounds
}

// yieldPause is how long a member keeps the leadership after it handed it over
// because of its disk and got it back: where all disks are slow, to pass it round
// helps nobody.
const yieldPause = time.Minute

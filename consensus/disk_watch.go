package consensus

import (
	"time"

	"github.com/hashicorp/raft"
)

// A diskWatch hands the leadership over if the disk of this member's log is slow. A slow
// disk is worse than a dead one: the leader's heartbeats flow on while every write waits
// for it.
type diskWatch struct {
	*member
}

// Heard returns how long ago the leader was last in contact; 0 on the leader itself,
// unless its disk hangs: then the others have elected another by now.
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

// hanging returns for how long the log's disk has not answered, if that is too long, and
// 0 otherwise.
func (d *diskWatch) hanging() time.Duration {
	if _, current := d.storage.disk.Clock.Slow(time.Now()); d.hangs(current) {
		return current
	}

	return 0
}

func (d *diskWatch) hangs(current time.Duration) bool {
	return current > d.cfg.Timing.SlowDisk && current >= d.cfg.Timing.SlowDiskFor && d.wanted()
}

// run watches how long appends take.
func (d *diskWatch) run() {
	var yielded time.Time

	every(d.life.closing, d.cfg.Timing.Sweep, func() { d.watch(&yielded) })
}

// wanted reports whether slow disks are to be watched, and another member can take over.
func (d *diskWatch) wanted() bool { return d.cfg.Timing.SlowDisk > 0 && d.group.hasOtherVoter() }

// watch hands the leadership over if the disk has been slow for too long. Raft can do
// that only between two appends. A leader that hangs in one is silenced instead, so that
// the others elect another; Raft finds out when the disk answers again.
func (d *diskWatch) watch(yielded *time.Time) {
	row, current := d.storage.disk.Clock.Slow(time.Now())
	leads := d.group.raft.State() == raft.Leader
	d.messenger.cluster.Silence(d.group.duplicate.Load() || leads && d.hangs(current))

	if row < d.cfg.Timing.SlowDiskFor || !leads || time.Since(*yielded) < yieldPause {
		return
	}

	*yielded = time.Now()
	d.log.Warn("handing the leadership over: the disk of this member's log is slow",
		"slow_for_ms", row.Milliseconds(), "current_append_ms", current.Milliseconds(),
		"slow_over_ms", d.cfg.Timing.SlowDisk.Milliseconds())
	d.transferToBest() // its outcome is seen by the next rounds
}

// yieldPause is how long a member keeps a leadership that came back after it was handed
// over because of a slow disk: if all disks are slow, handing it round helps nothing.
const yieldPause = time.Minute

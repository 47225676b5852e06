package directory

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long this machine has been suspended since it was started. Go's monotonic
// clock doesn't count that time.
func suspended() time.Duration {
	var awake, all unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil {
		return 0
	}

	return time.Duration(all.Nano() - awake.Nano())
}

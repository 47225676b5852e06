// Package disk tells how much room a disk has.
package disk

import (
	"fmt"
	"syscall"
)

// FreeSpace returns the free space of a directory's disk, in bytes and in percent.
func FreeSpace(dir string) (free uint64, percent int, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("the disk of %s: %w", dir, err)
	}

	free = s.Bavail * uint64(s.Bsize)
	if s.Blocks > 0 {
		percent = int(s.Bavail * 100 / s.Blocks)
	}

	return free, percent, nil
}

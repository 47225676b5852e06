//go:build !linux

package disk

import "errors"

// FreeSpace is known on Linux alone.
func FreeSpace(string) (free uint64, percent int, err error) {
	return 0, 0, errors.New("how much room the disk has is not known on this system")
}

package disk

import (
	"testing"

	"github.com/hashicorp/go-hclog"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}

	return v
}

// openAt opens a disk. failed gets the failures of its log; nil fails the test.
func openAt(t *testing.T, dir string, failed func(error)) (*Disk, error) {
	if failed == nil {
		failed = func(err error) { t.Error(err) }
	}

	return Open(Options{Dir: dir, Log: hclog.NewNullLogger(), Failed: failed, Trailing: 8, LargestEntry: 1 << 20,
		Leads: func() bool { return false }})
}

package consensus

import (
	"errors"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Where the log's next file can't be begun, as on a disk that is full, the member that
// ends for it says why, and not that the last file has no room.
func TestALogWithoutItsNextFileSaysWhy(t *testing.T) {
	var told error
	d, err := openDisk(t.TempDir(), hclog.NewNullLogger(), func(err error) { told = err }, 0, 8, func() bool { return false }, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	if err := d.logs.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: data}}); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	for i := uint64(2); err == nil && i <= 2*segmentSize/uint64(len(data)); i++ {
		err = d.logs.StoreLogs([]*raft.Log{{Index: i, Term: 1, Data: data}})
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(told, syscall.EMFILE) {
		t.Errorf("the member was told: %v", told)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}

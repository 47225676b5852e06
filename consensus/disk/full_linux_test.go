package disk

import (
	"errors"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// Where the log's next file can't be begun, as on a disk that is full, the member that
// ends for it says why, and not that the last file has no room.
func TestALogWithoutItsNextFileSaysWhy(t *testing.T) {
	var told error

	d, err := openAt(t, t.TempDir(), func(err error) { told = err })
	directorytest.Must(t, err)

	data := make([]byte, 1<<20)
	directorytest.Must(t, d.Logs.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: data}}))

	var was syscall.Rlimit
	directorytest.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))

	directorytest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}))

	for i := uint64(2); err == nil && i <= 2*segmentSize/uint64(len(data)); i++ {
		err = d.Logs.StoreLogs([]*raft.Log{{Index: i, Term: 1, Data: data}})
	}

	directorytest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))

	if !errors.Is(told, syscall.EMFILE) {
		t.Errorf("the member was told: %v", told)
	}

	directorytest.Must(t, d.Close())
}

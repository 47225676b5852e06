package disk

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A member that is started twice on one directory says so, and does not wait for itself
// without an end: no signal would reach it. What lets go of it, as a predecessor that
// stops, is no obstacle.
func TestALogThatIsOpenElsewhereIsRefused(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Disk, error) { return openAt(t, dir, nil) }

	first, err := open()
	directorytest.Must(t, err)

	if _, err := open(); err == nil || !strings.Contains(err.Error(), "another process") ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("opened twice: %v", err)
	}

	directorytest.Must(t, first.Close())

	again, err := open()
	if err != nil {
		t.Fatalf("after the first has let go of it: %v", err)
	}

	directorytest.Must(t, again.Close())
}

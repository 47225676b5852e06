package consensus

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A member that is started twice on one directory says so, and does not wait for itself
// without an end: no signal would reach it. What lets go of it, as a predecessor that
// stops, is no obstacle.
func TestALogThatIsOpenElsewhereIsRefused(t *testing.T) {
	dir := t.TempDir()
	open := func() (*disk, error) {
		return openDisk(dir, hclog.NewNullLogger(), func(error) {}, 0, 8, func() bool { return false }, nil)
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "another process") || !strings.Contains(err.Error(), dir) {
		t.Errorf("opened twice: %v", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	again, err := open()
	if err != nil {
		t.Fatalf("after the first has let go of it: %v", err)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
}

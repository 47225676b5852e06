package connect

import (
	"testing"

	"github.com/roster-mesh/roster/trust"
)

// The clients of a command share one connection to the Workload API, and an attempt that failed leaves no updates.
func TestTheWorkloadAPIIsOpenedOnce(t *testing.T) {
	const absent = "unix:///nonexistent/workload.sock"

	ended := false
	w := workloadIdentity{stop: func() { ended = true }}

	if err := w.open("none"); err == nil || !ended {
		t.Errorf("got %v; the updates before have ended: %t", err, ended)
	}

	w.source = new(trust.Source)
	if err := w.open(absent); err != nil {
		t.Errorf("a second client opens it again: %v", err)
	}
}

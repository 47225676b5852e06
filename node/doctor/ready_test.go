package doctor

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/node/config"
)

// A node that was never started is not ready, although the diagnosis before its first start is in order. A
// container's health check asks for readiness.
func TestANodeThatWasNeverStartedIsNotReady(t *testing.T) {
	cfg := config.Config{Data: t.TempDir(), Listen: config.Listen{Admin: "127.0.0.1:1"}}

	if findings := DiagnoseReadiness(t.Context(), cfg); len(findings) != 1 || findings[0].Status != StatusFailed {
		t.Errorf("it finds %+v, want one failure", findings)
	}

	d := newDiagnosis(cfg, nil)
	if d.running(t.Context()); len(d.findings) != 1 || d.findings[0].Status != StatusOK {
		t.Errorf("the diagnosis finds %+v, want ok before a first start", d.findings)
	}
}

// Checks that wait for an answer wait at the same time, and their findings keep their order.
func TestChecksWaitAtTheSameTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var (
		all    sync.WaitGroup
		checks []func(*diagnosis)
	)

	names := []string{"a", "b", "c"}
	all.Add(len(names))

	for _, name := range names {
		checks = append(checks, func(d *diagnosis) {
			all.Done()

			there := make(chan struct{})
			go func() { defer close(there); all.Wait() }()

			select {
			case <-there:
				d.say(name, StatusOK, "", "asked with the others")
			case <-ctx.Done():
				d.say(name, StatusFailed, "", "asked alone")
			}
		})
	}

	d := &diagnosis{}
	d.atOnce(checks)

	for i, finding := range d.findings {
		if finding.Status != StatusOK || finding.Check != names[i] {
			t.Errorf("%+v, want %s", finding, names[i])
		}
	}
}

func TestRaftIsJudgedWithoutADiagnosis(t *testing.T) {
	if findings := JudgeRaft(&wire.RaftStatus{Peers: []wire.RaftPeer{{ID: "a", Voter: true, State: "alive"}}}); len(
		findings) != 1 || findings[0].Status != StatusFailed {
		t.Errorf("without a leader it finds %+v", findings)
	}
}

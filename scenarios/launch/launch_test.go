package launch_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/launch"
)

func start(t *testing.T, script string) *launch.Process {
	t.Helper()

	p, err := launch.Start(exec.Command("sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func TestAProcessEndsByRequest(t *testing.T) {
	p := start(t, `trap 'echo asked; exit 3' TERM; echo begun; while :; do sleep 1 & wait; done`)

	for !strings.Contains(p.Output(), "begun") {
		select {
		case <-p.Done():
			t.Fatalf("it ended: %s", p.Output())
		case <-t.Context().Done():
			t.Fatal("it never began")
		case <-time.After(5 * time.Millisecond):
		}
	}

	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3\nbegun\nasked\n") {
		t.Errorf("it ended with %v, want its exit code and its output", err)
	}

	if code := p.ExitCode(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}

func TestAKilledProcessIsGone(t *testing.T) {
	p := start(t, "exec sleep 60")
	p.Kill()

	select {
	case <-p.Done():
	default:
		t.Error("it still runs")
	}

	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code %d, want -1: a signal", code)
	}

	if err := p.Stop(); err == nil {
		t.Error("its end by a signal is no error")
	}
}

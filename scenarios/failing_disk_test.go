package scenarios

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
)

// The disk of a node fails: each sync answers an I/O error from some moment on. The node ends with
// exit code 1 and says why, whether it leads, follows, or is to save a term or a vote; nothing
// panics. The others go on, and nothing acknowledged is lost.
//
// Requirement: FLD-029
func TestANodeWithAFailingDiskEndsInWords(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace to make syncs fail")
	}

	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")
	nodes := p.Domains[0].Nodes

	for _, n := range nodes { // as children of the test, which can see how they end
		p.kill(n)
		p.restart(n)
	}

	var acknowledged sync.Map

	write := func(name string) error {
		var err error
		for n := range nodes {
			_, err = p.client(0, n, "agent/ada").Register(t.Context(), "kept-"+name,
				[]byte(`{"base":"https://kept.alpha.test/"}`), apiclient.RegisterOptions{Lifetime: time.Hour})
			if err == nil {
				acknowledged.Store("kept-"+name, true)
				return nil
			}
		}

		return err
	}

	for _, c := range []struct {
		name  string
		leads bool
		vote  bool // the node has a vote to save, and no entry
	}{{"leader", true, false}, {"follower", false, false}, {"voter", false, true}} {
		p.eventually("the domain takes a write", func() error { return write("before-" + c.name) })

		status := p.raft(0, 0)
		i := slices.IndexFunc(nodes, func(n dev.Node) bool { return (n.ID == status.Leader) == c.leads })
		victim := nodes[i]
		process := p.started[victim.ID]
		delete(p.started, victim.ID) // it ends by itself

		tracer := injectAtSync(t, strace, "error=EIO", "-p", fmt.Sprint(process.PID()))

		leader := nodes[slices.IndexFunc(nodes, func(n dev.Node) bool { return n.ID == status.Leader })]
		if c.vote {
			p.eventually("strace has it", func() error { return tracedBy(process.PID()) })
			p.kill(leader)
		}

		for ended := false; !ended; {
			if !c.vote {
				_ = write("while-" + c.name)
			}

			select {
			case <-process.Done():
				ended = true
			case <-time.After(200 * time.Millisecond):
			}
		}

		if code := process.ExitCode(); code != 1 {
			t.Errorf("%s: it ended with exit code %d, want 1", c.name, code)
		}

		<-tracer.Done()

		said := process.Output()

		for _, want := range []string{"the node failed: ", "input/output error", "Repair the disk of " + victim.Data} {
			if strings.Count(said, want) == 0 {
				t.Errorf("%s: it does not say %q:\n%s", c.name, want, last(said, 20))
			}
		}

		for _, never := range []string{"panic", "goroutine "} {
			if strings.Contains(said, never) {
				t.Errorf("%s: it says %q:\n%s", c.name, never, last(said, 20))
			}
		}

		t.Logf("%s:\n%s", c.name, last(said, 8))

		if c.vote {
			p.restart(leader)
		}

		p.eventually("the others take a write", func() error { return write("after-" + c.name) })
		p.hold(victim)
		p.restart(victim)
	}

	for n := range nodes {
		p.eventually("everything acknowledged is there", func() error {
			return shows(t, p.client(0, n, "agent/ada"), &acknowledged)
		})
	}
}

// tracedBy returns an error unless a process is traced.
func tracedBy(pid int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
		err = errors.New("not traced yet")
	}

	return err
}

// last returns the last n lines of a text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(slices.Clone(lines[max(0, len(lines)-n):]), "\n")
}

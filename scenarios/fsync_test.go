package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// The only node of a domain is killed at an fsync, again and again, each time at
// another: the first of a thread, the second, and so on, of its log, its state and its
// store of other domains' records. After each start every acknowledged write is there,
// at home and at its peer, and the peer has refused nothing.
//
// Requirement: MESH-018, OPS-003
func TestANodeKilledAtAnySyncLosesNothing(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace to kill a process at an fsync")
	}

	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "2", "--nodes", "1", "--sample", "0")
	n := p.Domains[0].Nodes[0]
	home, peer := p.client(0, 0, "agent/ada"), p.client(1, 0, "agent/bob")

	var acknowledged sync.Map

	moments := []int{1, 3, 20}
	if most := long(60, 0); most > 0 {
		moments = nil
		for at := range most {
			moments = append(moments, at+1)
		}
	}

	for _, at := range moments {
		p.kill(n)
		killed := p.killedAtSync(strace, n, at, func(ctx context.Context, i int) error {
			name := fmt.Sprintf("kept-%d-%d", at, i)

			_, err := home.Register(ctx, name, []byte(`{"base":"https://kept.alpha.test/"}`),
				apiclient.RegisterOptions{Lifetime: time.Hour})
			if err == nil {
				acknowledged.Store(name, true)
			}

			return err
		})
		p.restart(n)

		for _, c := range []*apiclient.Client{home, peer} {
			p.eventually("everything acknowledged is visible", func() error {
				return shows(t, c, &acknowledged)
			})
		}

		if out := p.must(1, 0, "peer", "show", "alpha.test"); strings.Contains(out, "frozen") {
			t.Fatalf("killed at fsync %d, it is frozen:\n%s", at, out)
		}

		if !killed {
			t.Logf("no thread came to its fsync %d", at)
		}
	}

	count := 0
	acknowledged.Range(func(any, any) bool { count++; return true })
	t.Logf("%d acknowledged between %d kills", count, len(moments))

	if count == 0 {
		t.Error("nothing was acknowledged")
	}
}

// killedAtSync runs a node until a thread of it comes to its fsync number at, which
// kills it, and does something again and again meanwhile. It returns false where none
// comes so far in a minute or with 400 done; the node is dead then too.
func (p *processes) killedAtSync(strace string, n dev.Node, at int, do func(context.Context, int) error) bool {
	p.t.Helper()

	// With -D the process is the node, and strace is beside it.
	node := injectAtSync(p.t, strace, fmt.Sprintf("signal=SIGKILL:when=%d", at), "-D", p.path, "serve", "--config",
		n.Config)

	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()

	go func() {
		<-node.Done()
		cancel()
	}()

	for i := 0; ctx.Err() == nil && i < 400; {
		one, stop := context.WithTimeout(ctx, 5*time.Second)
		if do(one, i) == nil {
			i++
		} else { // it isn't ready yet, or no more
			time.Sleep(20 * time.Millisecond)
		}

		stop()
	}

	killed := errors.Is(ctx.Err(), context.Canceled)

	node.Kill()

	return killed
}

// injectAtSync starts strace, which makes something happen at the fsyncs of a process: the one of a
// command, or with -p one that runs.
func injectAtSync(t *testing.T, strace, event string, process ...string) *launch.Process {
	t.Helper()

	args := append([]string{"-f", "-o", os.DevNull, "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:" + event}, process...)

	started, err := launch.Start(exec.Command(strace, args...))
	must(t, err)

	return started
}

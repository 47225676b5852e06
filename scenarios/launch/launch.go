// Package launch builds the program, and starts and ends the processes of tests and loads. Isolate gives
// them a home of their own: the settings of the person who runs them change no test, and no test
// changes those.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
)

// Patience bounds each wait for what happens in the end. A test that passes doesn't need it; on a machine that is
// busy with other tests a second of work may take a minute.
const Patience = 3 * time.Minute

// Eventually tries every 20 ms until try succeeds, and fails the test if it doesn't within Patience.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()

	for deadline := time.Now().Add(Patience); ; <-time.After(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", Patience, what, err)
		}
	}
}

// Within returns how long something may take by the clock: the promised time if STORY_LONG asks for it, on a
// machine that does nothing else, and fifty times as much otherwise.
func Within(promised time.Duration) time.Duration {
	if os.Getenv("STORY_LONG") == "" {
		return 50 * promised
	}

	return promised
}

// Build builds the program in dir, and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "roster")

	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/roster-mesh/roster/cmd/roster")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build roster: %w\n%s", err, out)
	}

	return path, nil
}

// A Process is a child of this process, and is ended by its id.
type Process struct {
	cmd    *exec.Cmd
	output output
	done   chan struct{}
	err    error // set before done is closed
}

// Start starts a command. Process.Output keeps its output, unless the command sends it elsewhere.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}

	if cmd.Stdout == nil {
		cmd.Stdout = &p.output
	}

	if cmd.Stderr == nil {
		cmd.Stderr = &p.output
	}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %q: %w", cmd.Args, err)
	}

	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()

	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.output.String() }

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode waits for the end of the process and returns its exit code; -1 after a signal.
func (p *Process) ExitCode() int {
	<-p.done

	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal, if the process still runs.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process without warning and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// Stop asks the process to end, and waits as Wait does.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself

	return p.Wait()
}

// Wait waits for the end of a process that was asked to end, and kills it if it doesn't. An exit code
// other than 0 is an error, which has the output.
func (p *Process) Wait() error {
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.Kill()
	}

	if p.err != nil {
		return fmt.Errorf("%q: %w\n%s", p.cmd.Args, p.err, p.Output())
	}

	return nil
}

// Mesh runs the program's dev --processes in dir, and waits until the mesh is ready.
func Mesh(ctx context.Context, program, dir string, flags ...string) (*Process, *dev.Mesh, error) {
	args := append([]string{"dev", "--processes", "--port", "0", "--dir", dir, "--sample", "0"}, flags...)

	p, err := Start(exec.Command(program, args...))
	if err != nil {
		return nil, nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()

	for {
		mesh, err := dev.ReadMesh(dir)
		if err == nil && mesh.Ready {
			return p, mesh, nil
		}

		select {
		case <-p.done:
			return nil, nil, errors.Join(errors.New("the mesh ended before it was ready"), p.Wait())
		case <-ctx.Done():
			return nil, nil, errors.Join(fmt.Errorf("the mesh is not ready: %w", ctx.Err()), err, p.Stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// An output keeps what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.String()
}

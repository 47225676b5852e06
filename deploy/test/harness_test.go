package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait, that for the end of a process after SIGTERM too. A machine under load is slow; a test
// that passes doesn't need it.
const patience = 3 * time.Minute

// tool returns the path of a program, and skips the test if it isn't here.
func tool(t *testing.T, name string) string {
	t.Helper()

	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}

	return path
}

// asRoot skips a test that makes mounts or changes accounts.
func asRoot(t *testing.T) {
	t.Helper()

	if os.Getuid() != 0 {
		t.Skip("this needs root")
	}
}

// run runs a command to its end and returns its standard output.
func run(t *testing.T, command *exec.Cmd) string {
	t.Helper()

	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs

	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command.Args, " "), err, out.String(), errs.String())
	}

	return out.String()
}

// scratch is a directory for the length of the run.
var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "roster-deploy-") })

// roster returns the product's binary, built once as for a release. ROSTER names one that is
// there already.
var roster = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("ROSTER"); given != "" {
		return filepath.Abs(given)
	}

	dir, err := scratch()
	if err != nil {
		return "", err
	}

	path := filepath.Join(dir, "roster")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/roster")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")

	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}

	return path, nil
})

func binary(t *testing.T) string {
	t.Helper()

	path, err := roster()
	must(t, err)

	return path
}

// isolate keeps roster from the contexts of the person who runs the tests. Go's own settings stay.
func isolate() error {
	dir, err := scratch()
	if err != nil {
		return err
	}

	if own, err := os.UserConfigDir(); err == nil && os.Getenv("GOENV") == "" {
		if err := os.Setenv("GOENV", filepath.Join(own, "go", "env")); err != nil {
			return err
		}
	}

	return os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
}

func TestMain(m *testing.M) {
	if err := isolate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	code := m.Run()

	if dir, err := scratch(); err == nil {
		_ = os.RemoveAll(dir)
	}

	os.Exit(code)
}

// until waits for a condition. It reports what was seen last.
func until(t *testing.T, what string, condition func() error) {
	t.Helper()

	bound := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}

		if time.Now().After(bound) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}

		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// ownNet returns the beginning of loopback addresses that nobody else uses: three numbers and a dot, others for each
// number of a test.
func ownNet(number int) string {
	return fmt.Sprintf("127.%d.%d.", 1+os.Getpid()%250, 1+(os.Getpid()/250+number)%250)
}

// A process is a program that runs for the length of a test.
type process struct {
	name    string
	command *exec.Cmd
	done    chan struct{}
	err     error
	log     *output
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

// start starts a program, and ends it with the test. If the test has failed, its output is
// shown.
func start(t *testing.T, name string, command *exec.Cmd) *process {
	t.Helper()

	p := &process{name: name, command: command, done: make(chan struct{}), log: &output{}}
	if command.Stdout == nil {
		command.Stdout = p.log
	}

	command.Stderr = p.log

	if err := command.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}

	go func() {
		defer close(p.done)

		p.err = command.Wait()
	}()
	t.Cleanup(func() {
		p.stop(t)

		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, tail(p.log.String(), 40))
		}
	})

	return p
}

// stop ends the process by SIGTERM.
func (p *process) stop(t *testing.T) {
	t.Helper()

	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%s did not stop within %s of SIGTERM", p.name, patience)

		_ = p.command.Process.Kill()

		<-p.done
	}
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")

	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

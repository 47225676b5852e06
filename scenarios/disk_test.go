package scenarios

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A node whose log has no room left ends with the reason and a remedy. The others
// continue, and the node comes back with everything once there is room. The test needs
// root, for a file system of its own.
//
// Requirement: OPS-003
func TestANodeWithAFullDiskEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a small file system")
	}

	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")
	victim := p.Domains[0].Nodes[2]
	p.kill(victim)
	log := filepath.Join(victim.Data, "consensus", "log")
	unmount := mountSmall(t, log)
	p.restart(victim)
	process := p.started[victim.ID]
	delete(p.started, victim.ID) // it is not asked to end: it ends

	ada := p.client(0, 0, "agent/ada")
	notes := make([]byte, 45_000)
	_, _ = rand.Read(notes) // never fails; repetitive text would be compressed to nothing
	document := fmt.Appendf(nil, `{"base":"https://large.example/","notes":%q}`,
		base64.StdEncoding.EncodeToString(notes))
	// some hundred writes to two disks, on a machine that may be busy
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	for n := 0; ; n++ {
		// On a slow machine the victim may lead by now. The outcome of its pending
		// writes is then unknown, as if any leader had died, and they are repeated.
		_, err := ada.Register(ctx, fmt.Sprint("large-", n%20), document,
			apiclient.RegisterOptions{Lifetime: time.Hour})
		if refused := (*apiclient.Error)(nil); err != nil &&
			(!errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable) {
			t.Fatalf("with one of three nodes short of disk: %v", err)
		}

		select {
		case <-process.Done():
			t.Logf("it ended after %d registrations of 60 kB", n)
		default:
			continue
		}

		break
	}

	if code := process.ExitCode(); code != 1 {
		t.Errorf("it ended with exit code %d, want 1", code)
	}

	said := process.Output()
	for _, want := range []string{"the node failed: write the log:", "no space left on device",
		"Repair the disk of " + victim.Data, "serve --config " + victim.Config} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, last(said, 20))
		}
	}

	unmount()
	p.eventually(30*time.Second, "those that are left take a write", func() error {
		_, err := ada.Register(ctx, "after", []byte(`{"base":"https://after.example/"}`),
			apiclient.RegisterOptions{Lifetime: time.Hour})

		return err
	})
	p.restart(victim)

	if _, err := p.client(0, 2, "agent/ada").
		GetFresh(ctx, "after", apiclient.ReadOptions{Consistency: "linearizable"}); err != nil {
		t.Errorf("after it was started again: %v", err)
	}
}

// mountSmall replaces a directory by a small file system with the same contents. unmount
// copies the contents back.
func mountSmall(t *testing.T, dir string) (unmount func()) {
	t.Helper()
	kept := dir + ".kept"
	must := func(err error) {
		t.Helper()

		must(t, err)
	}
	must(os.Rename(dir, kept))
	must(os.Mkdir(dir, 0o700))
	must(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"))
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	must(copyFiles(kept, dir))

	return func() {
		must(os.RemoveAll(kept))
		must(os.Mkdir(kept, 0o700))
		must(copyFiles(dir, kept))
		must(syscall.Unmount(dir, 0))
		mounted = false
		must(os.Remove(dir))
		must(os.Rename(kept, dir))
	}
}

func copyFiles(from, to string) error {
	files, err := os.ReadDir(from)
	for _, f := range files {
		b, e := os.ReadFile(filepath.Join(from, f.Name()))
		if e == nil {
			e = os.WriteFile(filepath.Join(to, f.Name()), b, 0o600)
		}

		err = errors.Join(err, e)
	}

	return err
}

// last returns the last n lines of a text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(slices.Clone(lines[max(0, len(lines)-n):]), "\n")
}

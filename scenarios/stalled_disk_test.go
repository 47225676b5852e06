package scenarios

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
)

// A frozenDisk is a file system of its own that stops answering at will.
type frozenDisk struct {
	t   *testing.T
	dir string
}

// mountFreezable puts a file system in the place of a directory, with its files. It
// skips the test if that isn't possible here.
func mountFreezable(t *testing.T, dir string) *frozenDisk {
	t.Helper()

	for _, tool := range []string{"mkfs.ext4", "mount", "fsfreeze"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, for a file system that can be frozen", tool)
		}
	}

	image, kept := filepath.Join(t.TempDir(), "image"), dir+".kept"
	for _, step := range []func() error{
		func() error { return os.WriteFile(image, nil, 0o600) },
		func() error { return os.Truncate(image, 64<<20) },
		func() error { return run("mkfs.ext4", "-q", image) },
		func() error { return os.Rename(dir, kept) },
		func() error { return os.Mkdir(dir, 0o700) },
	} {
		must(t, step())
	}

	if err := run("mount", "-o", "loop", image, dir); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })

	must(t, os.CopyFS(dir, os.DirFS(kept)))

	return &frozenDisk{t: t, dir: dir}
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}

	return nil
}

// freeze stops the file system until the returned function is called or the test ends. A
// process that waits for the file system can't be ended before.
func (d *frozenDisk) freeze() (thaw func()) {
	d.t.Helper()

	if err := run("fsfreeze", "-f", d.dir); err != nil {
		d.t.Skipf("a file system can't be frozen here: %v", err)
	}

	thaw = sync.OnceFunc(func() {
		if err := run("fsfreeze", "-u", d.dir); err != nil {
			d.t.Error(err)
		}
	})
	d.t.Cleanup(thaw)

	return thaw
}

// onFreezableDisk moves the federation directory of a node to a disk that can be frozen.
func (p *processes) onFreezableDisk(n dev.Node) *frozenDisk {
	p.t.Helper()

	p.kill(n)
	d := mountFreezable(p.t, filepath.Join(n.Data, "federation"))
	p.restart(n)

	return d
}

// The disk under a node's federation store is frozen, for real. The node answers lookups,
// scrapes, readiness, its operator and its peers as if nothing was, says that it takes
// nothing new, and why; and has everything once the disk is back.
//
// Requirement: FORM-007
func TestAFrozenFederationDiskStopsNoRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it freezes a file system")
	}

	t.Parallel() // most of its time it waits for processes

	p := startProcesses(t, "--domains", "2", "--nodes", "1", "--sample", "0")
	victim := p.Domains[1].Nodes[0]
	disk := p.onFreezableDisk(victim)

	ada, bob := p.client(0, 0, "agent/ada"), p.client(1, 0, "agent/bob")
	operator := p.client(1, 0, "ops/operator")
	register := func(c *apiclient.Client, agent string) {
		t.Helper()
		document := fmt.Appendf(nil, `{"base":"https://%s.example/"}`, agent)

		_, err := c.Register(t.Context(), agent, document, apiclient.RegisterOptions{Lifetime: time.Hour})
		must(t, err)
	}
	has := func(c *apiclient.Client, n int) func() error {
		return func() error {
			found, err := names(t, c, "kept-")
			if err == nil && len(found) != n {
				err = fmt.Errorf("%d are shown", len(found))
			}

			return err
		}
	}

	register(ada, "kept-before")
	p.eventually("beta shows it", has(bob, 1))

	thaw := disk.freeze()

	for i := range 50 {
		register(ada, fmt.Sprint("kept-meanwhile-", i))
	}

	stalled := func() (float64, error) { return metric(victim, "roster_federation_store_stalled_seconds") }
	p.eventually("beta sees that its disk does not answer", func() error {
		seconds, err := stalled()
		if err == nil && seconds == 0 {
			err = errors.New("it does not")
		}

		return err
	})

	// It answers every caller: the clients wait for half a minute, and the disk for ever.
	if _, err := stalled(); err != nil {
		t.Errorf("/metrics: %v", err)
	}

	if err := ready(victim); err != nil {
		t.Errorf("/readyz: %v", err)
	}

	if err := has(bob, 1)(); err != nil {
		t.Error(err)
	}

	p.eventually("its operator sees why it takes nothing new", func() error {
		peers, _, err := operator.Operator().Peers(t.Context())
		if err != nil || len(peers) != 1 || peers[0].State != "behind" ||
			!strings.Contains(peers[0].LastError, "has not responded for") {
			return fmt.Errorf("peer list: %+v %w", peers, err)
		}

		out, _ := exec.Command(p.path, "doctor", "--config", victim.Config).CombinedOutput()
		if !strings.Contains(string(out), "warning\tfederation.store\tits disk has not answered for") {
			return fmt.Errorf("the doctor says\n%s", out)
		}

		return nil
	})

	// Its own domain takes writes, and they reach its peer.
	register(bob, "kept-own")
	p.eventually("alpha shows beta's new registrations", has(ada, 52))

	thaw()
	p.eventually("beta shows all that it missed", has(bob, 52))
	p.eventually("its disk answers, and alpha is active", func() error {
		seconds, err := stalled()
		if err != nil || seconds > 0 {
			return fmt.Errorf("stalled for %.0f s (%w)", seconds, err)
		}

		peers, _, err := operator.Operator().Peers(t.Context())
		if err == nil && peers[0].State != "active" {
			err = errors.New(peers[0].State)
		}

		return err
	})
}

package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
)

// A member doesn't begin with what it did not write: with a document that a disk
// changed, without the log that it had, with another's votes. It says so, and never by
// a panic. A disk that is full, or a later release's, is not damaged: nobody is to remove it.
func TestADamagedDiskIsRefused(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		register := func(agent string) {
			t.Helper()

			d.register(0, agent, 600)
		}
		register("before")

		var backup bytes.Buffer
		must(t, d.nodes[0].restorer.Backup(t.Context(), &backup))

		if _, err := d.nodes[0].restorer.Restore(t.Context(), &backup, RestoreOptions{NewEpoch: true}); err != nil {
			t.Fatal(err) // whose snapshot the log begins behind
		}

		register("flipped")
		register("after")
		d.stop(0)
		dir := filepath.Join(d.dir, "0")
		segment := func(dir string) string { return valueOf(filepath.Glob(filepath.Join(dir, "log", "*.wal")))[0] }
		change := func(path string, change func([]byte) []byte) {
			t.Helper()

			must(t, os.WriteFile(path, change(valueOf(os.ReadFile(path))), 0o600))
		}
		half := func(b []byte) []byte { return b[:len(b)/2] }
		none := func([]byte) []byte { return nil }

		index := filepath.Join("log", "wal-meta.db")
		for _, c := range []struct {
			name, says string
			damage     func(dir string)
		}{
			{"a name in an entry is another", "is not what was written", func(dir string) {
				change(segment(dir), func(b []byte) []byte {
					return bytes.Replace(b, []byte("flipped"), []byte("flopped"), 1)
				})
			}},
			{"a segment's head", "", func(dir string) {
				change(segment(dir), func(b []byte) []byte {
					b[9] ^= 1
					return b
				})
			}},
			{"the log's directory file is empty", "", func(dir string) { change(filepath.Join(dir, index), none) }},
			{"it is cut", "", func(dir string) { change(filepath.Join(dir, index), half) }},
			{"it is gone", "it is gone", func(dir string) { _ = os.Remove(filepath.Join(dir, index)) }},
			{"the log is gone", "it is gone", func(dir string) { _ = os.RemoveAll(filepath.Join(dir, "log")) }},
			{"the owner's mark is gone", "which says whose it is", func(dir string) {
				_ = os.Remove(filepath.Join(dir, "member"))
			}},
			{"the owner's mark is empty", "does not say whose", func(dir string) {
				change(filepath.Join(dir, "member"), none)
			}},
			{"the snapshots are gone", "", func(dir string) { _ = os.RemoveAll(filepath.Join(dir, "snapshots")) }},
			{"a snapshot is cut", "", func(dir string) {
				change(valueOf(filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin")))[0], half)
			}},
		} {
			d.dir = t.TempDir()

			copied := filepath.Join(d.dir, "0")
			must(t, os.CopyFS(copied, os.DirFS(dir)))

			c.damage(copied)

			s, err := d.open(0)
			if err == nil {
				t.Errorf("%s: it started", c.name)
				_ = s.Close()
			} else if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
		}

		d.dir = filepath.Dir(dir)
		me := d.members[0]

		d.members[0].ID = valueOf(alphaNode("another"))
		if _, err := d.open(0); err == nil || !strings.Contains(err.Error(), me.ID.String()) {
			t.Errorf("with another's state: %v", err)
		}

		d.members[0] = me

		d.dir = t.TempDir()
		must(t, os.CopyFS(filepath.Join(d.dir, "0"), os.DirFS(dir)))

		later := valueOf(raft.NewFileSnapshotStore(filepath.Join(d.dir, "0"), 1, io.Discard))
		meta := valueOf(later.List())[0]
		_, nowhere := raft.NewInmemTransport("")

		sink := valueOf(later.Create(meta.Version, meta.Index, meta.Term+1, meta.Configuration, meta.ConfigurationIndex,
			nowhere))
		must(t, errors.Join(state.NewEncoder(sink).
			Encode(&state.Header{Version: state.NewestSnapshotVersion + 1, Domain: alpha.Name()}),
			sink.Close()))

		if _, err := d.open(0); err == nil || errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), fmt.Sprintf("has version %d and this release reads versions up to %d",
				state.NewestSnapshotVersion+1, state.NewestSnapshotVersion)) {
			t.Errorf("with a later release's snapshot: %v", err)
		}

		d.dir = filepath.Dir(dir)
		d.start(0)
		d.ready()
	})
}

func TestADiskThatIsFullIsNotDamaged(t *testing.T) {
	if err := disk.AsDamage(fmt.Errorf("create a segment: %w", syscall.ENOSPC)); errors.Is(err, ErrDamaged) ||
		!errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}

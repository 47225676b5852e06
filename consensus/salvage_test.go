package consensus

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/backup"
)

// Three of five disks are lost. Either of the two that are left has all that was
// acknowledged, by its snapshot and its log or by its log alone, and a new domain takes
// it up, in a new epoch and with the peers that the old one had.
//
// Requirement: MESH-019
func TestADomainThatLostItsMajorityIsSalvaged(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprint("snapshot=", snapshot), func(t *testing.T) {
			inDomain(t, 5, nil, func(t *testing.T, d *domain) {
				leader, left := d.leader()
				for i := range 20 {
					if i == 10 && snapshot {
						if err := d.nodes[left].group.raft.Snapshot().Error(); err != nil &&
							!errors.Is(err, raft.ErrNothingNewToSnapshot) {
							t.Fatal(err)
						}
					}

					d.register(leader, fmt.Sprint("agent-", i), 3600)
				}

				want := inspect(t, d.backup(left))
				log := d.nodes[left].group.raft
				d.close()
				dir := filepath.Join(d.dir, fmt.Sprint(left))
				before := sumsOf(t, dir)

				var file bytes.Buffer

				end, err := backup.Salvage(dir, alpha, 0, &file)
				must(t, err)

				if has := log.Stats(); fmt.Sprint(end.Term) != has["last_log_term"] ||
					fmt.Sprint(end.Entry) != has["last_log_index"] {
					t.Errorf("its log ends at %+v, and not at entry %s of term %s", end, has["last_log_index"],
						has["last_log_term"])
				}

				if after := sumsOf(t, dir); !maps.Equal(before, after) {
					t.Errorf("the directory had\n%v\nand has\n%v", before, after)
				}

				got := inspect(t, file.Bytes())
				if got.Hash != want.Hash || got.Registrations != 20 || got.Position.Epoch != want.Position.Epoch ||
					got.Node != d.members[left].ID || got.LedgerSize < want.LedgerSize {
					t.Errorf("salvaged %+v, want %+v", got, want)
				}

				anew := newDomain(t, 3, nil)
				anew.ready()
				to, _ := anew.leader()

				// A new domain loses no changes by it.
				done, err := anew.nodes[to].restorer.Restore(t.Context(), bytes.NewReader(file.Bytes()),
					RestoreOptions{NewEpoch: true, Reason: "three disks lost"})
				if err != nil || done.Registrations != 20 || done.Now.Epoch <= want.Position.Epoch {
					t.Errorf("restored %+v, %v", done, err)
				}
			})
		})
	}
}

// sumsOf returns the sums and modes of all files below a directory.
func sumsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}

	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		if err != nil || e.IsDir() {
			sums[path] = fmt.Sprint(info.Mode())
			return err
		}

		b, err := os.ReadFile(path)
		sums[path] = fmt.Sprintf("%v %x", info.Mode(), sha256.Sum256(b))

		return err
	})
	must(t, err)

	return sums
}

// A snapshot that can't be read is done without where the log has what it had, and never
// by giving what was long before it.
func TestAnOldSnapshotIsNotSalvagedForANewOne(t *testing.T) {
	for _, logged := range []bool{true, false} {
		inDomain(t, 1, nil, func(t *testing.T, d *domain) {
			for i := range 2 {
				d.register(0, fmt.Sprint("agent-", i), 3600)

				must(t, d.nodes[0].group.raft.Snapshot().Error())

				time.Sleep(time.Second) // a snapshot is named by when it was taken
			}

			d.close()
			dir := filepath.Join(d.dir, "0")

			files, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
			if len(files) != 2 {
				t.Fatal(files)
			}

			if err := os.Truncate(files[1], 10); err != nil { // they are named by term and entry
				t.Fatal(err)
			}

			if !logged { // as of a member that was sent the snapshot
				stopped, err := backup.OpenStopped(dir)
				must(t, err)

				first, _ := stopped.Logs.FirstIndex()

				last, _ := stopped.Logs.LastIndex()
				must(t, errors.Join(stopped.Logs.DeleteRange(first, last), stopped.Close()))
			}

			var file bytes.Buffer

			_, err := backup.Salvage(dir, alpha, 0, &file)
			switch {
			case !logged && (!errors.Is(err, ErrDamaged) || file.Len() > 0):
				t.Errorf("%v, and %d bytes are written, of a snapshot that is not the newest", err, file.Len())
			case logged && err != nil:
				t.Error(err)
			case logged && inspect(t, file.Bytes()).Registrations != 2:
				t.Error("the log is not in it")
			}
		})
	}
}

// What is no member's directory, or is not whole, gives no backup.
func TestWhatCannotBeSalvaged(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		d.register(0, "kept", 3600)

		d.close()
		dir := filepath.Join(d.dir, "0")

		var file bytes.Buffer
		if _, err := backup.Salvage(t.TempDir(), alpha, 0, &file); err == nil ||
			!strings.Contains(err.Error(), "no node's") {
			t.Errorf("of an empty directory: %v", err)
		}

		if _, err := backup.Salvage(dir, beta, 0, &file); err == nil ||
			!strings.Contains(err.Error(), "no node of beta.test") {
			t.Errorf("as another domain's: %v", err)
		}

		must(t, os.RemoveAll(filepath.Join(dir, "log")))

		if _, err := backup.Salvage(dir, alpha, 0, &file); !errors.Is(err, ErrDamaged) {
			t.Errorf("without its log: %v", err)
		}

		if file.Len() > 0 {
			t.Errorf("%d bytes were written of what can't be salvaged", file.Len())
		}
	})
}

// A log with an entry that this release can't apply lets no member start: the refusal names the entry, and
// what the domain had before it is salvaged, by a snapshot ahead of it or by the log alone.
//
// Requirement: MESH-019
func TestALogIsCutBeforeAnEntry(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		inDomain(t, 1, nil, func(t *testing.T, d *domain) {
			d.register(0, "kept", 3600)

			if snapshot {
				must(t, d.nodes[0].group.raft.Snapshot().Error())
			}

			d.close()
			dir := filepath.Join(d.dir, "0")

			stopped, err := backup.OpenStopped(dir)
			must(t, err)

			last, _ := stopped.Logs.LastIndex()
			bad := command(t, 99)
			bad.Index, bad.Term = last+1, 3
			after := &raft.Log{Type: raft.LogNoop, Index: last + 2, Term: 3}

			must(t, errors.Join(stopped.Logs.StoreLogs([]*raft.Log{bad, after}), stopped.Close()))

			_, err = d.open(0)

			var entry *backup.EntryError
			if !errors.As(err, &entry) || entry.Entry != last+1 || entry.Term != 3 {
				t.Fatalf("the member starts with %v, want a refusal that names entry %d", err, last+1)
			}

			var file bytes.Buffer
			if _, err := backup.Salvage(dir, alpha, 0, &file); !errors.As(err, &entry) || entry.Entry != last+1 {
				t.Errorf("salvage without an entry: %v", err)
			}

			end, err := backup.Salvage(dir, alpha, entry.Entry, &file)
			if err != nil || end.Entry != last || inspect(t, file.Bytes()).Registrations != 1 {
				t.Errorf("salvaged to %+v: %v", end, err)
			}

			if _, err := backup.Salvage(dir, alpha, last+4, &file); err == nil ||
				!strings.Contains(err.Error(), fmt.Sprintf("the log ends at entry %d", last+2)) {
				t.Errorf("before an entry that is not there: %v", err)
			}
		})
	}
}

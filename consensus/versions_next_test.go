//go:build compatnext

package consensus

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// logVersions returns the versions of the log entries with commands that a member has.
func logVersions(t *testing.T, s *Store) map[uint]int {
	t.Helper()
	first := valueOf(s.storage.disk.Logs.FirstIndex())
	last := valueOf(s.storage.disk.Logs.LastIndex())
	versions := map[uint]int{}
	for index := first; index <= last; index++ {
		var entry raft.Log
		must(t, s.storage.disk.Logs.GetLog(index, &entry))
		if entry.Type == raft.LogCommand {
			versions[valueOf(state.DecodeBatch(entry.Data)).Version]++
		}
	}

	return versions
}

// snapshotVersion makes a snapshot and returns its version.
func snapshotVersion(t *testing.T, s *Store) uint {
	t.Helper()
	must(t, s.group.raft.Snapshot().Error())
	id := valueOf(s.storage.disk.Snapshots.List())[0].ID
	file := valueOf(os.Open(filepath.Join(s.cfg.Dir, "snapshots", id, "state.bin")))
	defer func() { _ = file.Close() }()
	var header struct {
		Version uint `cbor:"1,keyasint"`
	}
	must(t, cbor.NewDecoder(file).Decode(&header))

	return header.Version
}

// A cluster is upgraded one member at a time while it is written to. Until the last
// one is, everything is written as the older release reads it, and from then on as
// the newer does; nothing is lost, and there is no way back.
//
// Requirement: FORM-002
func TestAClusterOfTwoReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := map[int]Versions{0: older(), 1: older(), 2: older()}
		d := newDomain(t, 3, nil)
		d.reading(reads)
		for i := range d.nodes {
			d.stop(i)
		}
		for i := range d.nodes {
			d.start(i)
		}
		d.ready()

		kept := map[string]directory.RID{}
		write := func(agent string) {
			t.Helper()
			for i, s := range d.nodes {
				name := agent + "-" + string(rune('a'+i))
				out, err := s.Register(t.Context(), put(t, ada, name, 6000))
				if err != nil {
					t.Fatalf("%s at node %d: %v", name, i, err)
				}
				kept[name] = out.RID
			}
		}
		write("before")

		for i := range d.nodes {
			reads[i] = state.ReadableVersions()
			d.restart(i)
			write("during-" + string(rune('0'+i)))
			if i == len(d.nodes)-1 {
				break
			}
			time.Sleep(2 * time.Second)
			for j, s := range d.nodes {
				n := logVersions(t, s)
				format := s.Written().Format(signed.StructureStatement)
				if n[state.NewestLogVersion] > 0 || snapshotVersion(t, s) != 1 || format != 1 {
					t.Errorf("with %d of 3 upgraded node %d has written the next version: %v", i+1, j, n)
				}
			}
		}
		eventually(t, "the next version is in force everywhere", func() bool {
			for _, s := range d.nodes {
				w := s.Written()
				if w.Log != state.NewestLogVersion || w.Snapshot != state.NewestSnapshotVersion || w.Wire != 2 ||
					w.Format(signed.StructureStatement) != 2 {
					return false
				}
			}
			return true
		})
		write("after")
		d.equalStates()
		size, root := d.nodes[0].Ledger()
		for i, s := range d.nodes {
			if n, r := s.Ledger(); n != size || r != root {
				t.Errorf("node %d has another ledger", i)
			}
			for name, rid := range kept {
				if e, ok := s.cfg.Index.Get(rid); !ok || e.Agent != name {
					t.Errorf("node %d has lost %s", i, name)
				}
			}
			payload, _, _ := s.Own(kept["after-a"])
			if !bytes.Contains(payload, []byte(`"format":2`)) {
				t.Errorf("node %d has written %s", i, payload)
			}
			if payload, _, _ := s.Own(kept["before-a"]); !bytes.Contains(payload, []byte(`"format":1`)) {
				t.Errorf("node %d has rewritten %s", i, payload)
			}
		}
		if logVersions(t, d.nodes[0])[state.NewestLogVersion] == 0 ||
			snapshotVersion(t, d.nodes[1]) != state.NewestSnapshotVersion {
			t.Error("the next version is in force and is not written")
		}

		// The older release starts neither on the log nor on a snapshot of the newer.
		for i, says := range []string{
			"a log entry has version 2 and this release reads versions up to 1",
			"a snapshot has version 2 and this release reads versions up to 1",
		} {
			d.stop(i)
			reads[i] = older()
			if _, err := d.open(i); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("node %d: %v", i, err)
			}
			reads[i] = state.ReadableVersions()
			d.restart(i)
		}
		newcomer := d.newcomer(func(c *Config) { c.reads = older() })
		d.admit(0, newcomer)
		eventually(t, "an older newcomer is refused with both numbers", func() bool {
			err := d.nodes[newcomer].Ready()
			return err != nil && strings.Contains(err.Error(),
				"it reads log versions up to 1 and the domain writes version 2")
		})
	})
}

// A log entry, a snapshot and a domain whose members' messages are of a later release are refused,
// each in a sentence with both versions.
//
// Requirement: OPS-012, FORM-002
func TestANewerReleaseIsRefusedInASentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := map[int]Versions{}
		d := newDomain(t, 3, func(c *Config) { c.reads = Versions{Log: 2, Snapshot: 2, Wire: 2} })
		d.reading(reads)
		d.ready()

		d.register(0, "later", 6000)

		d.settled()

		// says starts a node as a release that reads less, and returns why it doesn't serve.
		says := func(i int, as Versions) string {
			d.stop(i)

			reads[i] = as
			s, err := d.open(i)

			if err == nil {
				d.nodes[i] = s
				<-s.Failed()
				err = s.Ready()
			}

			d.stop(i)
			delete(reads, i)
			d.start(i)
			d.ready()

			return fmt.Sprint(err)
		}

		if got, want := says(2, Versions{Log: 1, Snapshot: 2, Wire: 2}),
			"a log entry has version 2 and this release reads versions up to 1"; !strings.Contains(got, want) {
			t.Errorf("of a log: %s", got)
		}

		if got, want := says(2, Versions{Log: 2, Snapshot: 2, Wire: 1}),
			"it reads wire versions up to 1 and the domain writes version 2"; !strings.Contains(got, want) {
			t.Errorf("of messages: %s", got)
		}

		must(t, d.nodes[2].group.raft.Snapshot().Error())

		if got, want := says(2, Versions{Log: 2, Snapshot: 1, Wire: 2}),
			"a snapshot has version 2 and this release reads versions up to 1"; !strings.Contains(got, want) {
			t.Errorf("of a snapshot: %s", got)
		}

		// The leader answers a newcomer with both versions.
		newcomer := d.newcomer(func(c *Config) { c.reads = Versions{Log: 2, Snapshot: 2, Wire: 1} })
		d.admit(0, newcomer)
		eventually(t, "a newcomer of an earlier release is refused with both numbers", func() bool {
			err := d.nodes[newcomer].Ready()

			return err != nil && strings.Contains(err.Error(),
				"it reads wire versions up to 1 and the domain writes version 2")
		})
	})
}

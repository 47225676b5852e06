package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// Three of five disks are lost. Either of the two that are left has all that was
// acknowledged, by its snapshot and its log or by its log alone, and a new domain takes
// it up, in a new epoch and with the peers that the old one had.
//
// Requirement: MESH-019
func TestADomainThatLostItsMajorityIsSalvaged(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprint("snapshot=", snapshot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDomain(t, 5, nil)
				d.ready()
				leader, left := d.leader()
				for i := range 20 {
					if i == 10 && snapshot {
						if err := d.nodes[left].raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
							t.Fatal(err)
						}
					}
					if _, err := d.nodes[leader].Register(t.Context(), put(t, ada, fmt.Sprint("agent-", i), 3600)); err != nil {
						t.Fatal(err)
					}
				}
				want := inspect(t, d.backup(left))
				d.close()
				var file bytes.Buffer
				if err := Salvage(filepath.Join(d.dir, fmt.Sprint(left)), alpha, &file); err != nil {
					t.Fatal(err)
				}
				got := inspect(t, file.Bytes())
				if got.Hash != want.Hash || got.Registrations != 20 || got.Position.Epoch != want.Position.Epoch || got.Node != d.members[left].ID || got.LedgerSize < want.LedgerSize {
					t.Errorf("salvaged %+v, want %+v", got, want)
				}
				anew := newDomain(t, 3, nil)
				anew.ready()
				to, _ := anew.leader()
				done, err := anew.nodes[to].Restore(t.Context(), bytes.NewReader(file.Bytes()), RestoreOptions{Force: true, Reason: "three disks lost"})
				if err != nil || done.Registrations != 20 || done.Now.Epoch <= want.Position.Epoch {
					t.Errorf("restored %+v, %v", done, err)
				}
			})
		})
	}
}

// What is no member's directory, or is not whole, gives no backup.
func TestWhatCannotBeSalvaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 1, nil)
		d.ready()
		if _, err := d.nodes[0].Register(t.Context(), put(t, ada, "kept", 3600)); err != nil {
			t.Fatal(err)
		}
		d.close()
		dir := filepath.Join(d.dir, "0")
		var file bytes.Buffer
		if err := Salvage(t.TempDir(), alpha, &file); err == nil || !strings.Contains(err.Error(), "no node's") {
			t.Errorf("of an empty directory: %v", err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		if err := Salvage(dir, alpha, &file); !errors.Is(err, ErrDamaged) {
			t.Errorf("without its log: %v", err)
		}
		if file.Len() > 0 {
			t.Errorf("%d bytes were written of what can't be salvaged", file.Len())
		}
	})
}

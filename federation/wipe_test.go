package federation

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// What a peer took back is gone from the file when a pass has ended, however much was
// written between its steps.
//
// Requirement: MESH-025
func TestWipingInSteps(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rids := make([]directory.RID, 0, 2000)
		for i := range cap(rids) {
			rids = append(rids, b.origin.register(fmt.Sprintf("agent-%d", i), 6000))
		}

		b.pull()
		secret := []byte(nil)

		err := b.beta.store.Read(b.beta.origins.Get(alpha).Mesh.Cur.Id, func(tx *store.Tx) error {
			h, err := tx.Get(rids[0])
			if err != nil {
				return err
			}

			r, err := tx.Record(h)
			if err == nil {
				secret = bytes.Clone([]byte(r.Signature))
			}

			return err
		})
		if err != nil || len(secret) == 0 {
			t.Fatal(err)
		}

		onDisk := func() bool {
			t.Helper()

			all, err := os.ReadFile(filepath.Join(b.beta.Mesh.cfg.Dir, "federation.db"))
			must(t, err)

			return bytes.Contains(all, secret)
		}
		if !onDisk() {
			t.Fatal("it never was there")
		}

		b.origin.remove(rids[0])
		b.pull()

		steps := 0
		for id := 2; id > 0; steps++ {
			if id, err = b.beta.store.WipeSome(id, 64); err != nil {
				t.Fatal(err)
			}

			b.origin.replace(rids[1+steps%1000], 6000) // and a page is taken between two steps
			b.pull()
		}

		if steps < 5 {
			t.Errorf("all of it in %d steps", steps)
		}

		if onDisk() {
			t.Error("it still is there")
		}

		if n := len(b.beta.shown(alpha)); n != len(rids)-1 {
			t.Errorf("%d are shown of %d", n, len(rids)-1)
		}

		b.beta.reopen(t)

		if n := len(b.beta.shown(alpha)); n != len(rids)-1 {
			t.Errorf("%d are shown after a restart", n)
		}
	})
}

// atOnce takes no rest between steps.
func atOnce(time.Duration) bool { return true }

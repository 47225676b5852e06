package federation

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// An origin that announces one record under two ids takes nothing away from the
// true holder when the other one ends or changes: the record stays on disk, and
// with it a store that can be opened again.
//
// Requirement: MESH-015, MESH-018
func TestARecordIsNotAnothersToTakeAway(t *testing.T) {
	for what, last := range map[string]func(*signed.Digest){
		"ends": func(d *signed.Digest) {
			*d = signed.Digest{RID: d.RID, Revision: d.Revision, Op: signed.OpEnd, H: d.M}
		},
		"changes": func(d *signed.Digest) { d.M = d.H },
	} {
		t.Run(what, func(t *testing.T) {
			inBench(t, func(t *testing.T, b *bench) {
				rid := b.origin.register("agent", 600)
				b.pull()
				w := b.beta.origins.Get(alpha).Since(&b.beta.origins.Get(alpha).Mesh)
				twin, _ := b.origin.Current(rid, directory.Mesh)
				twin.RID = directory.NewRID(time.Now().UnixMilli(), [10]byte{1, 2, 3})
				twin.Revision = w + 1
				b.apply(w, twin)
				twin.Revision = w + 2
				last(&twin)
				b.apply(w+1, twin)
				b.beta.reopen(t)

				if shown := b.beta.shown(alpha); len(shown) != 1 || shown[rid] == nil {
					t.Fatalf("after a restart %v are shown", shown)
				}
			})
		})
	}
}

// apply hands beta a page of one digest, as alpha's key signs it.
func (b *bench) apply(from uint64, d signed.Digest) {
	b.Helper()

	text, err := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) {
		p.From = from
		p.To = d.Revision
		p.At = d.Revision
		p.Digests = []signed.Digest{d}
	}))
	must(b, err)

	b.applies(text)
}

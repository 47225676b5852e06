package federation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// An origin that announces one record under two ids takes nothing away from the
// true holder when the other one ends or changes: the record stays on disk, and
// with it a store that can be opened again.
//
// Requirement: MESH-015, MESH-018
func TestARecordIsNotAnothersToTakeAway(t *testing.T) {
	for what, last := range map[string]func(*directory.Digest){
		"ends": func(d *directory.Digest) {
			*d = directory.Digest{RID: d.RID, Revision: d.Revision, Op: directory.OpEnd, H: d.M}
		},
		"changes": func(d *directory.Digest) { d.M = d.H },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				rid := b.origin.register("agent", 600)
				b.pull()
				w := b.beta.origins.get(alpha).since(&b.beta.origins.get(alpha).feed)
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
func (b *bench) apply(from uint64, d directory.Digest) {
	b.Helper()
	text, err := b.alpha.keys.Sign(directory.TypePage, b.page(func(p *directory.SignedPage) {
		p.From, p.To, p.At, p.Digests = from, d.Revision, d.Revision, []directory.Digest{d}
	}))
	if err != nil {
		b.Fatal(err)
	}
	if _, code, err := b.beta.receiver.take(b.Context(), sender{domain: alpha}, b.giver(), text); err != nil || code != protocol.CodeApplied {
		b.Fatal(code, err)
	}
}

package federation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
)

// A page that was made for one asker serves others as long as the position and the epoch stay, unless a step of the
// clock has left its time in the future. Pages of many lengths take a bounded memory.
func TestAKeptPageIsOfNow(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("one", 600)

		page := func(limit int) *publish.Page {
			t.Helper()

			made, err := b.alpha.publisher.Page(directory.Mesh, 0, limit, false)
			must(t, err)

			return made
		}

		first := page(10)
		if page(10).Text != first.Text {
			t.Error("a page is made twice")
		}

		first.Page.IssuedAt += 600

		if made := page(10); made.IssuedAt != time.Now().Unix() {
			t.Errorf("a page is issued in %d s", made.IssuedAt-time.Now().Unix())
		}

		b.origin.epoch++

		if made := page(10); made.Epoch != b.origin.epoch {
			t.Errorf("a page is of epoch %d, want %d", made.Epoch, b.origin.epoch)
		}

		for limit := range 100 {
			page(limit + 1)
		}

		if n := len(b.alpha.publisher.Pages); n > 32 {
			t.Errorf("%d pages are kept", n)
		}
	})
}

// An empty page states the tip of a private stream alone. In the mesh's, heads do, and it would show each change that
// isn't for the mesh.
//
// Requirement: MESH-003
func TestTheMeshIsToldNothingOfPrivateChanges(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("one", 600)
		tip := b.origin.Tip(directory.Mesh)
		b.origin.grant(rid, directory.Only(beta), true)

		if made, err := b.alpha.publisher.Page(directory.Mesh, tip, 10, true); err != nil || made != nil {
			t.Errorf("beyond the tip there is %+v, %v", made, err)
		}
	})
}

// A page of one entry is of that entry or none: at a revision that the entry has left behind there is another's.
func TestAPageOfAnEntryThatChanged(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("one", 600)
		revision := b.origin.regs[rid].announced.Revision
		b.origin.register("two", 600)

		made, err := b.alpha.publisher.EntryPage(directory.Mesh, revision)
		if err != nil || made == nil || made.Digests[0].RID != rid {
			t.Fatalf("its page is %+v, %v", made, err)
		}

		b.origin.replace(rid, 600)

		if made, err := b.alpha.publisher.EntryPage(directory.Mesh, revision); err != nil || made != nil {
			t.Errorf("after a change its page is %+v, %v", made, err)
		}
	})
}

// A busy source moves on whenever its position was read.
type busy struct{ *model }

func (s busy) Position() directory.Position {
	at := s.model.Position()
	s.model.register("another", 600)

	return at
}

// A head that is made while registrations come doesn't name a tip beyond its position: peers would refuse it.
//
// Requirement: MESH-005
func TestAHeadOfABusyDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)

		text, err := publish.New(alpha, busy{b.origin}, b.alpha.keys, b.alpha.cfg.Dialect, nil).Head()
		must(t, err)

		parts, err := protocol.SplitJWS(text)
		must(t, err)

		if _, err := signed.OwnDialect().ParseHead(parts.Payload); err != nil {
			t.Error(err)
		}
	})
}

// A domain whose key document isn't known here gets pages in the format that every release reads.
//
// Requirement: FORM-001
func TestAPageForAnUnknownReader(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.formats = map[signed.Structure]uint{signed.StructurePage: 2}
		b.origin.grant(b.origin.register("one", 600), directory.Only(delta), true)

		if made, err := b.alpha.publisher.Page(directory.Only(delta), 0, 10, false); err != nil || made.Format != 1 {
			t.Errorf("its page is %+v, %v", made, err)
		}
	})
}

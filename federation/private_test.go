package federation

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A squad is alpha with two peers, both of which its key document lists.
type squad struct {
	*testing.T
	world   *world
	origin  *model
	a, b, g *site
}

func newSquad(t *testing.T) *squad {
	s := &squad{T: t, world: newWorld(), origin: newModel(alpha, beta, gamma)}
	s.a = s.world.open(t, t.TempDir(), 1, s.origin, active(beta, 1), active(gamma, 1))
	s.b = s.world.open(t, t.TempDir(), 1, newModel(beta, alpha, gamma), active(alpha, 1), active(gamma, 1))

	s.g = s.world.open(t, t.TempDir(), 1, newModel(gamma, alpha, beta), active(alpha, 1), active(beta, 1))
	for _, n := range []*site{s.a, s.b, s.g} {
		n.self.listKeys(nil, n.keys)
	}

	return s
}

// onDisk reports whether a node's file has a text anywhere, in the form in which
// disclosures are kept or as it is.
func (s *site) onDisk(t *testing.T, text string) bool {
	t.Helper()

	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, "federation.db"))
	must(t, err)

	return bytes.Contains(b, []byte(text))
}

// disclosed returns the text by which a member of a registration is disclosed.
func (o *model) disclosed(rid directory.RID, member string) string {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, d := range o.regs[rid].change.Disclosures() {
		if d.Name == member {
			return d.Text
		}
	}

	panic("no such member")
}

// What is for one peer goes to that peer and to no other node; what is taken back is
// gone from its answers and from its disk within a round, in all the pages that the
// file ever had it on.
//
// Requirement: MESH-003, MESH-025
func TestWhatIsForOnePeerIsThatPeersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSquad(t)
		for _, n := range []*site{s.b, s.g} {
			defer n.run(t)()
		}

		rid := s.origin.register("ada", 3600)
		note := s.origin.disclosed(rid, "note")
		s.origin.grant(rid, directory.Mesh, true, required...)
		s.origin.grant(rid, directory.Only(beta), true)
		has := func(n *site, member string) bool {
			e := n.shown(alpha)[rid]
			return e != nil && bytes.Contains(e.Document.Bytes(), []byte(member))
		}
		eventually(t, 10*time.Second, "beta has it whole, gamma has a part", func() bool {
			return has(s.b, `"note"`) && has(s.g, `"base"`) && !has(s.g, `"note"`)
		})

		if e := s.b.shown(alpha)[rid]; !e.Received.Private || s.g.shown(alpha)[rid].Received.Private {
			t.Errorf("beta shows %+v", e.Received)
		}

		if !s.b.onDisk(t, note) || s.g.onDisk(t, note) {
			t.Error("the note is not where it belongs")
		}

		for i := range 200 { // pages are written anew, and leave copies behind
			s.origin.register(fmt.Sprint("other-", i), 3600)
		}

		synctest.Wait()
		s.origin.grant(rid, directory.Only(beta), true, required...)
		eventually(t, 10*time.Second, "beta has it narrower", func() bool {
			return has(s.b, `"base"`) && !has(s.b, `"note"`)
		})
		eventually(t, 30*time.Second, "the note is gone from beta's disk", func() bool { return !s.b.onDisk(t, note) })

		base := s.origin.disclosed(rid, "base")
		s.origin.grant(rid, directory.Only(beta), false)
		eventually(t, 10*time.Second, "beta shows the mesh's", func() bool {
			e := s.b.shown(alpha)[rid]
			return e != nil && !e.Received.Private
		})
		s.origin.grant(rid, directory.Mesh, false)
		eventually(t, 10*time.Second, "it is gone", func() bool {
			return s.b.shown(alpha)[rid] == nil && s.g.shown(alpha)[rid] == nil
		})
		eventually(t, 30*time.Second, "it is gone from disks", func() bool {
			return !s.b.onDisk(t, base) && !s.g.onDisk(t, base)
		})

		if n := len(s.b.shown(alpha)); n != 200 {
			t.Errorf("%d others are left", n)
		}

		s.b.reopen(t) // and the file is a good one still

		if n := len(s.b.shown(alpha)); n != 200 {
			t.Errorf("%d others are left after a restart", n)
		}
	})
}

// A peer that the key document doesn't list may be told something of its own, and
// learns no more than that.
//
// Requirement: MESH-025
func TestADomainThatIsNotListedHasWhatIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSquad(t)
		s.origin.list(gamma)
		defer s.b.run(t)()
		mesh := s.origin.register("for-gamma", 600)
		own := s.origin.register("for-beta", 600)
		s.origin.grant(own, directory.Mesh, false)
		s.origin.grant(own, directory.Only(beta), true)
		eventually(t, 30*time.Second, "beta has its own", func() bool { return s.b.shown(alpha)[own] != nil })
		time.Sleep(time.Minute)

		if s.b.shown(alpha)[mesh] != nil || s.b.shown(alpha)[own] == nil {
			t.Error("it has something else")
		}

		s.b.reopen(t)

		if s.b.shown(alpha)[own] == nil {
			t.Error("it is gone with a restart")
		}
	})
}

// A reader who waits for a revision finds what it announced to the domain alone.
func TestWaitingCoversWhatIsForTheDomainAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSquad(t)
		defer s.b.run(t)()

		for i := range 20 {
			rid := s.origin.register(fmt.Sprint("agent-", i), 600)
			s.origin.grant(rid, directory.Mesh, false)
			s.origin.grant(rid, directory.Only(beta), true)

			at := s.origin.Position()
			if err := s.b.Await(t.Context(), alpha, at); err != nil || s.b.shown(alpha)[rid] == nil {
				t.Fatalf("%v: not shown at %v", err, at)
			}
		}
	})
}

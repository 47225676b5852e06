package consensus

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// Requirement: AD-053
func TestOneNodeServesWhatItRegistered(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		out := d.register(0, "translator", 600)

		if !out.Created || out.Granted != 600 || out.Position != s.Replica.Position() {
			t.Errorf("the outcome is %+v at %s", out, s.Replica.Position())
		}

		ds, to, at := s.Replica.Digests(directory.Mesh, 0, 10)
		if len(ds) != 1 || to != at || ds[0].RID != out.RID || ds[0].Op != signed.OpPut {
			t.Fatalf("the mesh stream has %+v to %d at %d", ds, to, at)
		}

		payload, disclosures, ok := s.Replica.Record(directory.Mesh, ds[0].H, ds[0].M)
		if !ok || directory.HashOf(payload) != ds[0].H {
			t.Fatal("the record is not the one that its digest names")
		}

		c, err := signed.OpenRecord(payload, disclosures)
		if err != nil || c.Agent != "translator" || c.Owner != ada || c.RID != out.RID {
			t.Errorf("the record says %+v, %v", c, err)
		}

		again, err := s.Register(t.Context(), put(t, ada, "translator", 600))
		if err != nil || again.RID != out.RID || again.Created {
			t.Errorf("a replace gave %+v, %v", again, err)
		}

		if _, _, ok := s.Replica.Record(directory.Mesh, ds[0].H, ds[0].M); ok {
			t.Error("the replaced record is still handed out")
		}
	})
}

// A replacement that says nothing of who may have the registration leaves that as
// it is, whatever the member that takes it believes.
func TestAReplacementKeepsTheVisibility(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		ask := profile(t, ada, "")

		out, err := s.Register(t.Context(), ask)
		must(t, err)

		for _, x := range []struct {
			keep bool
			want string
		}{{true, "domain"}, {false, "mesh"}} {
			ask.Visibility = directory.Visibility{Mesh: true}

			ask.KeepVisibility = x.keep
			_, err := s.Register(t.Context(), ask)
			must(t, err)

			if e, ok := s.cfg.Index.Get(out.RID); !ok || e.Visibility.String() != x.want {
				t.Errorf("keep %v: %v, %v", x.keep, e, ok)
			}
		}
	})
}

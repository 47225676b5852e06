package federation

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
)

// Evidence is shown to the domain's own nodes, and to those peers alone that may have
// what its pages list.
//
// Requirement: MESH-003
func TestWhoIsToldOfEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSquad(t)
		s.b.cfg.Siblings = func() []string { return []string{"https://sibling.beta.test"} }
		s.b.reopen(t)
		sibling, peer := node{beta, "https://sibling.beta.test"}, node{gamma, s.g.base}
		o := s.b.origin(alpha)
		listed := func(to ...*site) {
			s.origin.mesh = nil
			for _, n := range to {
				s.origin.mesh = append(s.origin.mesh, n.cfg.Domain)
			}
			s.origin.listKeys(nil, s.a.keys)
			must(t, s.b.refreshKeys(t.Context(), o, node{alpha, s.a.base}))
		}
		told := func(aud directory.Audience, want ...node) {
			t.Helper()
			if got := s.b.toTell(Conviction{Origin: alpha, Audience: aud}); !slices.Equal(got, want) {
				t.Errorf("of a page for %q are told %v", aud, got)
			}
		}
		listed(s.b, s.g)
		told(directory.Mesh, sibling, peer)
		told(directory.Only(beta), sibling)
		listed(s.b)
		told(directory.Mesh, sibling)
		told(directory.Audience{}, sibling, peer) // two key documents, which anybody may have
	})
}

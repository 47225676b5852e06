package federation

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/protocol"
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
		sibling := protocol.Node{Domain: beta, Base: "https://sibling.beta.test"}
		peer := protocol.Node{Domain: gamma, Base: s.g.base}
		o := s.b.origins.Get(alpha)
		listed := func(to ...*site) {
			s.origin.mesh = nil
			for _, n := range to {
				s.origin.mesh = append(s.origin.mesh, n.cfg.Domain)
			}

			s.origin.listKeys(nil, s.a.keys)
			must(t, s.b.receiver.refreshKeys(t.Context(), o, protocol.Node{Domain: alpha, Base: s.a.base}))
		}
		told := func(aud directory.Audience, want ...protocol.Node) {
			t.Helper()

			if got := s.b.evidence.toTell(evidence.Conviction{Origin: alpha, Audience: aud}); !slices.Equal(got, want) {
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

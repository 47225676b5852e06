package state

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
)

// A statement names the member that brought the change to the leader: so its leaf does, and so does the
// statement that a restored state makes again. A refresh makes no statement, and no member brings an end
// at the deadline.
//
// Requirement: LOG-020
func TestAStatementNamesTheMemberThatBroughtIt(t *testing.T) {
	d := newDrive(t)
	n0, n1 := must(alphaNode("n0")), must(alphaNode("n1"))

	demand := func(when string, payload []byte, leaf ledger.Entry, want spiffeid.ID) {
		t.Helper()

		claims, err := signed.ParseStatement(payload)
		directorytest.Must(t, err)

		if got := claims.BroughtBy(); got != want {
			t.Errorf("%s: the statement names %q, want %q", when, got, want)
		}

		if leaf != ledger.EntryOf(ledger.Statement, payload) {
			t.Errorf("%s: the leaf is not that of %s", when, payload)
		}
	}
	again := func(s *State, rid directory.RID) []byte {
		payload, _, _ := s.registrations.regs.get(rid).Statement(directory.Grant{})
		return payload
	}

	rid := d.register(1, ada, "translator", 600)
	demand("registered", again(d.state, rid), d.state.history.entries[0], n0)

	replace := Command{Register: d.registering(ada, "translator", 600), Origin: &Origin{From: n1}}
	d.applies(2, replace)

	leaf := d.state.history.entries[0]
	demand("replaced", again(d.state, rid), leaf, n1)
	demand("restored", again(restore(t, d.state), rid), leaf, n1)

	d.at(3, Command{Refresh: &Refresh{RID: rid, Caller: ada}, Origin: bringerN0})
	demand("refreshed", again(d.state, rid), leaf, n1)

	d.at(4, Command{Remove: &Remove{Format: 1, RID: rid, Caller: ada}, Origin: bringerN0})
	demand("removed", d.state.history.past[1].end, d.state.history.entries[0], n0)

	short := d.register(5, ada, "short", 60)
	d.at(70, Command{Expire: &Sweep{signed.StatementFormat, []directory.RID{short}}})
	demand("expired", d.state.history.past[1].end, d.state.history.entries[0], spiffeid.ID{})
}

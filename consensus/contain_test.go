package consensus

import (
	"testing"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
)

// A member that goes on after a panic in apply may disagree with the others for good, so
// the panic ends it; what is contained elsewhere is one item of what others wrote.
//
// Requirement: FORM-006
func TestAPanicInApplyIsNotContained(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		member := d.nodes[0]

		out, err := member.Register(t.Context(), put(t, ada, "translator", 600))
		must(t, err)

		entry := raft.Log{Index: member.group.raft.AppliedIndex()}
		change := state.Command{Refresh: &state.Refresh{RID: out.RID, Caller: ada, Lifetime: 700}}

		entry.Data, err = state.Marshal(&state.Batch{Version: 1, Time: member.Replica.state.History().Now(),
			Commands: []state.Command{change}})
		must(t, err)

		member.Replica.mu.Lock()
		whole := member.Replica.state
		member.Replica.state = nil // the mistake of the program
		member.Replica.mu.Unlock()
		ended := func() (p any) {
			defer func() { p = recover() }()
			machine{member.member, member.terms}.Apply(&entry)

			return nil
		}()
		member.Replica.mu.Lock()
		member.Replica.state = whole
		member.Replica.mu.Unlock()

		if ended == nil {
			t.Error("apply went on after a panic")
		}
	})
}

package state

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// What two leaders have decided by different things is never taken for decided by one.
func TestAVerdictIsTakenBack(t *testing.T) {
	d := newDrive(t)
	v := &Verdict{d.state.policy.basis, directory.Hash{1}}
	d.at(1, Command{Decide: &Decide{v}})

	if d.state.policy.verdict == nil {
		t.Fatal("a verdict was not taken")
	}

	d.at(2, Command{Decide: &Decide{}})

	if d.state.policy.verdict != nil {
		t.Error("a verdict was not taken back")
	}

	d.at(3, Command{Policy: &Policy{Text: []byte("// another")}})
	d.at(3, Command{Decide: &Decide{v}})

	if d.state.policy.verdict != nil {
		t.Error("a verdict under an earlier policy was taken")
	}

	v = &Verdict{d.state.policy.basis, directory.Hash{1}}
	d.at(4, Command{Decide: &Decide{v}})

	back := restore(t, d.state)
	if back.policy.verdict == nil || *back.policy.verdict != *v {
		t.Errorf("read from a snapshot, the verdict is %v, want %v", back.policy.verdict, v)
	}
}

package state

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// A policy is in the state of all members, and in their snapshots; the same once
// more changes nothing. What was granted under the one before is not taken.
//
// Requirement: TRUST-013
func TestALawIsKept(t *testing.T) {
	d := newDrive(t)
	before := d.registering(ada, "translator", 60)
	d.at(0, Command{Policy: &Policy{Text: []byte("forbid (principal, action, resource);")}})

	at := d.state.policy.current.Revision
	if at == 0 || d.state.policy.basis != at {
		t.Fatalf("the law is of revision %d, grants are of %d", at, d.state.policy.basis)
	}

	if r := d.at(1, Command{Register: before}); r.Err == nil {
		t.Error("what was granted before was taken after")
	}

	d.at(2, Command{Policy: &Policy{Text: []byte("forbid (principal, action, resource);")}})

	restored := restore(t, d.state)
	if d.state.policy.current.Revision != at || restored.policy.current.Revision != at ||
		string(restored.policy.current.Text) != string(d.state.policy.current.Text) {
		t.Errorf("the law is %+v, restored it is %+v", d.state.policy.current, restored.policy.current)
	}
}

// A policy that another was to replace, and that is in force no more, is not replaced by
// it: the change that came first stays. What names no version replaces any, and what is
// in force already is no change.
//
// Requirement: TRUST-013
func TestALawReplacesTheOneThatWasRead(t *testing.T) {
	d := newDrive(t)

	first, second := []byte("// first"), []byte("// second")
	d.applies(0, Command{Policy: &Policy{first, &[]uint64{0}}})

	at := d.state.policy.current.Revision
	for what, replaces := range map[string][]uint64{"none": {0}, "a later one": {at + 1}, "what never was": {}} {
		problem(t, d.at(1, Command{Policy: &Policy{second, &replaces}}).Err, directory.PreconditionFailed)

		if d.state.policy.current.Revision != at || string(d.state.policy.current.Text) != string(first) ||
			d.state.policy.basis != at {
			t.Fatalf("in the place of %s: the law is %+v", what, d.state.policy.current)
		}
	}

	if r := d.at(2, Command{Policy: &Policy{first, &[]uint64{0}}}); r.Err != nil ||
		d.state.policy.current.Revision != at {
		t.Errorf("the same again: %v", r.Err)
	}

	if r := d.at(3, Command{Policy: &Policy{second, &[]uint64{3, at}}}); r.Err != nil ||
		d.state.policy.current.Revision == at {
		t.Errorf("in the place of what is in force: %v", r.Err)
	}

	if r := d.at(4, Command{Policy: &Policy{Text: first}}); r.Err != nil ||
		string(d.state.policy.current.Text) != string(first) {
		t.Errorf("in the place of any: %v", r.Err)
	}
}

package consensus

import (
	"strings"
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
	d.at(0, command{Policy: &policy{Text: []byte("forbid (principal, action, resource);")}})
	at := d.state.law.Revision
	if at == 0 || d.state.policy != at {
		t.Fatalf("the law is of revision %d, grants are of %d", at, d.state.policy)
	}
	if r := d.at(1, command{Register: before}); r.err == nil {
		t.Error("what was granted before was taken after")
	}
	d.at(2, command{Policy: &policy{Text: []byte("forbid (principal, action, resource);")}})
	restored := restore(t, d.state)
	if d.state.law.Revision != at || restored.law.Revision != at || string(restored.law.Text) != string(d.state.law.Text) {
		t.Errorf("the law is %+v, restored it is %+v", d.state.law, restored.law)
	}
}

// A text that is too large, or that the checker refuses, is not proposed.
//
// Requirement: TRUST-013
func TestABadLawIsNotProposed(t *testing.T) {
	s := &Store{cfg: Config{CheckPolicy: func([]byte) error { return directory.Refuse(directory.BadRequest, "no") }}}
	problem(t, s.checkPolicy(&policy{Text: []byte("permit")}), directory.BadRequest)
	problem(t, s.checkPolicy(&policy{Text: []byte(strings.Repeat(" ", maxPolicy+1))}), directory.TooLarge)
	if err := s.checkPolicy(&policy{}); err != nil {
		t.Errorf("back to what is built in: %v", err)
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
	if r := d.at(0, command{Policy: &policy{first, &[]uint64{0}}}); r.err != nil {
		t.Fatalf("in the place of none: %v", r.err)
	}
	at := d.state.law.Revision
	for what, replaces := range map[string][]uint64{"none": {0}, "a later one": {at + 1}, "what never was": {}} {
		problem(t, d.at(1, command{Policy: &policy{second, &replaces}}).err, directory.PreconditionFailed)
		if d.state.law.Revision != at || string(d.state.law.Text) != string(first) || d.state.policy != at {
			t.Fatalf("in the place of %s: the law is %+v", what, d.state.law)
		}
	}
	if r := d.at(2, command{Policy: &policy{first, &[]uint64{0}}}); r.err != nil || d.state.law.Revision != at {
		t.Errorf("the same again: %v", r.err)
	}
	if r := d.at(3, command{Policy: &policy{second, &[]uint64{3, at}}}); r.err != nil || d.state.law.Revision == at {
		t.Errorf("in the place of what is in force: %v", r.err)
	}
	if r := d.at(4, command{Policy: &policy{Text: first}}); r.err != nil || string(d.state.law.Text) != string(first) {
		t.Errorf("in the place of any: %v", r.err)
	}
}

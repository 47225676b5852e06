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
	d.at(0, command{Policy: &policy{[]byte("forbid (principal, action, resource);")}})
	at := d.state.law.Revision
	if at == 0 || d.state.policy != at {
		t.Fatalf("the law is of revision %d, grants are of %d", at, d.state.policy)
	}
	if r := d.at(1, command{Register: before}); r.err == nil {
		t.Error("what was granted before was taken after")
	}
	d.at(2, command{Policy: &policy{[]byte("forbid (principal, action, resource);")}})
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
	problem(t, s.checkPolicy(&policy{[]byte("permit")}), directory.BadRequest)
	problem(t, s.checkPolicy(&policy{[]byte(strings.Repeat(" ", maxPolicy+1))}), directory.TooLarge)
	if err := s.checkPolicy(&policy{}); err != nil {
		t.Errorf("back to what is built in: %v", err)
	}
}

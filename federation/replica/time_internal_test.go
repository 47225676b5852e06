package replica

import (
	"testing"

	"github.com/roster-mesh/roster/directory/signed"
)

// Of two heads of one state the one that was signed later is newer. A relay that repeats an
// older one turns no peer's age back.
//
// Requirement: MESH-009
func TestAHeadSignedEarlierIsOlder(t *testing.T) {
	last := &signed.Head{Epoch: 7, At: 9, IssuedAt: 1000}

	for name, tc := range map[string]struct {
		head  signed.Head
		newer bool
	}{
		"signed later":              {signed.Head{Epoch: 7, At: 9, IssuedAt: 1001}, true},
		"the same":                  {signed.Head{Epoch: 7, At: 9, IssuedAt: 1000}, false},
		"signed earlier":            {signed.Head{Epoch: 7, At: 9, IssuedAt: 999}, false},
		"of a later state":          {signed.Head{Epoch: 7, At: 10, IssuedAt: 1}, true},
		"of an earlier state":       {signed.Head{Epoch: 7, At: 8, IssuedAt: 2000}, false},
		"of a later epoch":          {signed.Head{Epoch: 8, At: 1, IssuedAt: 1}, true},
		"of an earlier epoch":       {signed.Head{Epoch: 6, At: 99, IssuedAt: 2000}, false},
		"of a later epoch and time": {signed.Head{Epoch: 8, At: 99, IssuedAt: 2000}, true},
	} {
		if newerHead(&tc.head, last) != tc.newer {
			t.Errorf("a head %s is newer: %t, want %t", name, !tc.newer, tc.newer)
		}
	}
}

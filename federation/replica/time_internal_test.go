package replica

import (
	"testing"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
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

// A cap clips a deadline by the time at which the record came, if the origin's word is that it was set later.
//
// Requirement: MESH-007
func TestACapIsCountedFromTheEarlierTime(t *testing.T) {
	for _, c := range []struct {
		lifetime, most uint32
		want           int64
	}{
		{lifetime: 1, most: 100, want: 2100},       // it was not set in the future
		{lifetime: 1, most: 1 << 31, want: 10_000}, // a high cap
		{lifetime: 9000, most: 100, want: 1100},    // a node that learns it late has it no longer
	} {
		held := &store.Entry{Deadline: 10_000, Lifetime: c.lifetime, CheckedAt: 2_000_000}
		if got := clippedDeadline(held, c.most); got != c.want {
			t.Errorf("a lifetime of %d s is clipped by %d s to %d, want %d", c.lifetime, c.most, got, c.want)
		}
	}
}

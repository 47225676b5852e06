package replica

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// An entry is unconfirmed if its last change is in the open part of its own stream, was announced a while ago, and
// nothing of that stream was confirmed since.
//
// Requirement: SEC-019
func TestAnEntryIsUnconfirmedInItsOwnStream(t *testing.T) {
	now := time.Now()
	open := unconfirmedState{streams: [2]UnconfirmedStream{{Since: 5, UpTo: 10}, {Since: 20, UpTo: 30}}}

	for _, c := range []struct {
		private  bool
		revision uint64
		received time.Duration // ago
		still    [2]time.Duration
		want     bool
	}{
		{false, 5, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, 0}, false},
		{false, 6, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, 0}, true},
		{false, 10, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, 0}, true},
		{false, 11, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, 0}, false},
		{false, 25, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, unconfirmedAfter}, false},
		{true, 25, unconfirmedAfter, [2]time.Duration{0, unconfirmedAfter}, true},
		{true, 6, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, unconfirmedAfter}, false},
		{true, 25, unconfirmedAfter, [2]time.Duration{unconfirmedAfter, 0}, false},
		{false, 6, unconfirmedAfter - time.Second, [2]time.Duration{unconfirmedAfter, 0}, false},
	} {
		origin := &Origin{}

		for i := range open.still {
			open.still[i] = now.Add(-c.still[i])
		}

		origin.open.Store(&open)

		e := &directory.Entry{Revision: c.revision, Received: &directory.Received{
			Private: c.private, CheckedAt: now.Add(-c.received).UnixMilli(),
		}}
		if got := origin.IsUnconfirmed(e, now); got != c.want {
			t.Errorf("%+v: unconfirmed is %t", c, got)
		}
	}
}

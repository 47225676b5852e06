package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/limit"
)

// Lines of one key are written at its rate, with the number of those between; another key's are
// written at once; and any number of keys leaves a bounded number known.
//
// Requirement: SEC-003
func TestLinesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := limit.NewLines[int](2, limit.Rate{PerSecond: 0.1, Burst: 2})
		take := func(key, wantSkipped int, wantDue bool) {
			t.Helper()

			if skipped, due := lines.Take(key); skipped != wantSkipped || due != wantDue {
				t.Errorf("key %d: %d skipped, due is %v; want %d, %v", key, skipped, due, wantSkipped, wantDue)
			}
		}

		for _, due := range []bool{true, true, false, false} {
			take(1, 0, due)
		}

		take(2, 0, true)
		time.Sleep(10 * time.Second)
		take(1, 2, true)
		take(1, 0, false)

		take(3, 0, true) // one more than are known: all are forgotten
		take(1, 0, true)
	})
}

package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A failed test keeps its output.
type failed struct {
	testing.TB
	printed string
}

func (f *failed) Failed() bool                  { return true }
func (f *failed) Logf(format string, of ...any) { f.printed = fmt.Sprintf(format, of...) }

// The last steps of a story of any length are printed, and the number of those before.
func TestTheJournalHasTheLastSteps(t *testing.T) {
	for _, n := range []int{0, 1, journalMost, 2 * journalMost, 5*journalMost + 7} {
		j := &journal{begun: time.Now()}
		for i := range n {
			j.note("step %d.", i)
		}

		f := &failed{TB: t}
		j.print(f)

		before := max(0, n-journalMost)
		if !strings.Contains(f.printed, fmt.Sprintf("(%d steps before", before)) ||
			strings.Count(f.printed, "step ") != n-before ||
			n > 0 && !strings.HasSuffix(f.printed, fmt.Sprintf("step %d.", n-1)) {
			t.Errorf("of %d steps: %s", n, f.printed)
		}
	}
}

package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A failed is a test that has failed, and keeps what is printed.
type failed struct {
	testing.TB
	printed string
}

func (f *failed) Failed() bool                  { return true }
func (f *failed) Logf(format string, of ...any) { f.printed = fmt.Sprintf(format, of...) }

// However long a story was, the last of what was done is printed, and how much isn't.
func TestTheJournalHasTheLastSteps(t *testing.T) {
	for _, n := range []int{0, 1, journalMost, 2 * journalMost, 5*journalMost + 7} {
		m := &Mesh{journal: journal{begun: time.Now()}}
		for i := range n {
			m.Note("step %d.", i)
		}
		f := &failed{TB: t}
		m.journal.print(f)
		before := max(0, n-journalMost)
		if !strings.Contains(f.printed, fmt.Sprintf("(%d steps before", before)) || strings.Count(f.printed, "step ") != n-before ||
			n > 0 && !strings.HasSuffix(f.printed, fmt.Sprintf("step %d.", n-1)) {
			t.Errorf("of %d steps: %s", n, f.printed)
		}
	}
}

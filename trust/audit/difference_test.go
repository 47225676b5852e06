package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// A difference is as long as its bounds, however much was changed: what has no room is counted.
func TestADifferenceIsBounded(t *testing.T) {
	was := []byte(strings.Repeat("permit (principal, action, resource);\n", 2000))
	is := []byte(strings.Repeat("forbid (principal, action, resource); // \xff"+strings.Repeat("x", 300)+"\n", 3000))

	got := DifferenceOf(was, is)
	if got.Added != 3000 || got.Removed != 2000 || got.Was != directory.HashOf(was) || got.Is != directory.HashOf(is) {
		t.Errorf("the difference is %+v", got)
	}

	added, shown := 0, len(got.Lines)-1
	for _, line := range got.Lines {
		if strings.HasPrefix(line, "+forbid") {
			added++
		}
	}

	// The head of the hunk is a line, too.
	if last := got.Lines[shown]; last != fmt.Sprintf("... %d more lines", 5001-shown) || added < 40 || shown < 100 {
		t.Errorf("the last of %d lines, of which %d were added, is %q", shown, added, last)
	}

	line := logLine{Phase: phaseApplied, AuditEvent: directory.AuditEvent{Difference: got}}
	if size := len(line.append(nil)); size > 20<<10 {
		t.Errorf("the line has %d bytes", size)
	}

	short := DifferenceOf(nil, []byte(strings.Repeat("x\n", 1000)))
	if len(short.Lines) != 1+maxDifference+1 { // with the head, and the number of the others
		t.Errorf("%d short lines are shown", len(short.Lines))
	}

	// No shorter line follows one without room.
	gap := DifferenceOf(nil, []byte(strings.Repeat(strings.Repeat("x", 200)+"\n", 50)+"short\n"))
	if strings.Contains(strings.Join(gap.Lines, "\n"), "short") {
		t.Errorf("the last line is one of %d that are shown", len(gap.Lines))
	}

	long := DifferenceOf(nil, is)
	if size := len(strings.Join(long.Lines, "")); size > maxDifferenceBytes+maxText || !long.Was.IsZero() {
		t.Errorf("%d bytes of lines, it was %v", size, long.Was)
	}
}

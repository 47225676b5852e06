package mesh

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal is what was done in a story, step by step. Where the story fails, it prints
// the last of it.
type journal struct {
	begun time.Time

	mu   sync.Mutex
	done []string
	gone int // how many lines are gone
}

// journalMost bounds the lines that are kept: a person reads no more.
const journalMost = 300

// Note writes into the journal. The mesh notes what its own methods do. Safe for
// concurrent use.
func (m *Mesh) Note(format string, args ...any) {
	j := &m.journal
	line := fmt.Sprintf("%10.1f s  ", time.Since(j.begun).Seconds()) + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.done) == 2*journalMost {
		j.done = slices.Clone(j.done[journalMost:])
		j.gone += journalMost
	}
	j.done = append(j.done, line)
}

// noted notes what became of a step, and returns that.
func (m *Mesh) noted(err error, format string, args ...any) error {
	outcome := ""
	if err != nil {
		outcome = ": " + err.Error()
	}
	m.Note("%s%s", fmt.Sprintf(format, args...), outcome)
	return err
}

// print prints the journal of a story that has failed.
func (j *journal) print(t testing.TB) {
	if !t.Failed() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	from := max(0, len(j.done)-journalMost)
	t.Logf("what was done (%d steps before are not shown):\n%s", j.gone+from, strings.Join(j.done[from:], "\n"))
}

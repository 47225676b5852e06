package mesh

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal lists the steps of a story. If the story fails, it prints the last of them.
type journal struct {
	begun time.Time

	mu   sync.Mutex
	done []string
	gone int // lines dropped from the front
}

// journalMost bounds the lines that are printed: a person reads no more.
const journalMost = 300

// note appends a step. Safe for concurrent use.
func (j *journal) note(format string, args ...any) {
	line := fmt.Sprintf("%10.1f s  ", time.Since(j.begun).Seconds()) + fmt.Sprintf(format, args...)

	j.mu.Lock()
	defer j.mu.Unlock()

	if len(j.done) == 2*journalMost {
		j.done = slices.Clone(j.done[journalMost:])
		j.gone += journalMost
	}

	j.done = append(j.done, line)
}

// outcome appends a step with the error that it ended with, if any.
func (j *journal) outcome(err error, format string, args ...any) {
	step := fmt.Sprintf(format, args...)
	if err != nil {
		step += ": " + err.Error()
	}

	j.note("%s", step)
}

// print prints the journal of a story that has failed.
func (j *journal) print(t testing.TB) {
	if !t.Failed() {
		return
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	from := max(0, len(j.done)-journalMost)
	t.Logf("steps of the story (%d steps before are not shown):\n%s", j.gone+from, strings.Join(j.done[from:], "\n"))
}

package cli

import (
	"fmt"
	"sync"
	"time"
)

// progressDelay is how long a task runs before its progress is shown.
const progressDelay = 2 * time.Second

// A Progress shows on standard error how many items of a task are done, if standard error
// is a terminal and the task takes longer than progressDelay.
type Progress struct {
	console *Console
	total   int

	mu      sync.Mutex // guards the fields below
	done    int
	started time.Time
	shown   bool
}

// StartProgress starts a task of a number of items.
func (c *Console) StartProgress(total int) *Progress {
	return &Progress{console: c, total: total, started: time.Now()}
}

// Step counts one more item.
func (p *Progress) Step() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.done++

	if !p.console.streams.ErrIsTerminal || time.Since(p.started) < progressDelay {
		return
	}

	p.shown = true
	fmt.Fprintf(p.console.streams.Err, "\r%d of %d", p.done, p.total)
}

// End clears the line.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.shown {
		fmt.Fprint(p.console.streams.Err, "\r\033[K")
	}
}

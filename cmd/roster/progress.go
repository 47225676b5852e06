package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progressAfter is how long something takes before progress is shown.
const progressAfter = 2 * time.Second

// A progress tells on standard error how far something has come, once it takes
// longer than progressAfter; only a terminal is told.
type progress struct {
	app   *app
	total int

	mu      sync.Mutex // guards what follows
	done    int
	started time.Time
	shown   bool
}

func (a *app) progress(total int) *progress {
	return &progress{app: a, total: total, started: time.Now()}
}

// step says that one more is done.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	f, ok := p.app.stderr.(*os.File)
	if !ok || !isTerminal(f) || time.Since(p.started) < progressAfter {
		return
	}
	p.shown = true
	fmt.Fprintf(f, "\r%d of %d", p.done, p.total)
}

// end clears the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.app.stderr, "\r\033[K")
	}
}

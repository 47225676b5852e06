package audit

import (
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of refreshes in the log. Within a window the lines of each caller have
// refreshBytes together; its other refreshes are counted. Callers beyond refreshCallers
// share the bound of one.
const (
	refreshBytes   = 64 << 10
	refreshCallers = 1 << 16
	// refreshLine is counted for the outcome of a refresh.
	refreshLine = 512
)

// refreshes bounds the lines of refreshes, which are most of all changes: an agent refreshes
// its registration for as long as it lives.
type refreshes struct {
	mu      sync.Mutex // guards callers
	callers map[caller]*refreshCount
}

type refreshCount struct {
	bytes    int    // of its lines
	counting bool   // a line says that others are counted
	ok       uint64 // counted, by outcome
	failed   uint64
}

// of returns the count of a caller. The caller holds mu.
func (r *refreshes) of(by caller) *refreshCount {
	if r.callers[by] == nil && len(r.callers) >= refreshCallers {
		by = caller{}
	}

	if r.callers == nil {
		r.callers = map[caller]*refreshCount{}
	}

	if r.callers[by] == nil {
		r.callers[by] = &refreshCount{}
	}

	return r.callers[by]
}

// take takes bytes of a caller's bound. If they are spent, begins is whether no line says
// so yet.
func (r *refreshes) take(by caller, bytes int) (ok, begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	count := r.of(by)
	if count.bytes += bytes; count.bytes <= refreshBytes {
		return true, false
	}

	begins = !count.counting
	count.counting = true

	return false, begins
}

// add counts refreshes without lines.
func (r *refreshes) add(by caller, refreshed uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if count := r.of(by); ok {
		count.ok += refreshed
	} else {
		count.failed += refreshed
	}
}

// intendRefresh is Intend for a refresh.
func (a *Log) intendRefresh(event directory.AuditEvent) (func(directory.AuditEvent), error) {
	by := a.callerOf(event.Actor)
	line := logLine{Time: time.Now().UTC(), Phase: phaseIntent, AuditEvent: event}

	room := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(room)
	*room = line.append((*room)[:0])

	// The outcome's share is taken in advance: an intent with a line must have an outcome with one.
	whole, begins := a.refreshes.take(by, len(*room)+maxChain+refreshLine)
	if whole {
		if err := a.writeLine(*room, line.Time); err != nil {
			return nil, unavailable(err)
		}

		return a.done, nil
	}

	if begins {
		line := logLine{Time: line.Time, Phase: phaseCounted, AuditEvent: by.event(event.Action, 0)}
		if err := a.write(&line); err != nil {
			return nil, unavailable(err)
		}
	} else if err := a.Err(); err != nil {
		return nil, unavailable(err)
	}

	refreshed := uint64(max(1, len(event.RIDs)))

	return func(e directory.AuditEvent) { a.refreshes.add(by, refreshed, e.Outcome == directory.OutcomeOK) }, nil
}

// drain returns the counts of all callers, and begins anew.
func (r *refreshes) drain() map[caller]*refreshCount {
	r.mu.Lock()
	defer r.mu.Unlock()

	callers := r.callers
	r.callers = nil

	return callers
}

// tallyRefreshes writes the counts of refreshes without lines, and begins the next window.
func (a *Log) tallyRefreshes() {
	for by, count := range a.refreshes.drain() {
		a.counted(by, directory.OutcomeOK, count.ok)
		a.counted(by, "refused", count.failed)
	}
}

func (a *Log) counted(by caller, outcome string, n uint64) {
	if n == 0 {
		return
	}

	event := by.event("refresh", n)
	event.Outcome = outcome

	if err := a.record(&logLine{Time: time.Now().UTC(), Phase: phaseCounted, AuditEvent: event}); err != nil {
		a.o.Logger.Error("a count of refreshes is missing in the audit trail", "count", n, "err", err)
	}
}

package audit

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Options bounds an audit log.
type Options struct {
	// Domain is the own one: identities of another share the lines of one caller.
	Domain spiffeid.TrustDomain
	Size   int64 // bytes of one file; the next line begins another
	Files  int   // files kept, including the current one
	// Keep is how long a line is kept, plus at most the time that one file covers.
	// 0 keeps lines until Files are full. A Keep needs two files.
	Keep   time.Duration
	Logger *slog.Logger
}

// A Log is a node's audit log: a file of JSON lines, and its older parts with the
// suffixes .1, .2 and so on. The operating system has a line when the call that writes
// it returns, so a killed process loses none. A Log is safe for concurrent use.
type Log struct {
	path string
	o    Options

	refusals  chan directory.AuditEvent // bounded; refusals beyond it are counted in dropped
	dropped   atomic.Uint64
	refreshes refreshes

	outgrown atomic.Uint64 // lines that were removed because there was no room for them

	mu      sync.Mutex // guards the fields below
	file    *os.File
	size    int64
	torn    bool // the file has a part of a line after size
	chain   chain
	from    uint64        // number of the oldest line that is kept; 0 if there is none
	missing atomic.Uint64 // lines that could not be written since one could, and don't wait in pending
	failing atomic.Bool   // the last write failed; read without mu
	pending []logLine     // lines that must precede the next one; those without a time get its time
	applied directory.Position
	changed directory.Position // of the last change that another member brought
	known   directory.Position // the same when the log was opened; not modified
	// oldest and newest are when the file's first and last lines were written.
	oldest, newest time.Time
	grown          chan struct{} // closed when there are more lines; nil without a waiter
}

// lineBuffers reuses the memory of written lines.
var lineBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Open opens the log at path, and creates it if there is none. If the last line was
// written in part, Open removes it and writes a line about it.
func Open(path string, o Options) (*Log, error) {
	a := &Log{path: path, o: o, refusals: make(chan directory.AuditEvent, maxRefusals)}
	if err := a.open(); err != nil {
		return nil, err
	}

	if err := a.recover(); err != nil {
		return nil, errors.Join(err, a.file.Close())
	}

	// The lines stay pending and Err tries again: a full disk must not keep the node from starting.
	if len(a.pending) > 0 {
		if err := a.put(nil, time.Now()); err != nil {
			o.Logger.Warn("the audit trail can't be written yet", "err", err)
		}
	}

	return a, nil
}

// Close closes the file. Nothing is written after it.
func (a *Log) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.file == nil {
		return nil
	}

	f := a.file
	a.file = nil

	// Readers that wait would otherwise never learn that no line follows.
	a.wake()

	return f.Close()
}

// Intend writes that a change is about to be proposed. If it fails, the change must not be
// made; the error is Unavailable. Else done must be called with the outcome.
//
// Refreshes of one caller beyond its budget have no lines of their own: they are counted.
func (a *Log) Intend(e directory.AuditEvent) (done func(directory.AuditEvent), err error) {
	if e.Routine {
		return a.intendRefresh(e)
	}

	if err := a.write(&logLine{Time: time.Now().UTC(), Phase: phaseIntent, AuditEvent: e}); err != nil {
		return nil, unavailable(err)
	}

	return a.done, nil
}

func unavailable(err error) error {
	return directory.Refuse(directory.Unavailable,
		"this node's audit trail can't be written, and no change is made without it; nothing was changed: "+
			"use another node: %w", err)
}

// done writes the outcome of an intended change.
func (a *Log) done(e directory.AuditEvent) {
	if err := a.record(&logLine{Time: time.Now().UTC(), Phase: phaseOutcome, AuditEvent: e}); err != nil {
		a.o.Logger.Error("the outcome of a change is missing in the audit trail", "request_id", e.RequestID, "action",
			e.Action, "outcome", e.Outcome, "err", err)
	}
}

// Applied writes a command of an operator, or of a node by itself, that was applied at
// e.Position (SEC-012). A member that starts applies a part of its log again: Applied does
// nothing if the trail has that position or a later one. A line that can't be written waits; if
// too many do, Applied returns an error, and the trail says later that it is missing.
func (a *Log) Applied(e directory.AuditEvent) error {
	if !a.LastApplied().Before(e.Position) {
		return nil
	}

	if err := a.record(&logLine{Time: time.Now().UTC(), Phase: phaseApplied, AuditEvent: e}); err != nil {
		return err
	}

	// A line that waits counts as written: it precedes every later one.
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied = e.Position

	return nil
}

// Brought writes a change of registrations that another member brought and that was applied at e.Change.
// It does nothing if the trail had that change or a later one when the node started, which applies a part
// of its log again. Refreshes of one caller beyond its budget are counted, as those of Intend are.
func (a *Log) Brought(e directory.AuditEvent) error {
	if !a.known.Before(e.Change) {
		return nil
	}

	line := logLine{Time: time.Now().UTC(), Phase: phaseApplied, AuditEvent: e}

	if by := a.callerOf(e.Actor); e.Routine {
		whole, begins := a.refreshes.take(by, refreshLine)
		if !whole {
			a.refreshes.add(by, max(1, e.Count), true)
		}

		// The first refresh over the budget leaves a line that counting begins; later ones leave none.
		switch {
		case begins:
			line = logLine{Time: line.Time, Phase: phaseCounted, AuditEvent: by.event(e.Action, 0)}
		case !whole:
			return nil
		}
	}

	if err := a.record(&line); err != nil {
		return err
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = e.Change

	return nil
}

// LastApplied returns the position of the last applied command in the log; zero if there is
// none.
func (a *Log) LastApplied() directory.Position {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.applied
}

// Err returns nil if the log can be written, so that no change is refused for it. If
// the last write failed, Err tries again; otherwise it does no I/O, so that a disk that
// hangs cannot stop the metrics that report it.
func (a *Log) Err() error {
	if !a.failing.Load() {
		return nil
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	// Another caller may have succeeded while this one waited for the lock.
	if !a.failing.Load() {
		return nil
	}

	return a.put(nil, time.Now())
}

// Outgrown returns how many lines were removed since the start because there was no room
// for them.
func (a *Log) Outgrown() uint64 { return a.outgrown.Load() }

func (a *Log) write(line *logLine) error {
	room := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(room)
	*room = line.append((*room)[:0])

	return a.writeLine(*room, line.Time)
}

// maxWaiting bounds the lines that wait until they can be written.
const maxWaiting = 256

// record writes a line about an event that can't be refused any more. If that fails, the line waits: it precedes
// the next one, and Err returns an error until there is room for it. If too many wait, it is missing.
func (a *Log) record(line *logLine) error {
	room := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(room)
	*room = line.append((*room)[:0])

	a.mu.Lock()
	defer a.mu.Unlock()

	err := a.put(*room, line.Time)

	switch {
	case err == nil:
		return nil
	case len(a.pending) < maxWaiting:
		a.pending = append(a.pending, *line)
		a.o.Logger.Error("a line of the audit trail can't be written and waits", "phase", line.Phase, "action",
			line.Action, "request_id", line.RequestID, "err", err)

		return nil
	}

	a.missing.Add(1)

	return err
}

// writeLine writes the line that begins with data.
func (a *Log) writeLine(data []byte, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	err := a.put(data, now)
	if err != nil {
		a.missing.Add(1)
	}

	return err
}

// put writes the line that begins with data, or nothing of its own. Lines that are
// pending come first, and one with the count of those that are missing. The caller holds
// mu.
func (a *Log) put(data []byte, now time.Time) error {
	err := a.putAll(data, now)
	a.failing.Store(err != nil)

	return err
}

func (a *Log) putAll(data []byte, now time.Time) error {
	if a.file == nil {
		return os.ErrClosed
	}

	// An empty file takes even a line that is larger than a file may be.
	if a.size > 0 && a.size+int64(len(data)+maxChain) > a.o.Size {
		if err := a.rotate(); err != nil {
			return err
		}
	}

	before := a.pending
	if n := a.missing.Load(); n > 0 {
		// The capacity is cut, because pending outlives a failed write and must not hold the count.
		gap := logLine{Phase: phaseMissing, AuditEvent: directory.AuditEvent{Count: n}}
		before = append(before[:len(before):len(before)], gap)
	}

	if err := a.append(before, data, now); err != nil {
		return err
	}

	a.pending = nil
	a.missing.Store(0)

	return nil
}

// append writes lines to the current file, all or none. The caller holds mu.
func (a *Log) append(before []logLine, data []byte, now time.Time) error {
	room := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(room)

	// The chain moves on only once the block is written, so that a failed write leaves no gap in it.
	block, end := (*room)[:0], a.chain

	for _, line := range before {
		from := len(block)

		if line.Time.IsZero() {
			line.Time = now.UTC()
		}

		block = end.extend(line.append(block), from)
	}

	if data != nil {
		from := len(block)
		block = end.extend(append(block, data...), from)
	}

	*room = block

	// A failed write left a part of a line, which a whole one must not follow.
	if a.torn {
		if err := a.file.Truncate(a.size); err != nil {
			return err
		}

		a.torn = false
	}

	if n, err := a.file.Write(block); err != nil {
		a.torn = n > 0 && a.file.Truncate(a.size) != nil // a disk that is full takes a part of a line
		return err
	}

	if a.size == 0 {
		a.oldest = now
	}

	a.from = cmp.Or(a.from, a.chain.number+1)

	a.size, a.newest, a.chain = a.size+int64(len(block)), now, end
	a.wake()

	return nil
}

// wake wakes the readers that wait for more lines. The caller holds mu.
func (a *Log) wake() {
	if a.grown != nil {
		close(a.grown)
		a.grown = nil
	}
}

package trust

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// AuditOptions bounds an audit trail.
type AuditOptions struct {
	Size   int64 // bytes of one file; the next line begins another
	Files  int   // that are kept, the newest among them
	Logger *slog.Logger
}

// An Audit is a node's audit trail: a file of JSON lines, and its older parts with
// .1, .2 and so on behind the name. A line has been handed to the operating system
// when the call that writes it returns, so that a killed process loses none. It is
// safe for concurrent use.
type Audit struct {
	path string
	o    AuditOptions

	refusals chan directory.Audited // bounded; what finds no room is counted in dropped
	dropped  atomic.Uint64

	mu   sync.Mutex // guards what follows
	file *os.File
	size int64
	torn bool // the file's last line was written in part
}

// auditLine is one line of the trail.
type auditLine struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"` // intent, outcome, refused
	directory.Audited
	Count uint64 `json:"count,omitzero"` // of refusals that have no line of their own
}

// OpenAudit opens the trail at path, or begins one.
func OpenAudit(path string, o AuditOptions) (*Audit, error) {
	a := &Audit{path: path, o: o, refusals: make(chan directory.Audited, maxRefusals)}
	return a, a.open()
}

func (a *Audit) open() error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.file, a.size, a.torn = f, info.Size(), false
	if a.size > 0 && info.Mode().IsRegular() { // whoever wrote it last may have been killed on the way
		last := make([]byte, 1)
		_, err := f.ReadAt(last, a.size-1)
		a.torn = err != nil || last[0] != '\n'
	}
	return nil
}

// Close closes the file. Nothing is written after it.
func (a *Audit) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	f := a.file
	a.file = nil
	return f.Close()
}

// Intend writes that a change is about to be proposed. Where that fails, the change
// must not be made: the error is Unavailable.
func (a *Audit) Intend(e directory.Audited) error {
	if err := a.write(auditLine{Time: time.Now().UTC(), Phase: "intent", Audited: e}); err != nil {
		return directory.Refuse(directory.Unavailable, "this node's audit trail can't be written, and no change is made without it; nothing was changed: use another node: %w", err)
	}
	return nil
}

// Done writes what became of a change that was intended.
func (a *Audit) Done(e directory.Audited) {
	if err := a.write(auditLine{Time: time.Now().UTC(), Phase: "outcome", Audited: e}); err != nil {
		a.o.Logger.Error("the outcome of a change is missing in the audit trail", "request_id", e.RequestID, "action", e.Action, "outcome", e.Outcome, "err", err)
	}
}

func (a *Audit) write(line auditLine) error {
	b, err := json.Marshal(line, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	b = append(b, '\n')
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return os.ErrClosed
	}
	if a.size > 0 && a.size+int64(len(b)) > a.o.Size {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if a.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := a.file.Write(b)
	a.size += int64(n)
	if err != nil {
		a.torn = a.torn || n > 0
		return err
	}
	a.torn = false
	return nil
}

// rotate gives each file the next number, lets the oldest go and begins a new one.
// The caller holds mu.
func (a *Audit) rotate() error {
	name := func(i int) string {
		if i == 0 {
			return a.path
		}
		return fmt.Sprintf("%s.%d", a.path, i)
	}
	if _, err := os.Lstat(a.path); err == nil { // else it has its number already, and the next one could not be begun
		if a.o.Files == 1 {
			if err := os.Remove(a.path); err != nil {
				return err
			}
		}
		for i := a.o.Files - 1; i > 0; i-- {
			if err := os.Rename(name(i-1), name(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	old := a.file
	if err := a.open(); err != nil {
		return err
	}
	return old.Close()
}

// Bounds of refusals in the trail: within a minute, an identity has so many lines
// of its own and then a count, and of so many identities; of the rest there is one
// count.
const (
	maxRefusals       = 1024 // that wait
	refusalWindow     = time.Minute
	refusalLines      = 10
	refusalIdentities = 1000
)

// Refused notes a refusal. It never waits.
func (a *Audit) Refused(e directory.Audited) {
	select {
	case a.refusals <- e:
	default:
		a.dropped.Add(1)
	}
}

// Run writes refusals until ctx ends, and then what it has.
func (a *Audit) Run(ctx context.Context) {
	ticker := time.NewTicker(refusalWindow)
	defer ticker.Stop()
	counts := map[directory.Identity]uint64{}
	for {
		select {
		case e := <-a.refusals:
			a.refused(e, counts)
		case <-ticker.C:
			a.tally(counts)
		case <-ctx.Done():
			for len(a.refusals) > 0 {
				a.refused(<-a.refusals, counts)
			}
			a.tally(counts)
			return
		}
	}
}

func (a *Audit) refused(e directory.Audited, counts map[directory.Identity]uint64) {
	if _, known := counts[e.Actor]; !known && len(counts) >= refusalIdentities {
		a.dropped.Add(1)
		return
	}
	if counts[e.Actor]++; counts[e.Actor] <= refusalLines {
		a.refusal(auditLine{Audited: e})
	}
}

// tally writes how many refusals have no line of their own, and begins anew.
func (a *Audit) tally(counts map[directory.Identity]uint64) {
	for id, n := range counts {
		if n > refusalLines {
			a.refusal(auditLine{Audited: directory.Audited{Action: "more", Actor: id}, Count: n - refusalLines})
		}
	}
	clear(counts)
	if n := a.dropped.Swap(0); n > 0 {
		a.refusal(auditLine{Audited: directory.Audited{Action: "more of anybody"}, Count: n})
	}
}

func (a *Audit) refusal(line auditLine) {
	line.Time, line.Phase = time.Now().UTC(), "refused"
	if err := a.write(line); err != nil {
		a.o.Logger.Warn("a refusal is missing in the audit trail", "err", err)
	}
}

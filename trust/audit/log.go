package audit

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Options bounds an audit log.
type Options struct {
	Size  int64 // bytes of one file; the next line begins another
	Files int   // files kept, including the current one
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

	refusals chan directory.AuditEvent // bounded; refusals beyond it are counted in dropped
	dropped  atomic.Uint64

	mu      sync.Mutex // guards the fields below
	file    *os.File
	size    int64
	torn    bool          // the file's last line was written in part
	missing atomic.Uint64 // lines that could not be written since one could; read without mu
	// oldest and newest are when the file's first and last lines were written.
	oldest, newest time.Time
}

// logLine is one line of the log.
type logLine struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"` // intent, outcome, refused, missing
	directory.AuditEvent
	Count uint64 `json:"count,omitzero"` // of refusals without a line of their own, or of lines missing here
}

// lineBuffers reuses the memory of written lines.
var lineBuffers = sync.Pool{New: func() any { return new([]byte) }}

// append appends the line as JSON. It uses no reflection, because each change and
// each invocation writes two lines.
func (l *logLine) append(data []byte) []byte {
	data = append(l.Time.AppendFormat(append(data, `{"time":"`...), time.RFC3339Nano), '"')
	data = strictjson.AppendText(data, "phase", l.Phase)
	text := func(name, s string) {
		if s != "" {
			data = strictjson.AppendText(data, name, strings.ToValidUTF8(s, "\ufffd"))
		}
	}
	text("request_id", l.RequestID)
	text("action", l.Action)
	text("owner", l.Owner.String())
	text("actor", l.Actor.String())
	text("authn", l.Authn)
	text("agent", l.Agent)

	if !l.RID.IsZero() {
		data = strictjson.AppendText(data, "rid", l.RID.String())
	}

	if l.RIDs != nil {
		data = appendTexts(data, "rids", l.RIDs, directory.RID.String)
	}

	text("target", l.Target)
	text("revision", l.Revision)
	text("outcome", l.Outcome)

	if l.Policies != nil {
		data = appendTexts(data, "policies", l.Policies, strings.Clone)
	}

	if l.Lifetime > 0 {
		data = strictjson.AppendUint(data, "lt", uint64(l.Lifetime))
	}

	if l.Credential > 0 {
		data = strictjson.AppendUint(data, "credential_s", uint64(l.Credential))
	}

	if l.Count > 0 {
		data = strictjson.AppendUint(data, "count", l.Count)
	}

	return append(data, '}')
}

func appendTexts[T any](data []byte, name string, all []T, text func(T) string) []byte {
	data = append(strictjson.AppendRaw(data, name, nil), '[')
	for i, one := range all {
		if i > 0 {
			data = append(data, ',')
		}

		data = strictjson.AppendString(data, text(one))
	}

	return append(data, ']')
}

// Open opens the log at path, and creates it if there is none.
func Open(path string, o Options) (*Log, error) {
	a := &Log{path: path, o: o, refusals: make(chan directory.AuditEvent, maxRefusals)}
	return a, a.open()
}

func (a *Log) open() error {
	file, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}

	a.file, a.size, a.torn = file, info.Size(), false

	a.oldest, a.newest = began(file, info.ModTime()), info.ModTime()
	if a.size > 0 && info.Mode().IsRegular() { // its last writer may have been killed while it wrote
		last := make([]byte, 1)
		_, err := file.ReadAt(last, a.size-1)
		a.torn = err != nil || last[0] != '\n'
	}

	return nil
}

// began returns the time of a file's first line, or otherwise if it has none.
func began(f *os.File, otherwise time.Time) time.Time {
	head := make([]byte, len(`{"time":"`)+len(time.RFC3339Nano)+1)
	n, _ := f.ReadAt(head, 0)

	text, _, _ := strings.Cut(strings.TrimPrefix(string(head[:n]), `{"time":"`), `"`)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at
	}

	return otherwise
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

	return f.Close()
}

// Intend writes that a change is about to be proposed. If it fails, the change must
// not be made; the error is Unavailable.
func (a *Log) Intend(e directory.AuditEvent) error {
	if err := a.write(&logLine{Time: time.Now().UTC(), Phase: "intent", AuditEvent: e}); err != nil {
		return directory.Refuse(directory.Unavailable,
			"this node's audit trail can't be written, and no change is made without it; nothing was changed: "+
				"use another node: %w", err)
	}

	return nil
}

// Done writes the outcome of an intended change.
func (a *Log) Done(e directory.AuditEvent) {
	if err := a.write(&logLine{Time: time.Now().UTC(), Phase: "outcome", AuditEvent: e}); err != nil {
		a.o.Logger.Error("the outcome of a change is missing in the audit trail", "request_id", e.RequestID, "action",
			e.Action, "outcome", e.Outcome, "err", err)
	}
}

// Err returns nil if the log can be written, so that no change is refused for it. If
// the last write failed, Err tries again; otherwise it does no I/O, so that a disk that
// hangs cannot stop the metrics that report it.
func (a *Log) Err() error {
	if a.missing.Load() == 0 {
		return nil
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	if a.missing.Load() == 0 {
		return nil
	}

	return a.put(nil, time.Now())
}

func (a *Log) write(line *logLine) error {
	room := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(room)
	*room = append(line.append((*room)[:0]), '\n')
	a.mu.Lock()
	defer a.mu.Unlock()

	err := a.put(*room, line.Time)
	if err != nil {
		a.missing.Add(1)
	}

	return err
}

// put writes lines of now. If lines are missing, one with their count comes first.
// The caller holds mu.
func (a *Log) put(data []byte, now time.Time) error {
	if n := a.missing.Load(); n > 0 {
		gap := logLine{Time: now.UTC(), Phase: "missing", Count: n}
		data = append(append(gap.append(nil), '\n'), data...)
	}

	if a.file == nil {
		return os.ErrClosed
	}

	if a.size > 0 && a.size+int64(len(data)) > a.o.Size {
		if err := a.rotate(); err != nil {
			return err
		}
	}

	if a.torn {
		data = append([]byte{'\n'}, data...)
	}

	if a.size == 0 {
		a.oldest = now
	}

	n, err := a.file.Write(data)
	if err != nil && n > 0 && a.file.Truncate(a.size) == nil { // a disk that is full takes a part of a line
		n = 0
	}

	a.size, a.newest = a.size+int64(n), now
	if err != nil {
		a.torn = a.torn || n > 0
		return err
	}

	a.torn = false
	a.missing.Store(0)

	return nil
}

// rotate gives each file the next number, removes the oldest and begins a new one.
// The caller holds mu.
func (a *Log) rotate() error {
	if _, err := os.Lstat(a.path); err == nil { // else it has its number already, and the next one could not be begun
		if a.o.Files == 1 {
			if err := os.Remove(a.path); err != nil {
				return err
			}
		}

		for i := a.o.Files - 1; i > 0; i-- {
			if err := os.Rename(a.part(i-1), a.part(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}

	old, newest := a.file, a.newest

	_ = os.Chtimes(a.part(1), time.Time{}, newest) // by this node's clock, as its lines are
	if err := a.open(); err != nil {
		return err
	}

	return old.Close()
}

// part returns the path of a file of the log; 0 is the current one.
func (a *Log) part(i int) string {
	if i == 0 {
		return a.path
	}

	return a.path + "." + strconv.Itoa(i)
}

// expire rotates if the current file covers its share of Keep, and removes older files
// whose last line is older than Keep.
func (a *Log) expire() {
	if a.o.Keep == 0 {
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	if a.file != nil && a.size > 0 && time.Since(a.oldest) >= a.o.Keep/time.Duration(a.o.Files-1) {
		if err := a.rotate(); err != nil {
			a.o.Logger.Warn("a new file of the audit trail could not be begun", "err", err)
		}
	}

	entries, err := os.ReadDir(filepath.Dir(a.path)) // there may be parts of when more were kept
	for _, e := range entries {
		number, is := strings.CutPrefix(e.Name(), filepath.Base(a.path)+".")
		if _, none := strconv.Atoi(number); !is || none != nil {
			continue
		}

		info, infoErr := e.Info()
		if infoErr == nil && time.Since(info.ModTime()) >= a.o.Keep {
			infoErr = os.Remove(filepath.Join(filepath.Dir(a.path), e.Name()))
		}

		err = errors.Join(err, infoErr)
	}

	if err != nil {
		a.o.Logger.Warn("of the audit trail, something that is too old may still be there", "err", err)
	}
}

// expireEvery is the interval between checks for expired files.
const expireEvery = 10 * time.Minute

// Bounds of refusals in the log. Within refusalWindow each of refusalIdentities has
// refusalLines lines and then a count; all other identities share one count.
const (
	maxRefusals       = 1024 // queued
	refusalWindow     = time.Minute
	refusalLines      = 10
	refusalIdentities = 1000
)

// Refused queues a refusal. It never blocks.
func (a *Log) Refused(e directory.AuditEvent) {
	select {
	case a.refusals <- e:
	default:
		a.dropped.Add(1)
	}
}

// Run writes queued refusals and removes expired files until ctx ends. It then writes
// the refusals that are still queued.
func (a *Log) Run(ctx context.Context) {
	ticker := time.NewTicker(refusalWindow)
	defer ticker.Stop()
	aging := time.NewTicker(expireEvery)
	defer aging.Stop()
	a.expire()

	counts := map[directory.Identity]uint64{}
	for {
		select {
		case e := <-a.refusals:
			a.refused(e, counts)
		case <-ticker.C:
			a.tally(counts)
		case <-aging.C:
			a.expire()
		case <-ctx.Done():
			for len(a.refusals) > 0 {
				a.refused(<-a.refusals, counts)
			}

			a.tally(counts)

			return
		}
	}
}

func (a *Log) refused(event directory.AuditEvent, counts map[directory.Identity]uint64) {
	if _, known := counts[event.Actor]; !known && len(counts) >= refusalIdentities {
		a.dropped.Add(1)
		return
	}

	if counts[event.Actor]++; counts[event.Actor] <= refusalLines {
		a.refusal(logLine{AuditEvent: event})
	}
}

// tally writes the counts of refusals without a line of their own, and resets them.
func (a *Log) tally(counts map[directory.Identity]uint64) {
	for id, n := range counts {
		if n > refusalLines {
			a.refusal(logLine{AuditEvent: directory.AuditEvent{Action: "more", Actor: id}, Count: n - refusalLines})
		}
	}

	clear(counts)

	if n := a.dropped.Swap(0); n > 0 {
		a.refusal(logLine{AuditEvent: directory.AuditEvent{Action: "more of anybody"}, Count: n})
	}
}

func (a *Log) refusal(line logLine) {
	line.Time, line.Phase = time.Now().UTC(), "refused"
	if err := a.write(&line); err != nil {
		a.o.Logger.Warn("a refusal is missing in the audit trail", "err", err)
	}
}

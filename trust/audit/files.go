package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// A link is the place of a line in the chain.
type link struct {
	Time   time.Time      `json:"time"`
	Phase  string         `json:"phase"`
	Number uint64         `json:"n"`    // 0 in logs without a chain
	Prev   directory.Hash `json:"prev"` // zero in the first line
}

// parseLink returns the place of a line, and whether it is a line of an audit log.
func parseLink(line []byte) (link, bool) {
	var at link
	err := json.Unmarshal(line, &at)

	return at, err == nil && at.Phase != ""
}

// part returns the path of a file of the log; 0 is the current one.
func part(path string, i int) string {
	if i == 0 {
		return path
	}

	return path + "." + strconv.Itoa(i)
}

func (a *Log) part(i int) string { return part(a.path, i) }

// open opens the current file, and creates it if there is none.
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

// recover finds the end of the chain after a start. A torn last line, which a power failure
// leaves, is removed. Lines that are gone since the node stopped are noted.
func (a *Log) recover() error {
	// A device or a pipe has no past lines to continue.
	info, err := a.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}

	whole, last, err := lastLine(a.file, a.size)
	if err != nil {
		return err
	}

	// The next line must follow a whole one, and readers must learn that bytes are gone.
	if whole < a.size {
		if err := a.file.Truncate(whole); err != nil {
			return err
		}

		a.pending = append(a.pending, logLine{Phase: phaseRepaired, Bytes: uint64(a.size - whole)})
		a.size = whole
	}

	said, err := a.remember()
	if err != nil {
		return err
	}

	// A node that ended within a rotation left an empty file: the chain goes on from the file before it.
	if last == nil {
		if last, err = lastLineOf(a.part(1)); err != nil {
			return err
		}
	}

	if last != nil {
		at, _ := parseLink(last)
		a.chain = chain{at.Number, directory.HashOf(last)}
	}

	first, err := a.first()
	if err != nil {
		return err
	}

	a.from = first.Number

	switch {
	case a.size == 0 && a.chain.number > 0: // the node ended in the midst of a rotation
		a.pending = append([]logLine{{Phase: phaseRotated, From: first.Number, Head: first.Prev}}, a.pending...)
	case a.from > max(said, 1):
		// This node notes the oldest kept line whenever it removes older ones, so these were removed by others.
		a.pending = append(a.pending, logLine{
			Phase: phaseDropped, Reason: reasonRemoved, From: a.from, Head: first.Prev,
			AuditEvent: directory.AuditEvent{Count: a.from - max(said, 1)},
		})
	}

	return nil
}

// remember reads from the current file the positions of the last command and of the last change that were
// applied, and returns the number of the oldest line that was kept when it was last written.
func (a *Log) remember() (from uint64, err error) {
	position, err := lastMember(a.file, a.size, `"position":"`)
	if err != nil {
		return 0, err
	}

	if text, _, ok := strings.Cut(position, `"`); ok {
		_ = a.applied.UnmarshalText([]byte(text)) // this node writes no malformed one
	}

	change, err := lastMember(a.file, a.size, `"change":"`)
	if err != nil {
		return 0, err
	}

	if text, _, ok := strings.Cut(change, `"`); ok {
		_ = a.changed.UnmarshalText([]byte(text))

		// It is set once: only changes from before the start are applied again.
		a.known = a.changed
	}

	text, err := lastMember(a.file, a.size, `"from":`)
	if err != nil {
		return 0, err
	}

	digits, _, _ := strings.Cut(text, ",")
	from, _ = strconv.ParseUint(digits, 10, 64)

	return from, nil
}

// lastMember returns the text after the last occurrence of a member's name in a file. In a
// string its quotes would be escaped.
func lastMember(file *os.File, size int64, name string) (string, error) {
	const step, value = 1 << 20, 64

	room := make([]byte, step+value)
	for end := size; end > 0; end -= step {
		// Each window overlaps the one after it, so that a member across the boundary is found whole.
		from := max(0, end-step)

		window := room[:min(size, end+value)-from]
		if _, err := file.ReadAt(window, from); err != nil {
			return "", err
		}

		if at := bytes.LastIndex(window, []byte(name)); at >= 0 {
			rest := window[at+len(name):]
			return string(rest[:min(len(rest), value)]), nil
		}
	}

	return "", nil
}

// lastLine returns the end of the last whole line in the first size bytes of a file, and
// that line without its newline; nil if there is none.
func lastLine(file io.ReaderAt, size int64) (end int64, line []byte, err error) {
	// A line has at most maxLine bytes, and a torn one of that size may follow the last whole line.
	from := max(0, size-2*maxLine)

	room := make([]byte, size-from)
	if _, err := file.ReadAt(room, from); err != nil {
		return 0, nil, err
	}

	for {
		at := bytes.LastIndexByte(room, '\n')

		switch {
		case at < 0 && from > 0:
			// There may be whole lines before, which the caller would remove.
			return 0, nil, fmt.Errorf("the last %d bytes hold no line of an audit log", size-from)
		case at < 0:
			return 0, nil, nil
		}

		line := room[bytes.LastIndexByte(room[:at], '\n')+1 : at]
		if _, ok := parseLink(line); ok {
			return from + int64(at) + 1, line, nil
		}

		// Blocks that reached the disk before the ones in front of them.
		room = room[:at]
	}
}

// lastLineOf returns the last line of a file; nil if there is none.
func lastLineOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return nil, err
	}

	_, line, err := lastLine(file, info.Size())

	return line, err
}

// firstLineOf returns the place of the first line of a file; zero if there is none.
func firstLineOf(path string) (link, error) {
	file, err := os.Open(path)
	if err != nil {
		return link{}, err
	}
	defer file.Close()

	return firstLine(file)
}

// firstLine returns the place of the first line of a file; zero if there is none.
func firstLine(file io.ReaderAt) (link, error) {
	head, err := io.ReadAll(io.NewSectionReader(file, 0, 64<<10))
	if err != nil {
		return link{}, err
	}

	line, _, _ := bytes.Cut(head, []byte("\n"))
	at, _ := parseLink(line)

	return at, nil
}

// first returns the place of the oldest line that is kept.
func (a *Log) first() (link, error) {
	numbers, err := parts(a.path)
	if err != nil {
		return link{}, err
	}

	for _, i := range numbers {
		at, err := firstLineOf(a.part(i))
		if err != nil || at.Phase != "" {
			return at, err
		}
	}

	return link{}, nil
}

// parts returns the numbers of the files of a log, the oldest first.
func parts(path string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}

	var numbers []int

	base := filepath.Base(path)
	for _, entry := range entries {
		suffix := strings.TrimPrefix(entry.Name(), base)
		number, _ := strconv.ParseUint(strings.TrimPrefix(suffix, "."), 10, 31) // 0 for the current file

		if part(base, int(number)) == entry.Name() {
			numbers = append(numbers, int(number))
		}
	}

	slices.Sort(numbers)
	slices.Reverse(numbers)

	return numbers, nil
}

// rotate gives each file the next number, removes those beyond the files that are kept, and
// begins a new one. Its first line says which line is the oldest that is kept. The caller
// holds mu, and writes that line.
func (a *Log) rotate() error {
	if _, err := os.Lstat(a.path); err == nil { // else it has its number already, and the next one could not be begun
		for i := a.o.Files; i > 0; i-- {
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

	gone, kept, err := a.outdated(func(number int, _ time.Time) bool { return number >= a.o.Files })
	header := logLine{
		Phase: phaseRotated, AuditEvent: directory.AuditEvent{Position: a.applied, Change: a.changed},
		From: kept.Number, Head: kept.Prev,
	}

	if len(gone) > 0 {
		header.Count = kept.Number - min(a.from, kept.Number)
		header.Reason = reasonSize
		a.outgrown.Add(header.Count)
		a.o.Logger.Warn("the oldest lines of the audit trail were removed because audit.files are full",
			"lines", header.Count)
	}

	a.from = kept.Number

	// The header precedes lines that wait, because a file begins with it.
	a.pending = append([]logLine{header}, a.pending...)

	return errors.Join(err, removeAll(gone), old.Close())
}

// outdated returns the files that old selects, and the place of the oldest line in the
// others: that of the next line if there is none. The caller holds mu.
func (a *Log) outdated(old func(number int, newest time.Time) bool) (gone []string, kept link, err error) {
	numbers, err := parts(a.path)
	if err != nil {
		return nil, kept, err
	}

	for _, number := range numbers { // there may be parts of when more were kept
		info, err := os.Stat(a.part(number))
		if err != nil {
			return nil, kept, err
		}

		if number > 0 && old(number, info.ModTime()) {
			gone = append(gone, a.part(number))
			continue
		}

		// The parts come oldest first, so the first one that stays has the oldest line.
		if kept.Phase == "" {
			if kept, err = firstLineOf(a.part(number)); err != nil {
				return nil, kept, err
			}
		}
	}

	if kept.Phase == "" {
		kept.Number, kept.Prev = a.chain.number+1, a.chain.head
	}

	return gone, kept, nil
}

func removeAll(paths []string) (err error) {
	for _, path := range paths {
		err = errors.Join(err, os.Remove(path))
	}

	return err
}

// expireEvery is the interval between checks for expired files.
const expireEvery = 10 * time.Minute

// expire rotates if the current file covers its share of Keep, and removes older files
// whose last line is older than Keep.
func (a *Log) expire() {
	if a.o.Keep == 0 {
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	if err := a.removeExpired(time.Now()); err != nil {
		a.o.Logger.Warn("lines of the audit trail that are too old may still be there", "err", err)
	}
}

// removeExpired does the work of expire. The line about the removal is on disk before the files are removed. The caller
// holds mu.
func (a *Log) removeExpired(now time.Time) error {
	if a.file != nil && a.size > 0 && now.Sub(a.oldest) >= a.o.Keep/time.Duration(a.o.Files-1) {
		if err := a.rotate(); err != nil {
			return err
		}
	}

	gone, kept, err := a.outdated(func(_ int, newest time.Time) bool { return now.Sub(newest) >= a.o.Keep })
	if err != nil || len(gone) == 0 {
		return err
	}

	line := logLine{
		Time: now.UTC(), Phase: phaseDropped, Reason: reasonAge, From: kept.Number, Head: kept.Prev,
		AuditEvent: directory.AuditEvent{Count: kept.Number - min(a.from, kept.Number)},
	}

	// After a power failure, a removal without this line would look like one by others.
	if err := errors.Join(a.put(line.append(nil), now), a.file.Sync()); err != nil {
		return err
	}

	a.from = kept.Number

	return removeAll(gone)
}

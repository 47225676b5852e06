package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of a page. Reading ends at the first that is met.
const (
	maxPageRead  = 16 << 20 // bytes that are read
	maxPageBytes = 4 << 20  // bytes of selected lines
	maxFaults    = 16
)

// Read returns the lines after q.After that q selects, up to q.Limit, or as many as a page
// has room for. It doesn't hold up writers while it reads.
func (a *Log) Read(ctx context.Context, q directory.AuditQuery) (directory.AuditPage, error) {
	files, err := a.opened()
	if err != nil {
		return directory.AuditPage{}, err
	}

	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()

	p := pageReader{query: &q, left: maxPageRead}
	for i, file := range files {
		if i+1 < len(files) && p.endsBefore(files[i+1]) {
			continue
		}

		if err := p.readFile(ctx, file); err != nil || p.full {
			return p.page, err
		}
	}

	return p.page, nil
}

// Grown returns a channel that is closed once the log has lines after the one that is its last at the call.
func (a *Log) Grown() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.grown == nil {
		a.grown = make(chan struct{})
	}

	return a.grown
}

// Head returns the number of the last line and its hash.
func (a *Log) Head() (number uint64, head directory.Hash) {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.chain.number, a.chain.head
}

// opened opens all files of the log, the oldest first. None gets another name meanwhile.
func (a *Log) opened() (files []*os.File, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	return openAll(a.path)
}

func openAll(path string) (files []*os.File, err error) {
	numbers, err := parts(path)
	if err != nil {
		return nil, err
	}

	for _, number := range numbers {
		file, err := os.Open(part(path, number))

		// A file may have been removed since the folder was read.
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			for _, file := range files {
				err = errors.Join(err, file.Close())
			}

			return nil, err
		}

		files = append(files, file)
	}

	return files, nil
}

// Lines calls each with every line of the log at path, the oldest first, until that returns
// false. The log may be that of a node that is stopped, or a copy.
func Lines(path string, each func(line []byte) bool) error {
	files, err := openAll(path)
	if err != nil {
		return err
	}

	if len(files) == 0 {
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}

	for _, file := range files {
		if err == nil {
			err = eachLine(file, each)
		}

		err = errors.Join(err, file.Close())
	}

	return err
}

func eachLine(file io.Reader, each func(line []byte) bool) error {
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)

	for lines.Scan() {
		if !each(lines.Bytes()) {
			return nil
		}
	}

	return lines.Err()
}

// A pageReader reads one page.
type pageReader struct {
	query    *directory.AuditQuery
	page     directory.AuditPage
	verifier Verifier
	left     int64 // bytes to read
	bytes    int   // of the selected lines
	full     bool
}

// endsBefore reports whether the lines in front of a file are all before those of the page.
func (p *pageReader) endsBefore(next *os.File) bool {
	first, err := firstLine(next)

	return err == nil && first.Number > 0 &&
		(first.Number <= p.query.After+1 && p.query.After > 0 || first.Time.Before(p.query.Since))
}

// readFile reads the lines of a file after query.After.
func (p *pageReader) readFile(ctx context.Context, file *os.File) error {
	from, err := seekNumber(file, p.query.After)
	if err != nil {
		return err
	}

	reader := bufio.NewReaderSize(io.NewSectionReader(file, from, 1<<62), 64<<10)

	for ctx.Err() == nil {
		line, err := readLine(reader)
		if errors.Is(err, io.EOF) {
			return nil // a line that is being written comes with the next page
		}

		if err != nil {
			return err
		}

		if p.read(line); p.full {
			return nil
		}
	}

	return ctx.Err()
}

// readLine returns the next whole line without its newline.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte

	for {
		// A line within the buffer is returned without a copy, valid until the next read.
		piece, err := r.ReadSlice('\n')
		if err == nil && long == nil {
			return piece[:len(piece)-1], nil
		}

		long = append(long, piece...)

		switch {
		case err == nil:
			return long[:len(long)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(long) > maxLine:
			return nil, bufio.ErrTooLong
		}
	}
}

// read takes one line.
func (p *pageReader) read(line []byte) {
	at, isLine := parseLink(line)
	if at.Number > 0 && at.Number <= p.query.After {
		return
	}

	// The line beyond a full page is not part of it, but shows that there is more.
	if p.left <= 0 || len(p.page.Lines) >= p.query.Limit || p.bytes >= maxPageBytes {
		p.full = true
		p.page.More = true

		return
	}

	p.left -= int64(len(line))

	// Unselected lines are verified as well, because each line carries the hash of the one before.
	if fault := p.verifier.Line(line); fault != nil && len(p.page.Faults) < maxFaults {
		p.page.Faults = append(p.page.Faults, fault.Error())
	}

	if p.page.First == 0 {
		p.page.First, p.page.Prev = at.Number, at.Prev
	}

	p.page.Last, p.page.Head = p.verifier.Head()

	if isLine && Selects(p.query, line) {
		// The line is in the reader's buffer, which the next line overwrites.
		p.page.Lines = append(p.page.Lines, bytes.Clone(line))
		p.bytes += len(line)
	}
}

// Selects reports whether a query selects a line, After and Limit aside.
func Selects(q *directory.AuditQuery, line []byte) bool {
	if q.Since.IsZero() && q.Who == "" && q.What == "" {
		return true
	}

	var e struct {
		Time      time.Time `json:"time"`
		Action    string    `json:"action"`
		Owner     string    `json:"owner"`
		Actor     string    `json:"actor"`
		BroughtBy string    `json:"brought_by"`
		Agent     string    `json:"agent"`
		RID       string    `json:"rid"`
		RIDs      []string  `json:"rids"`
		Target    string    `json:"target"`
	}
	if json.Unmarshal(line, &e) != nil || e.Time.Before(q.Since) {
		return false
	}

	// The log has long texts in shortened form, so the query's are compared in that form too.
	if who := shorten(q.Who); who != "" && !named(e.Actor, who) && !named(e.Owner, who) && !named(e.BroughtBy, who) {
		return false
	}

	if q.What == "" || e.Action == q.What || strings.HasPrefix(e.Action, q.What+".") {
		return true
	}

	what := shorten(q.What)

	return e.Agent == what || e.RID == what || e.Target == what || slices.Contains(e.RIDs, what)
}

func named(identity, who string) bool {
	return identity == who || strings.HasSuffix(identity, "/"+strings.TrimPrefix(who, "/"))
}

// seekNumber returns an offset at or before the line after number, at the beginning of a
// line.
func seekNumber(file *os.File, number uint64) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}

	const near = 256 << 10

	low, high := int64(0), info.Size()
	for high-low > near {
		middle := low + (high-low)/2

		part, err := io.ReadAll(io.NewSectionReader(file, middle, near/2))
		if err != nil {
			return 0, err
		}

		// The middle is somewhere within a line, so the whole line after it decides.
		_, rest, _ := bytes.Cut(part, []byte("\n"))
		line, _, whole := bytes.Cut(rest, []byte("\n"))

		at, ok := parseLink(line)
		if !whole || !ok {
			break // a line that is longer, or no line: the rest is read
		}

		if at.Number > number {
			high = middle
		} else {
			low = middle + int64(len(part)-len(rest))
		}
	}

	return low, nil
}

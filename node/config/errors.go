package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// maxErrors bounds the errors that are reported at once.
const maxErrors = 20

// An Error is an error of one key.
type Error struct {
	Line int    // in the file; 0 if it is not known
	Key  string // path, such as members[0].id; empty if it is of the file
	Text string // without the key
}

// Error returns "LINE: KEY: TEXT", without an unknown line or key.
func (e Error) Error() string {
	text := e.Text
	if e.Key != "" {
		text = e.Key + ": " + text
	}

	if e.Line > 0 {
		text = fmt.Sprintf("%d: %s", e.Line, text)
	}

	return text
}

// Errors are all errors of a configuration, at most 20, in the order of the file.
type Errors struct {
	File string // empty for a configuration that was not read from a file
	List []Error
	More int // further errors, which are not listed
}

// Lines returns a text for each error: FILE:LINE: KEY: TEXT.
func (e *Errors) Lines() []string {
	var lines []string

	for _, each := range e.List {
		separator := ":"
		if each.Line == 0 {
			separator = ": "
		}

		if e.File == "" {
			separator = ""
		}

		lines = append(lines, e.File+separator+each.Error())
	}

	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}

	return lines
}

// Error returns the lines, one after the other.
func (e *Errors) Error() string { return strings.Join(e.Lines(), "; ") }

// A report collects the errors of a configuration.
type report struct {
	lines  map[string]int // of the keys in the file
	errors []Error
}

// addf adds an error of a key.
func (r *report) addf(key, format string, args ...any) {
	r.errors = append(r.errors, Error{r.line(key), key, directory.HideUserinfo(fmt.Sprintf(format, args...))})
}

// require adds an error of a key unless a condition holds.
func (r *report) require(ok bool, key, format string, args ...any) {
	if !ok {
		r.addf(key, format, args...)
	}
}

// check adds an error of a key, if there is one.
func (r *report) check(key string, err error) {
	if err != nil {
		r.addf(key, "%v", err)
	}
}

// line returns the line of a key or, if the file doesn't have it, of the nearest key
// around it.
func (r *report) line(key string) int {
	for key != "" {
		if line, ok := r.lines[key]; ok {
			return line
		}

		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}

	return r.lines[""]
}

// result returns the errors; nil if there are none. A key that can't be read has one error
// and is not judged further.
func (r *report) result(file string) error {
	if len(r.errors) == 0 {
		return nil
	}

	// The sort is stable, so the first error of a key stays, and its later ones are dropped.
	slices.SortStableFunc(r.errors, func(a, b Error) int { return cmp.Compare(a.Line, b.Line) })

	seen := map[string]bool{}
	unique := slices.DeleteFunc(r.errors, func(e Error) bool {
		repeated := e.Key != "" && seen[e.Key]
		seen[e.Key] = true

		return repeated
	})
	listed := unique[:min(len(unique), maxErrors)]

	return &Errors{file, listed, len(unique) - len(listed)}
}

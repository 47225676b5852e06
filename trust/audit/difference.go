package audit

import (
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Bounds of the lines of a difference: of those that were added, and of all others, so that a long text that
// was removed leaves room for its replacement.
const (
	maxDifference      = 64      // lines
	maxDifferenceBytes = 8 << 10 // bytes of them, each at most maxText
)

// DifferenceOf returns the difference between two texts. An empty text counts as absent.
func DifferenceOf(was, is []byte) *directory.AuditDifference {
	difference := &directory.AuditDifference{Is: directory.HashOf(is)}
	if len(was) > 0 {
		difference.Was = directory.HashOf(was)
	}

	var added, others lineRoom

	for i, line := range strings.Split(strings.TrimSuffix(string(diff.Diff("", was, "", is)), "\n"), "\n") {
		if i < diffHead {
			continue
		}

		room := &others

		switch line[0] {
		case '+':
			difference.Added++
			room = &added
		case '-':
			difference.Removed++
		}

		// A line of the log is JSON, which holds no invalid UTF-8.
		line = shorten(strings.ToValidUTF8(line, "\ufffd"))
		if room.take(line) {
			difference.Lines = append(difference.Lines, line)
		}
	}

	if left := added.refused + others.refused; left > 0 {
		difference.Lines = append(difference.Lines, "... "+strconv.Itoa(left)+" more lines")
	}

	return difference
}

// A lineRoom counts lines within the bounds, and those that it refused.
type lineRoom struct{ lines, bytes, refused int }

func (r *lineRoom) take(line string) bool {
	// After the first refusal no shorter line is taken either, so that the lines have no gap.
	if r.refused > 0 || r.lines == maxDifference || r.bytes+len(line) > maxDifferenceBytes {
		r.refused++
		return false
	}

	r.lines++
	r.bytes += len(line)

	return true
}

// diffHead counts the lines before the first hunk, which name the texts.
const diffHead = 3

// appendDifference appends a difference as JSON.
func appendDifference(data []byte, d *directory.AuditDifference) []byte {
	data = append(data, '{')
	if !d.Was.IsZero() {
		data = strictjson.AppendText(data, "was", d.Was.String())
	}

	data = strictjson.AppendText(data, "is", d.Is.String())

	if d.Version != nil {
		data = strictjson.AppendUint(data, "was_version", *d.WasVersion)
		data = strictjson.AppendUint(data, "version", *d.Version)
	}

	data = strictjson.AppendUint(data, "added", d.Added)
	data = strictjson.AppendUint(data, "removed", d.Removed)

	if len(d.Lines) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendName(data, "lines"), d.Lines)
	}

	return append(data, '}')
}

package cli

import (
	"net/http"
	"strconv"
	"strings"
)

// A Written is the result of a change, for -o json: of an answer without a body, as far as its header has it.
type Written struct {
	Agent   string `json:"agent,omitempty"` // of a registration
	Href    string `json:"href"`
	RID     string `json:"rid,omitempty"`
	Subject string `json:"subject,omitempty"` // the node, domain or key that was changed
	Result  string `json:"result"`
	Position
	Lifetime   uint64 `json:"lt,omitempty"` // in seconds
	ExpiresAt  string `json:"expires_at,omitempty"`
	Visibility string `json:"visibility,omitempty"`
}

// A Position says where in the domain's history a change is.
type Position struct {
	// Revision is that of the change, or of a state of the domain that has an operator's change.
	Revision uint64 `json:"revision,omitempty"`
	Index    string `json:"index,omitempty"` // for --min
}

// PositionOf returns the position in the header of an answer; the zero value if it has no position.
func PositionOf(header http.Header) Position {
	at := Position{Index: header.Get("Roster-Index")}

	// The first position is that of the directory's own domain, DOMAIN=EPOCH.REVISION.
	first, _, _ := strings.Cut(at.Index, ",")
	at.Revision, _ = strconv.ParseUint(first[strings.LastIndexByte(first, '.')+1:], 10, 64)

	return at
}

// WrittenOf returns the outcome of a change of a resource from the header of its answer.
func WrittenOf(href, result string, header http.Header) Written {
	written := Written{Href: href, Result: result, Position: PositionOf(header)}
	if location := header.Get("Location"); location != "" {
		written.Href = location
	}

	if at, err := http.ParseTime(header.Get("Sunset")); err == nil {
		written.ExpiresAt = FormatTime(at)
	}

	return written
}

// About returns the outcome with the node, domain or key that was changed.
func (w Written) About(subject string) Written {
	w.Subject = subject
	return w
}

// PrintWritten notes the outcome of a change, and prints it in the format of -o unless that
// is a table.
func (c *Console) PrintWritten(written Written, note string, args ...any) error {
	c.Note(note, args...)

	if c.Format.IsTable() {
		return nil
	}

	return c.PrintValue(written, "", Table{})
}

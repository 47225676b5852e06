package cli

import (
	"net/http"
	"strconv"
	"strings"
)

// A Written is what a change did, for -o json: of an answer without a body, as far as its
// header tells.
type Written struct {
	Agent      string `json:"agent,omitempty"` // of a registration
	RID        string `json:"rid,omitempty"`
	Href       string `json:"href"`
	Subject    string `json:"subject,omitempty"` // the node, domain or key that was changed
	Result     string `json:"result"`
	Lifetime   uint64 `json:"lt,omitempty"` // in seconds
	ExpiresAt  string `json:"expires_at,omitempty"`
	Visibility string `json:"visibility,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Index      string `json:"index,omitempty"` // for --min
}

// WrittenOf returns the outcome of a change of a resource from the header of its answer.
func WrittenOf(href, result string, header http.Header) Written {
	written := Written{Href: href, Result: result, Index: header.Get("Roster-Index")}
	if location := header.Get("Location"); location != "" {
		written.Href = location
	}

	// The first position is that of the directory's own domain, DOMAIN=EPOCH.REVISION.
	first, _, _ := strings.Cut(written.Index, ",")
	written.Revision, _ = strconv.ParseUint(first[strings.LastIndexByte(first, '.')+1:], 10, 64)

	if at, err := http.ParseTime(header.Get("Sunset")); err == nil {
		written.ExpiresAt = FormatTime(at)
	}

	return written
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

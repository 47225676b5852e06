package trust

import (
	"fmt"
	"strings"
	"time"
)

// A Report lists the steps of Verify, and the facts that they show.
type Report struct {
	Steps   []Step  `json:"steps"`
	Subject Subject `json:"subject"`
	// Anchor is the basis of the verdict; AnchorNone until one was found.
	Anchor Anchor `json:"anchor"`
	// Directory is the trust data of the directory that is the anchor.
	Directory *DirectoryWord `json:"directory,omitempty"`
	// Authentic is whether the origin's signatures were checked by the anchor and
	// all steps hold. Without an anchor it is false.
	Authentic bool `json:"authentic"`
	Logged    bool `json:"logged"`
	// Unchecked names the parts of the file that can be changed without another
	// verdict, such as UncheckedBundle.
	Unchecked []string `json:"unchecked"`
}

// A Step is one thing that Verify looked at. After the step that fails all are
// skipped.
type Step struct {
	Name    string `json:"name"`
	Detail  string `json:"detail"`
	OK      bool   `json:"ok"`
	Skipped bool   `json:"skipped,omitempty"`
}

// A Subject describes the contents of a record, as far as they were read.
type Subject struct {
	Domain   string    `json:"domain,omitempty"`
	RID      string    `json:"rid,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Owner    string    `json:"owner,omitempty"` // empty if it is withheld
	Epoch    uint64    `json:"epoch,omitempty"`
	Revision uint64    `json:"revision,omitempty"` // of the statement
	Issued   time.Time `json:"issued,omitzero"`    // the statement
	Checked  time.Time `json:"checked,omitzero"`   // when the origin last said so
	Deadline time.Time `json:"deadline,omitzero"`
	Redacted bool      `json:"redacted,omitempty"`
	Key      string    `json:"key,omitempty"` // kid of the page's signature
	Node     string    `json:"node,omitempty"`
}

// A StepError says at which step of Verify a proof failed, and wraps why: an
// error of this package or of directory that ExitCode knows.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// String returns the report as plain lines, one for each step.
func (r *Report) String() string {
	var out strings.Builder
	for _, step := range r.Steps {
		word := "ok"
		switch {
		case step.Skipped:
			word = "-"
		case !step.OK:
			word = "FAILED"
		}

		fmt.Fprintf(&out, "%-6s  %-16s  %s\n", word, step.Name, step.Detail)
	}

	return out.String()
}

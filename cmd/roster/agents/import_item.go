package agents

import (
	"errors"
	"slices"
	"strings"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

// The results of an item.
const (
	registered = "registered"
	replaced   = "replaced"
	valid      = "valid" // this and the next three in a dry run
	isNew      = "new"
	changed    = "changed"
	unchanged  = "unchanged"
	refused    = "refused"
	untried    = "untried"
)

// An item is one document of an import and its result.
type item struct {
	Source    string       `json:"source"` // file or URL, with # and a number if it holds several documents
	Agent     string       `json:"agent,omitempty"`
	Result    string       `json:"result"`
	RID       string       `json:"rid,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Pointer   string       `json:"pointer,omitempty"`
	Signature string       `json:"signature,omitempty"` // result of verifying an agent card's signature
	Diff      []difference `json:"diff,omitempty"`
	Warnings  []string     `json:"warnings,omitempty"` // about parts that were skipped

	document []byte
	meta     []byte // a registry's own data about the document; may be nil
}

// refuse sets the result to refused, with the reason of err.
func (i *item) refuse(err error) {
	i.Result = refused
	i.Reason = cli.FirstLine(err.Error())

	var (
		invalid  *directory.Error
		response *apiclient.Error
	)
	switch {
	case errors.As(err, &invalid):
		i.Reason = invalid.Detail
		i.Pointer = invalid.Pointer
	case errors.As(err, &response) && response.Detail != "":
		i.Reason = response.Detail
		i.Pointer = response.Pointer
	}
}

// warnIgnored adds a warning for each part of the registration that has no effect, once.
func (i *item) warnIgnored(parts []apiclient.Ignored) {
	for _, part := range parts {
		if warning := connect.DescribeIgnored(part); !slices.Contains(i.Warnings, warning) {
			i.Warnings = append(i.Warnings, warning)
		}
	}
}

// isAccepted reports whether the item was registered or, in a dry run, would be.
func (i *item) isAccepted() bool { return i.Result != refused && i.Result != untried }

// detail returns the last column of the report.
func (i *item) detail() string {
	if !i.isAccepted() {
		if i.Pointer != "" {
			return strings.TrimSuffix(i.Reason, ".") + " (at " + i.Pointer + ")"
		}

		return i.Reason
	}

	var parts []string
	if i.Signature != "" {
		parts = append(parts, "signature "+i.Signature)
	}

	parts = append(parts, i.Warnings...)
	for _, d := range i.Diff {
		parts = append(parts, d.sign()+d.Member)
	}

	return strings.Join(parts, ", ")
}

package audit

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// A Verifier checks that the lines of a trail follow each other: it is given all of them,
// the oldest first. A change to a line shows in the line after it, so the last
// line is only as good as a head that is known from elsewhere (Verifier.Head).
//
// The zero Verifier begins at any line.
type Verifier struct {
	chain chain
	lines uint64

	first   link // of the chain
	covered bool // a line names first as the oldest that is kept
}

// A Fault is a place where a trail is not as it was written. Number is that of the line
// before it; 0 before the first.
type Fault struct {
	Number uint64
	Reason string
}

func (f *Fault) Error() string { return f.Reason }

func fault(number uint64, format string, args ...any) *Fault {
	return &Fault{Number: number, Reason: fmt.Sprintf(format, args...)}
}

// Line checks the next line, without its newline. The line after a fault begins anew.
func (v *Verifier) Line(line []byte) *Fault {
	var at struct {
		link
		Reason string         `json:"reason"`
		Count  uint64         `json:"count"`
		From   uint64         `json:"from"`
		Head   directory.Hash `json:"head"`
	}

	before := v.chain
	v.lines++

	if err := json.Unmarshal(line, &at); err != nil || at.Phase == "" {
		return fault(before.number, "after line %d there is %.40q, which is no line of an audit log", before.number,
			line)
	}

	v.chain = chain{at.Number, directory.HashOf(line)}

	if at.Number == 0 { // a log without a chain
		return nil
	}

	if v.first.Number == 0 {
		v.first = at.link
	}

	// Such a line accounts for a trail that begins late: this node removed the lines before its first.
	v.covered = v.covered || at.From == v.first.Number && at.Head == v.first.Prev

	switch {
	case before.number > 0 && at.Number > before.number+1:
		return fault(before.number, "lines %d to %d are missing", before.number+1, at.Number-1)
	case at.Number < before.number+1:
		return fault(before.number, "line %d stands after line %d: lines were put in or moved", at.Number,
			before.number)
	case v.lines > 1 && at.Prev != before.head:
		return fault(before.number, "line %d was changed: line %d carries another hash", before.number, at.Number)
	case at.Reason == reasonRemoved:
		return fault(before.number,
			"line %d says that the %d lines before line %d were removed while the node was stopped", at.Number,
			at.Count, at.From)
	}

	return nil
}

// Begin checks that the trail begins where it says. It is asked after the last line of a
// whole trail.
func (v *Verifier) Begin() *Fault {
	if v.first.Number <= 1 || v.covered {
		return nil
	}

	return fault(0, "the lines before line %d are missing, and no line says that they were removed", v.first.Number)
}

// Head returns the number of the last line and its hash.
func (v *Verifier) Head() (number uint64, head directory.Hash) { return v.chain.number, v.chain.head }

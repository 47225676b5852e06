package witness

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
)

// maxSubmission bounds the body of a submission, in bytes.
const maxSubmission = 16 << 10

var errSubmission = errors.New("the body is no submission of C2SP tlog-witness")

// A Submission is a checkpoint that a log submits to a witness.
type Submission struct {
	Old        uint64           // the size that the witness cosigned last
	Proof      []directory.Hash // that the checkpoint continues the one of that size
	Checkpoint string           // the signed note
}

// Text returns the body of the request.
func (s *Submission) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", s.Old)

	for _, h := range s.Proof {
		b.WriteString(base64.StdEncoding.EncodeToString(h[:]) + "\n")
	}

	return b.String() + "\n" + s.Checkpoint
}

// parseSubmission reads the body of a request.
func parseSubmission(body string) (*Submission, error) {
	head, note, found := strings.Cut(body, "\n\n")
	lines := strings.Split(head, "\n")
	digits, isOld := strings.CutPrefix(lines[0], "old ")

	switch {
	case !found || !isOld:
		return nil, fmt.Errorf("%w: it has the line \"old N\", the proof's hashes, an empty line and a checkpoint",
			errSubmission)
	case len(lines)-1 > checkpoint.MaxPath:
		return nil, fmt.Errorf("%w: a proof has at most %d hashes, got %d", errSubmission, checkpoint.MaxPath,
			len(lines)-1)
	}

	old, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || strconv.FormatUint(old, 10) != digits {
		return nil, fmt.Errorf("%w: %.30q is no size", errSubmission, digits)
	}

	s := &Submission{Old: old, Checkpoint: note}
	for _, line := range lines[1:] {
		raw, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(raw) != len(directory.Hash{}) {
			return nil, fmt.Errorf("%w: %.60q is no hash in base64", errSubmission, line)
		}

		s.Proof = append(s.Proof, directory.Hash(raw))
	}

	return s, nil
}

package checkpoint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

const (
	proofMark = "c2sp.org/tlog-proof@v1"
	// MaxProof bounds a proof in bytes.
	MaxProof = MaxNote + maxExtra*4/3 + 8<<10
	maxExtra = 64 << 10
)

// A Proof says at which index of a log an entry is (C2SP tlog-proof). Which entry, its
// reader knows.
type Proof struct {
	Extra      []byte // not signed; nil without any
	Index      uint64
	Path       []directory.Hash // from the leaf's sibling upwards
	Checkpoint string           // the signed note, with all of its signatures
}

// FormatProof returns the text of a proof.
func FormatProof(p Proof) string {
	var b strings.Builder
	b.WriteString(proofMark + "\n")

	if p.Extra != nil {
		b.WriteString("extra " + b64.EncodeToString(p.Extra) + "\n")
	}

	b.WriteString("index " + strconv.FormatUint(p.Index, 10) + "\n")

	for _, h := range p.Path {
		b.WriteString(b64.EncodeToString(h[:]) + "\n")
	}

	b.WriteString("\n" + p.Checkpoint)

	return b.String()
}

// ParseProof reads the text of a proof. Its checkpoint is in the form of Parse.
func ParseProof(text string) (*Proof, error) {
	if len(text) > MaxProof {
		return nil, fmt.Errorf("%w: a proof has at most %d bytes, got %d", ErrForm, MaxProof, len(text))
	}

	head, note, found := strings.Cut(text, "\n\n")
	if !found {
		return nil, fmt.Errorf("%w: the proof has no checkpoint after an empty line", ErrForm)
	}

	lines := strings.Split(head, "\n")
	if lines[0] != proofMark {
		return nil, fmt.Errorf("%w: a proof begins with the line %q", ErrForm, proofMark)
	}

	lines = lines[1:]
	proof := &Proof{Checkpoint: note}

	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		encoded := strings.TrimPrefix(lines[0], "extra ")

		extra, err := b64.DecodeString(encoded)
		if err != nil || len(extra) > maxExtra || b64.EncodeToString(extra) != encoded {
			return nil, fmt.Errorf("%w: the proof's extra data is not base64 of at most %d bytes", ErrForm, maxExtra)
		}

		proof.Extra = extra
		lines = lines[1:]
	}

	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		return nil, fmt.Errorf("%w: the proof has no index line", ErrForm)
	}

	var err error
	if proof.Index, err = parseIndex(strings.TrimPrefix(lines[0], "index ")); err != nil {
		return nil, fmt.Errorf("the proof's index: %w", err)
	}

	if len(lines)-1 > MaxPath {
		return nil, fmt.Errorf("%w: a proof has at most %d hashes, got %d", ErrForm, MaxPath, len(lines)-1)
	}

	for _, line := range lines[1:] {
		h, err := parseTreeHash(line)
		if err != nil {
			return nil, fmt.Errorf("the proof's path: %w", err)
		}

		proof.Path = append(proof.Path, h)
	}

	// The checkpoint is kept as text, which its users parse again.
	if _, err := Parse(note); err != nil {
		return nil, err
	}

	return proof, nil
}

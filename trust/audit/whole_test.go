package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// A proof or a payload is whole in a line, or absent with its hash there: a part would prove nothing, and look like
// one that proves another thing.
//
// Requirement: LOG-020, SEC-012
func TestAProofIsWholeOrItsHash(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		kept bool
	}{
		"short":        {"a.b.c", true},
		"of the bound": {strings.Repeat("a", maxProof), true},
		"beyond it":    {strings.Repeat("a", maxPayload+1), false},
		"no text":      {"\xff", false},
	} {
		line := logLine{Phase: phaseApplied, AuditEvent: directory.AuditEvent{
			Action: "x", Proof: c.text, Payload: c.text,
		}}

		var read logLine

		must(t, json.Unmarshal(append(line.append(nil), '}'), &read))

		want := logLine{Phase: phaseApplied, AuditEvent: directory.AuditEvent{Action: "x"}}
		if hash := directory.HashOf([]byte(c.text)); c.kept {
			want.Proof, want.Payload = c.text, c.text
		} else {
			want.ProofHash, want.PayloadHash = hash, hash
		}

		if read.Proof != want.Proof || read.ProofHash != want.ProofHash || read.Payload != want.Payload ||
			read.PayloadHash != want.PayloadHash {
			t.Errorf("%s: the line has a proof of %d bytes, %s, and a payload of %d bytes, %s", name, len(read.Proof),
				read.ProofHash, len(read.Payload), read.PayloadHash)
		}
	}

	// The longest payload that is kept leaves a line that can be read, though each byte of it may need an escape.
	long := logLine{Phase: phaseApplied, AuditEvent: directory.AuditEvent{Payload: strings.Repeat("\x01", maxPayload)}}

	text := long.append(nil)
	if size := len(text); size < 6*maxPayload || size > maxLine-maxProof {
		t.Errorf("such a line has %d bytes", size)
	}

	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.WriteFile(path, append(text, "}\n"...), 0o600))

	lines := 0

	must(t, Lines(path, func([]byte) bool { lines++; return true }))

	if lines != 1 {
		t.Errorf("%d lines of 1 are read", lines)
	}
}

package domain

import (
	"bytes"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// Among the logs of several nodes, the failure counts the faults of each, and a log without faults has its head
// printed.
func TestFaultsAreCountedByLog(t *testing.T) {
	var notes bytes.Buffer

	report := newAuditReport(&cli.Console{Stdout: &bytes.Buffer{}, Stderr: &notes}, directory.AuditQuery{})
	report.fault("node/b", "line 7 was changed")
	report.fault("node/a", "line 2 was changed")
	report.fault("node/b", "line 9 was changed")

	var sound audit.Verifier
	if fault := sound.Line([]byte(`{"time":"2026-01-02T03:04:05Z","n":1,"prev":"` + directory.Hash{}.String() +
		`","phase":"outcome","action":"register"}`)); fault != nil {
		t.Fatal(fault)
	}

	report.verified("node/b", &sound)
	report.verified("node/c", &sound)

	text := notes.String()
	if strings.Contains(text, "node/b: verified") || !strings.Contains(text, "node/c: verified") {
		t.Errorf("the notes are\n%s", text)
	}

	if err := report.end(); err == nil || !strings.Contains(err.Error(), "node/a (faults: 1), node/b (faults: 2)") {
		t.Errorf("the failure is %v", err)
	}
}

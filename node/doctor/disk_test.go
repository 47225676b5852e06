package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/config"
)

// An operator's command without a valid proof, or one that was not checked, is a finding.
//
// Requirement: SEC-012
func TestDoctorNamesSuspectCommands(t *testing.T) {
	line := func(outcome string) string {
		return `{"time":"2026-11-22T10:29:34Z","phase":"applied","action":"policy.write","outcome":"` + outcome +
			`","brought_by":"spiffe://alpha.test/roster/node/2"}` + "\n"
	}

	for outcome, want := range map[string]string{
		"ok": StatusOK, "operator-proof-invalid": StatusFailed, "unchecked": StatusFailed,
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "audit.jsonl"), []byte(line("ok")+line(outcome)), 0o600))

		d := &diagnosis{cfg: config.Config{Data: dir}, now: time.Now()}
		d.trail(t.Context())

		i := slices.IndexFunc(d.findings, func(f Finding) bool { return f.Check == "operators" })
		if i < 0 || d.findings[i].Status != want ||
			(want == StatusOK) == strings.Contains(d.findings[i].Found, "roster/node/2") {
			t.Errorf("%s: %+v", outcome, d.findings)
		}
	}
}

// A false message of a member that the node has refused is a finding, with the member and the reason.
//
// Requirement: SEC-019
func TestDoctorNamesMisconduct(t *testing.T) {
	line := `{"time":"2026-11-22T10:29:34Z","phase":"refused","action":"raft.entry","outcome":"misconduct",` +
		`"target":"log entry 12 of term 7: no","brought_by":"spiffe://alpha.test/roster/node/2"}` + "\n"

	for text, want := range map[string]string{"": StatusOK, line: StatusFailed} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "audit.jsonl"), []byte(text), 0o600))

		d := &diagnosis{cfg: config.Config{Data: dir}, now: time.Now()}
		d.trail(t.Context())

		i := slices.IndexFunc(d.findings, func(f Finding) bool { return f.Check == "members" })
		if i < 0 || d.findings[i].Status != want ||
			(want == StatusFailed) != strings.Contains(d.findings[i].Found,
				"from spiffe://alpha.test/roster/node/2 at 2026-11-22T10:29:34Z: log entry 12") {
			t.Errorf("%q: %+v", text, d.findings)
		}
	}
}

// What lives for over ten times as long as the credential that it was asked for with is
// warned of, by its last word, until it has ended.
//
// Requirement: AD-070
func TestDoctorWarnsOfWhatOutlivesItsCredential(t *testing.T) {
	line := func(action, rid, outcome, more string) string {
		return `{"time":"2026-11-22T10:29:34Z","phase":"outcome","request_id":"` + action + rid + `","action":"` +
			action + `","actor":"spiffe://alpha.test/agent/ada","agent":"agent-` + rid +
			`","rid":"` + rid + `","outcome":"` + outcome + `"` + more + "}\n"
	}
	for name, c := range map[string]struct {
		trail string
		want  string // in what is found; empty where all is well
	}{
		"ten times":      {line("register", "1", "ok", `,"lt":36000,"credential_s":3600`), ""},
		"over ten times": {line("register", "1", "ok", `,"lt":36001,"credential_s":3600`), "1 registrations"},
		"the longest": {line("register", "1", "ok", `,"lt":86400,"credential_s":3600`) + line("refresh", "2",
			"ok", `,"lt":86400,"credential_s":300`),
			"2 registrations that this node granted lately live for over 10 times as long as the credential that " +
				"they were asked for with; agent-2 of spiffe://alpha.test/agent/ada for 86400 s, by one of 300 s"},
		"shortened": {line("register", "1", "ok", `,"lt":86400,"credential_s":3600`) + line("refresh", "1",
			"ok", `,"lt":600,"credential_s":3600`), ""},
		"removed": {line("register", "1", "ok", `,"lt":86400,"credential_s":3600`) + line("remove", "1", "ok",
			""), ""},
		"refused":          {line("register", "1", "conflict", `,"lt":86400,"credential_s":3600`), ""},
		"the node's doing": {line("register", "1", "ok", `,"lt":86400`), ""},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "audit.jsonl"), []byte(c.trail), 0o600))

		d := &diagnosis{cfg: config.Config{Data: dir}, now: time.Now()}
		d.trail(t.Context())

		var found Finding
		for _, f := range d.findings {
			if f.Check == "lifetimes" {
				found = f
			}
		}

		if (found.Status == StatusOK) != (c.want == "") || found.Status == "" ||
			!strings.Contains(found.Found, c.want) {
			t.Errorf("%s: %+v, want %q", name, found, c.want)
		}

		if (found.Do == "") != (c.want == "") {
			t.Errorf("%s: to do is %q", name, found.Do)
		}

		// A support archive goes to others, who may not see each agent.
		d = &diagnosis{cfg: config.Config{Data: dir}, now: time.Now(), hidesNames: true}
		if d.trail(t.Context()); strings.Contains(fmt.Sprint(d.findings), "agent") {
			t.Errorf("%s: an agent is named in %+v", name, d.findings)
		}
	}
}

// A disk that is slower than disk.slow fails, and the trial leaves nothing behind.
func TestDoctorFindsASlowDisk(t *testing.T) {
	d := &diagnosis{cfg: config.Config{Data: t.TempDir()}}
	d.cfg.Disk.Slow = time.Nanosecond
	d.disk(t.Context())

	if last := d.findings[len(d.findings)-1]; last.Check != "disk.sync" || last.Status != StatusFailed {
		t.Errorf("it finds %+v", last)
	}

	if files, err := os.ReadDir(d.cfg.Data); err != nil || len(files) > 0 {
		t.Errorf("it leaves %v behind, %v", files, err)
	}
}

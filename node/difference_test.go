package node

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
	"github.com/roster-mesh/roster/trust/policy"
)

// The line of an operator's command says what the command changed: of a policy the versions, the hashes and
// the lines, of a peering the settings.
//
// Requirement: SEC-012
func TestTheAuditLineSaysWhatACommandChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	trail, err := audit.Open(path, audit.Options{Size: 1 << 20, Files: 2, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)

	builtin, err := policy.New("shipped", spiffeid.RequireTrustDomainFromString("alpha.test"))
	must(t, err)

	builtInText, _ := builtin.InForce()
	builtInLines := uint64(strings.Count(string(builtInText), "\n"))

	recorder := &commandRecorder{
		trail: trail, log: slog.New(slog.DiscardHandler), orders: &orders{builtin: builtin},
		bundle: func(*directory.BundleChange) {},
	}

	was := directory.Peering{
		Domain: spiffeid.RequireTrustDomainFromString("beta.test"), State: directory.PeeringActive,
		Bundle: []byte("one"), Secret: directory.HashOf([]byte("secret")),
	}
	next := was
	next.Mesh = true
	next.Export.Names = []string{"printer*"}
	first, second := "permit (principal, action, resource);\n", "permit (principal, action, resource);\n// more\n"

	policyChange := func(text string) directory.OperatorChange {
		return directory.OperatorChange{
			Action: directory.ActionPolicy, Policy: &directory.PolicyChange{Text: []byte(text)},
		}
	}

	for i, c := range []struct {
		name    string
		change  directory.OperatorChange
		was     string // the policy in force, and its version
		version uint64

		versions        string
		wasText, isText string // whose hashes the line has
		added, removed  uint64
		lines           []string // that are among those of the difference
	}{
		{
			name: "a policy over the built-in one", change: policyChange(first),
			versions: "0 to 101", wasText: string(builtInText), isText: first, added: 1, removed: builtInLines,
			lines: []string{"+permit (principal, action, resource);"},
		},
		{
			name: "a line is added", change: policyChange(second), was: first, version: 101, versions: "101 to 102",
			wasText: first, isText: second, added: 1, lines: []string{"+// more"},
		},
		{
			name: "the policy is in force already", change: policyChange(second), was: second, version: 102,
			versions: "102 to 102", wasText: second, isText: second,
		},
		{
			name: "back to the built-in policy", change: policyChange(""), was: second, version: 102,
			versions: "102 to 104", wasText: second, isText: string(builtInText),
			added: builtInLines, removed: 2,
		},
		{
			name: "a peering", added: 6, removed: 1,
			change: directory.OperatorChange{
				Action: directory.ActionPeering, Peering: &directory.PeeringChange{Was: &was, Next: next},
			},
			lines: []string{`+  "mesh": true,`, `+      "printer*"`, `-  "mesh": false,`},
		},
		{
			name: "a bundle", added: 1, removed: 1,
			change: directory.OperatorChange{
				Action: directory.ActionBundle, Node: true,
				Bundle: &directory.BundleChange{Was: was, Next: []byte("two")},
			},
			lines: []string{`+  "bundle": "` + directory.HashOf([]byte("two")).String() + `"`},
		},
		{
			name: "a standing admission", added: 1,
			change: directory.OperatorChange{
				Action: directory.ActionAdmit, Target: "spiffe://alpha.test/roster/node/*",
				Admission: &directory.AdmissionChange{Standing: true, Max: 5},
			},
			lines: []string{"+max 5"},
		},
	} {
		event := directory.OperatorCommand{
			OperatorChange: c.change, Policy: []byte(c.was), PolicyVersion: c.version, Number: uint64(i) + 1,
			Position: directory.Position{Epoch: 1, Revision: uint64(i) + 101},
			From:     spiffeid.RequireFromString("spiffe://alpha.test/roster/node/a"),
		}
		recorder.record(event)

		lines := readLines(t, path)
		got := lines[len(lines)-1].Difference

		if len(lines) != i+1 || got == nil {
			t.Fatalf("%s: %d lines, the last says %+v", c.name, len(lines), got)
		}

		if c.isText != "" && (got.Was != directory.HashOf([]byte(c.wasText)) ||
			got.Is != directory.HashOf([]byte(c.isText)) ||
			fmt.Sprint(*got.WasVersion, " to ", *got.Version) != c.versions) {
			t.Errorf("%s: hashes or versions of others: %+v", c.name, got)
		}

		if got.Added != c.added || got.Removed != c.removed {
			t.Errorf("%s: +%d -%d lines, want +%d -%d: %q", c.name, got.Added, got.Removed, c.added, c.removed,
				got.Lines)
		}

		for _, line := range c.lines {
			if !strings.Contains("\n"+strings.Join(got.Lines, "\n")+"\n", "\n"+line+"\n") {
				t.Errorf("%s: no line %q among %q", c.name, line, got.Lines)
			}
		}

		if strings.Contains(strings.Join(got.Lines, "\n"), was.Secret.String()) {
			t.Errorf("%s: the invitation's secret is shown: %q", c.name, got.Lines)
		}
	}

	if err := trail.Close(); err != nil {
		t.Error(err)
	}
}

// readLines returns the lines of an audit log.
func readLines(t *testing.T, path string) (entries []audit.Entry) {
	t.Helper()

	err := audit.Lines(path, func(line []byte) bool {
		entry, err := audit.ParseEntry(line)
		if err != nil {
			t.Errorf("%v: %s", err, line)
		}

		entries = append(entries, entry)

		return true
	})
	must(t, err)

	return entries
}

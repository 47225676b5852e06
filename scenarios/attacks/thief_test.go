package attacks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Whoever got at a node's disk alters, removes or moves lines of its audit log: roster audit
// names the place and exits with 10, whether it is asked of the node or of the file. The
// honest log is verified (finding 20).
// notes/users.md: "the audit trail has no route and no verb, and is not chained".
//
// Requirement: SEC-020
func TestAlteredAuditLogsAreFound(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]
	ada := m.as(0, "agent/ada")

	for i := range 20 {
		status, body, err := ask(t.Context(), ada, "POST", fmt.Sprintf("%s/ad/r?agent=audited-%d", node.API, i),
			[]byte(`{"base":"https://agent.example/"}`))
		if err != nil || status != 201 {
			t.Fatal(status, string(body), err)
		}
	}

	path := filepath.Join(node.Data, "audit.jsonl")
	auditor := m.flags(0, "audit/auditor")

	code, out, errs := runProgram(t, append([]string{"audit", "--what", "register", "-o", "jsonl"}, auditor...)...)
	if code != 0 || strings.Count(out, "audited-7\"") != 2 {
		t.Fatalf("exit code %d: %s\n%.500s", code, errs, out)
	}

	honest, err := os.ReadFile(path)
	must(t, err)

	lines := bytes.SplitAfter(bytes.TrimSpace(honest), []byte("\n"))
	for name, c := range map[string]struct {
		change func([][]byte) [][]byte
		want   string
	}{
		"an altered line": {func(l [][]byte) [][]byte {
			l[4] = bytes.Replace(l[4], []byte("agent/ada"), []byte("agent/bob"), 1)
			return l
		}, "line 5 was changed"},
		"a removed line": {func(l [][]byte) [][]byte { return slices.Delete(l, 4, 6) }, "lines 5 to 6 are missing"},
		"a moved line": {func(l [][]byte) [][]byte { l[4], l[5] = l[5], l[4]; return l },
			"line 5 stands after line 6"},
		"a removed start": {func(l [][]byte) [][]byte { return l[3:] }, "the lines before line 4 are missing"},
		"a foreign line": {func(l [][]byte) [][]byte { return slices.Insert(l, 4, []byte("nothing to see\n")) },
			"after line 4 there is"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := bytes.Join(c.change(slices.Clone(lines)), nil)
			file := writeFile(t, t.TempDir(), "audit.jsonl", append(forged, '\n'))

			if code, _, errs := runProgram(t, "audit", "--file", file); code != 10 || !strings.Contains(errs, c.want) {
				t.Errorf("exit code %d, want 10 and %q: %s", code, c.want, errs)
			}

			must(t, os.WriteFile(path, append(forged, '\n'), 0o600))

			code, _, errs := runProgram(t, append([]string{"audit"}, auditor...)...)
			if code != 10 || !strings.Contains(errs, c.want) && !strings.Contains(errs, "line 5 was changed") &&
				!strings.Contains(errs, "are missing") {
				t.Errorf("of the node: exit code %d, want 10 and %q: %s", code, c.want, errs)
			}
		})
	}

	must(t, os.WriteFile(path, honest, 0o600))

	code, _, errs = runProgram(t, "audit", "--file", path)
	if code != 0 || !strings.Contains(errs, "verified up to line") {
		t.Errorf("the honest log: exit code %d: %s", code, errs)
	}
}

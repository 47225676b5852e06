package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// trailText returns all lines of a trail, the oldest first.
func trailText(t testing.TB, path string) string {
	t.Helper()

	numbers, err := parts(path)
	must(t, err)

	var text strings.Builder
	for _, i := range numbers {
		data, err := os.ReadFile(part(path, i))
		must(t, err)
		text.Write(data)
	}

	return text.String()
}

// chained fails the test unless each line of a text carries the hash and the next number
// of the one before it. It returns the phases.
func chained(t testing.TB, text string) (phases []string) {
	t.Helper()

	var before string

	var number uint64

	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")

		at, ok := parseLink([]byte(line))
		if !ok {
			t.Fatalf("not a line: %q", line)
		}

		if before != "" && (at.Prev != directory.HashOf([]byte(before)) || at.Number != number+1) {
			t.Errorf("line %d doesn't follow line %d:\n%s\n%s", at.Number, number, before, line)
		}

		before, number = line, at.Number
		phases = append(phases, at.Phase)
	}

	return phases
}

// Each line carries the hash of the one before it, across files and restarts. Lines that
// are removed because the files are full are counted in the trail and by Outgrown.
//
// Requirement: SEC-013, SEC-020
func TestLinesAreChained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for _, other := range []string{"7", "audit.jsonl7", "audit.jsonl.07", "audit.jsonl.-7", "audit.jsonl.gz"} {
		must(t, os.WriteFile(filepath.Join(filepath.Dir(path), other), nil, 0o600)) // no part of the log
	}

	written, outgrown := 0, uint64(0)
	for range 3 {
		a := openLog(t, path, 1000, 3)
		for range 10 {
			must(t, intend(a, directory.AuditEvent{Action: "register", Agent: fmt.Sprint("agent-", written)}))

			written++
		}

		outgrown += a.Outgrown()

		must(t, a.Close())
	}

	text := trailText(t, path)
	phases := chained(t, text)

	if strings.Contains(text, "agent-0") || !strings.Contains(text, "agent-29") {
		t.Errorf("the trail doesn't hold the newest lines:\n%s", text)
	}

	if phases[0] != phaseRotated {
		t.Errorf("the first line is %q", phases[0])
	}

	first, _ := parseLink([]byte(text[:strings.IndexByte(text, '\n')]))

	if outgrown != first.Number-1 {
		t.Errorf("%d lines were removed, %d counted", first.Number-1, outgrown)
	}

	want := fmt.Sprintf(`"reason":"size","from":%d,"head":"%s"`, first.Number, first.Prev)
	if !strings.Contains(text, want) {
		t.Errorf("nothing says that the lines before %d were removed:\n%s", first.Number, text)
	}
}

// verify returns the faults of a trail, the last that its first lines are missing.
func verify(text string) (faults []string) {
	var verifier Verifier

	for line := range strings.Lines(text) {
		if fault := verifier.Line([]byte(strings.TrimSuffix(line, "\n"))); fault != nil {
			faults = append(faults, fault.Error())
		}
	}

	if fault := verifier.Begin(); fault != nil {
		faults = append(faults, fault.Error())
	}

	return faults
}

// A line that is missing, moved, changed or none is found at the line after it.
//
// Requirement: SEC-020
func TestAVerifierFindsEachFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 2)

	for n := range 5 {
		must(t, intend(a, directory.AuditEvent{Action: "register", Agent: fmt.Sprint("agent-", n)}))
	}

	whole := strings.Split(strings.TrimSuffix(trailText(t, path), "\n"), "\n")

	for want, lines := range map[string][]string{
		"":                             whole,
		"lines 2 to 3 are missing":     {whole[0], whole[3], whole[4]},
		"line 2 stands after line 3":   {whole[0], whole[1], whole[2], whole[1]},
		"line 1 was changed: line 2":   {strings.Replace(whole[0], "agent-0", "agent-9", 1), whole[1], whole[2]},
		`after line 2 there is "a pie`: {whole[0], whole[1], "a piece", whole[2]},
		`after line 1 there is "{\"ph`: {whole[0], `{"phase":"intent","n":"2"}`, whole[1]},
		`after line 3 there is "{}"`:   {whole[0], whole[1], whole[2], `{}`, whole[3]},
	} {
		faults := verify(strings.Join(lines, "\n"))
		if (len(faults) > 0) != (want != "") || want != "" && (len(faults) > 1 || !strings.HasPrefix(faults[0], want)) {
			t.Errorf("the faults are %q, want one: %s", faults, want)
		}
	}
}

// A last line that a power failure has torn is removed, and the trail says so. The chain
// goes on from the last whole line.
//
// Requirement: SEC-020
func TestTornLinesAreRepaired(t *testing.T) {
	for name, tail := range map[string]string{
		"half a line":         `{"time":"2026-01-01T00:00:00Z","phase":"intent","act`,
		"zeros":               strings.Repeat("\x00", 5000),
		"no line":             "{}\n",
		"no end of a line":    `{"time":"2026-01-01T00:00:00Z","phase":"intent","n":7,` + "\x00\n",
		"blocks out of order": strings.Repeat("\x00", 512) + `on":"x"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			a := openLog(t, path, 1<<20, 2)
			must(t, intend(a, directory.AuditEvent{Action: "register"}))
			must(t, a.Close())

			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = file.WriteString(tail)
			must(t, err)
			must(t, file.Close())

			a = openLog(t, path, 1<<20, 2)
			must(t, intend(a, directory.AuditEvent{Action: "remove"}))

			text := trailText(t, path)
			if phases := chained(t, text); fmt.Sprint(phases) != "[intent repaired intent]" {
				t.Errorf("the lines are %q", phases)
			}

			if !strings.Contains(text, fmt.Sprintf(`"bytes":%d`, len(tail))) {
				t.Errorf("the trail doesn't say how much was removed:\n%s", text)
			}
		})
	}
}

// A file that holds no line, and one that can't be read, are none of a trail: a node that would go on with
// them would lose what is there.
//
// Requirement: SEC-020
func TestFilesThatAreNoTrailStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	foreign := bytes.Repeat(append(bytes.Repeat([]byte("x"), 1<<16), '\n'), 33) // over 2 MiB, and under 4
	must(t, os.WriteFile(path, foreign, 0o600))

	if _, err := Open(path, Options{Size: 1000, Files: 2, Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a file of something else is continued")
	}

	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, foreign) {
		t.Errorf("of %d bytes %d are left: %v", len(foreign), len(got), err)
	}

	must(t, os.Remove(path))
	must(t, os.Mkdir(path+".1", 0o700))

	if _, err := Open(path, Options{Size: 1000, Files: 2, Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("an older part that can't be read counts as none")
	}
}

// Files that somebody removes while the node is stopped are missed, and the trail says so.
//
// Requirement: SEC-013
func TestRemovedFilesAreMissed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1000, 3)

	for range 15 {
		must(t, intend(a, directory.AuditEvent{Action: "register"}))
	}

	must(t, a.Close())
	must(t, os.Remove(path+".2"))

	a = openLog(t, path, 1000, 3)
	must(t, a.Close())

	if text := trailText(t, path); !strings.Contains(text, `"reason":"removed"`) {
		t.Errorf("nothing says that lines are gone:\n%s", text)
	}

	before := trailText(t, path)

	faults := verify(before)
	if len(faults) != 1 || !strings.Contains(faults[0], "removed while the node was stopped") {
		t.Errorf("the faults are %q", faults)
	}

	a = openLog(t, path, 1000, 3)
	must(t, a.Close())

	if text := trailText(t, path); text != before {
		t.Errorf("it is said twice:\n%s", text)
	}
}

// A command has one line, though a member that starts applies a part of its log again.
//
// Requirement: SEC-012
func TestAppliedCommandsHaveOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	for range 3 {
		a := openLog(t, path, 1000, 5)
		for index := range uint64(4) {
			must(t, a.Applied(directory.AuditEvent{Action: "policy.write", Proof: "a.b.c",
				Position: directory.Position{Epoch: 7, Revision: index + 1}}))
		}

		must(t, a.Close())
	}

	text := trailText(t, path)
	if n := strings.Count(text, `"phase":"applied"`); n != 4 {
		t.Errorf("4 commands have %d lines:\n%s", n, text)
	}

	a := openLog(t, path, 1000, 5)
	must(t, a.Applied(directory.AuditEvent{Action: "policy.write",
		Position: directory.Position{Epoch: 8, Revision: 1}}))

	if text := trailText(t, path); !strings.Contains(text, `"position":"8.1"`) {
		t.Error("a command of the next epoch has no line")
	}
}

// A trail whose first lines are gone is not whole, unless a line says which of them were removed.
//
// Requirement: SEC-013
func TestATrailBeginsWhereItSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 3)

	for range 5 {
		must(t, intend(a, directory.AuditEvent{Action: "register"}))
	}

	must(t, a.Close())

	whole := trailText(t, path)
	if faults := verify(whole); faults != nil {
		t.Errorf("the whole trail: %q", faults)
	}

	_, rest, _ := strings.Cut(whole, "\n")
	if faults := verify(rest); len(faults) != 1 {
		t.Errorf("a trail without its first line has the faults %q", faults)
	}

	rotated := filepath.Join(t.TempDir(), "audit.jsonl")
	a = openLog(t, rotated, 1000, 3)

	for range 40 {
		must(t, intend(a, directory.AuditEvent{Action: "register"}))
	}

	must(t, a.Close())

	if text := trailText(t, rotated); strings.Contains(text, `"n":1,`) {
		t.Errorf("nothing was removed:\n%s", text)
	} else if faults := verify(text); faults != nil {
		t.Errorf("a trail that says what was removed: %q", faults)
	}
}

// A change that another member brought has one line, though a member that starts applies a part of its log
// again.
//
// Requirement: SEC-012
func TestBroughtChangesHaveOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	for start := range uint64(3) {
		a := openLog(t, path, 1<<20, 5)
		for revision := range 4 + start {
			must(t, a.Brought(directory.AuditEvent{
				Action: "register", Actor: identity(t, "spiffe://alpha.test/agent/ada"),
				Change: directory.Position{Epoch: 7, Revision: revision + 1},
			}))
		}

		must(t, a.Close())
	}

	text := trailText(t, path)
	if n := strings.Count(text, `"action":"register"`); n != 6 {
		t.Errorf("6 changes have %d lines:\n%s", n, text)
	}
}

// A command has one line, though the file that has it has been rotated away before the member
// starts and applies a part of its log again.
//
// Requirement: SEC-012
func TestACommandOfAnEarlierFileIsNotRepeated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	command := directory.AuditEvent{Action: "policy.write", Proof: "a.b.c",
		Position: directory.Position{Epoch: 7, Revision: 1}}

	brought := directory.AuditEvent{Action: "remove", Agent: "brought",
		Change: directory.Position{Epoch: 7, Revision: 2}}

	a := openLog(t, path, 1000, 9)
	must(t, errors.Join(a.Applied(command), a.Brought(brought)))

	for range 25 {
		must(t, intend(a, directory.AuditEvent{Action: "register"}))
	}

	must(t, a.Close())

	if current, err := os.ReadFile(path); err != nil || strings.Contains(string(current), command.Proof) ||
		strings.Contains(string(current), brought.Agent) {
		t.Fatalf("the command's line is in the current file: %v\n%s", err, current)
	}

	a = openLog(t, path, 1000, 9)
	must(t, errors.Join(a.Applied(command), a.Brought(brought)))

	if text := trailText(t, path); strings.Count(text, command.Proof) != 1 || strings.Count(text, brought.Agent) != 1 {
		t.Errorf("the command has not one line:\n%s", text)
	}
}

// A caller can't make its lines long, nor fill the trail with refreshes: those beyond a
// bound are counted.
//
// Requirement: SEC-013
func TestLinesOfOneCallerAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, err := Open(path, Options{Domain: spiffeid.RequireTrustDomainFromString("alpha.test"), Size: 64 << 20, Files: 2,
		Logger: slog.New(slog.DiscardHandler)})
	must(t, err)

	ada := identity(t, "spiffe://alpha.test/"+strings.Repeat("a", 1900))
	policies := strings.Split(strings.Repeat(strings.Repeat("p", 1000)+",", 50), ",")
	must(t, intend(a, directory.AuditEvent{Action: "register", Owner: ada, Actor: ada, Agent: strings.Repeat("ü", 127),
		Target: strings.Repeat("x", 10_000), Policies: policies}))

	if text := trailText(t, path); len(text) > 3000 {
		t.Errorf("a line has %d bytes", len(text))
	}

	before := len(trailText(t, path))

	rids := make([]directory.RID, 1000)
	for range 1000 {
		event := directory.AuditEvent{Action: "refresh", Actor: ada, RIDs: rids, Routine: true}
		done, err := a.Intend(event)
		must(t, err)

		event.RIDs, event.Count, event.Outcome = nil, 1000, directory.OutcomeOK
		done(event)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.Run(ctx)

	text := trailText(t, path)
	if grown := len(text) - before; grown > refreshBytes+4096 {
		t.Errorf("1,000 refreshes of 1,000 registrations take %d bytes of the trail", grown)
	}

	if !strings.Contains(text, `"phase":"counted","action":"refresh","actor"`) ||
		!strings.Contains(text, `"outcome":"ok","count":998000`) {
		t.Errorf("refreshes without lines are not counted:\n%s", text[max(0, len(text)-1000):])
	}

	chained(t, text)
	must(t, a.Close())
}

// A file of a log that has no chain yet is continued by one that has.
func TestOlderLogsAreContinued(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	old := `{"time":"2026-01-01T00:00:00Z","phase":"intent","action":"register"}`
	must(t, os.WriteFile(path, []byte(old+"\n"), 0o600))

	a := openLog(t, path, 1<<20, 2)
	must(t, intend(a, directory.AuditEvent{Action: "remove"}))

	_, line, _ := bytes.Cut([]byte(trailText(t, path)), []byte("\n"))
	if at, _ := parseLink(bytes.TrimSpace(line)); at.Number != 1 || at.Prev != directory.HashOf([]byte(old)) {
		t.Errorf("the chain begins with %s", line)
	}
}

// Who reads the log while it is written and rotated gets whole lines in their order, each
// once, and each page follows the one before.
//
// Requirement: SEC-020
func TestReadersGetEachLineOnceWhileItIsWritten(t *testing.T) {
	const changes = 2000

	a := openLog(t, filepath.Join(t.TempDir(), "audit.jsonl"), 20_000, 1000)

	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for range changes / 2 {
				if err := intend(a, directory.AuditEvent{Action: "register", Agent: "a"}); err != nil {
					t.Error(err)
				}
			}
		})
	}

	var verifier Verifier

	var last directory.AuditPage

	for intents := 0; intents < changes; {
		grown := a.Grown()

		page, err := a.Read(t.Context(), directory.AuditQuery{After: last.Last, Limit: 64})
		must(t, err)

		follows := page.First == 0 || last.Last == 0 || page.First == last.Last+1 && page.Prev == last.Head
		if len(page.Faults) > 0 || !follows {
			t.Fatalf("the page from %d to %d doesn't follow %d: %q", page.First, page.Last, last.Last, page.Faults)
		}

		for _, line := range page.Lines {
			if fault := verifier.Line(line); fault != nil {
				t.Fatal(fault)
			}

			if bytes.Contains(line, []byte(`"phase":"intent"`)) {
				intents++
			}
		}

		switch {
		case page.Last > 0:
			last = page
		case intents < changes:
			<-grown
		}
	}

	writers.Wait()

	if fault := verifier.Begin(); fault != nil {
		t.Error(fault)
	}
}

// A page begins right after the line that was asked for, wherever that is in a large file.
func TestPagesBeginWhereAsked(t *testing.T) {
	const lines = 5000

	a := openLog(t, filepath.Join(t.TempDir(), "audit.jsonl"), 64<<20, 2)
	for range lines {
		must(t, intend(a, directory.AuditEvent{Action: "register", Agent: strings.Repeat("a", 100)}))
	}

	for _, after := range []uint64{0, 1, 17, 2499, 4000, lines - 1, lines} {
		page, err := a.Read(t.Context(), directory.AuditQuery{After: after, Limit: 3})
		must(t, err)

		want := after + 1
		if after == lines {
			want = 0
		}

		if page.First != want || len(page.Faults) > 0 {
			t.Errorf("after %d: the page begins at %d, want %d: %q", after, page.First, want, page.Faults)
		}
	}
}

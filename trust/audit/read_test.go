package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A query selects lines by each of its members, and by all of them together.
//
// Requirement: TRUST-015
func TestWhatAQuerySelects(t *testing.T) {
	const line = `{"time":"2026-01-02T00:00:00Z","phase":"intent","action":"peer.write",` +
		`"owner":"spiffe://a.test/agent/ada",` +
		`"actor":"spiffe://a.test/ops/operator","brought_by":"spiffe://a.test/roster/node/b","agent":"planner",` +
		`"rid":"R1","rids":["R2","R3"],"target":"beta.test"}`

	at := func(text string) time.Time {
		when, err := time.Parse(time.DateOnly, text)
		must(t, err)

		return when
	}

	type q = directory.AuditQuery

	for name, x := range map[string]struct {
		q    q
		line string
		want bool
	}{
		"everything":           {q{}, line, true},
		"everything, no line":  {q{}, "{", true},
		"since before":         {q{Since: at("2026-01-01")}, line, true},
		"since then":           {q{Since: at("2026-01-02")}, line, true},
		"since later":          {q{Since: at("2026-01-03")}, line, false},
		"no line":              {q{Since: at("2026-01-01")}, "{", false},
		"the actor":            {q{Who: "spiffe://a.test/ops/operator"}, line, true},
		"the end of an actor":  {q{Who: "operator"}, line, true},
		"the end of a path":    {q{Who: "/ops/operator"}, line, true},
		"a part of a name":     {q{Who: "perator"}, line, false},
		"the owner":            {q{Who: "agent/ada"}, line, true},
		"the member":           {q{Who: "node/b"}, line, true},
		"another":              {q{Who: "eve"}, line, false},
		"no one":               {q{Who: "eve"}, `{"action":"x"}`, false},
		"the action":           {q{What: "peer.write"}, line, true},
		"a part of the action": {q{What: "peer"}, line, true},
		"the action's letters": {q{What: "pee"}, line, false},
		"another action":       {q{What: "write"}, line, false},
		"the agent":            {q{What: "planner"}, line, true},
		"the rid":              {q{What: "R1"}, line, true},
		"one of the rids":      {q{What: "R3"}, line, true},
		"another rid":          {q{What: "R4"}, line, false},
		"the target":           {q{What: "beta.test"}, line, true},
		"who and what":         {q{Who: "operator", What: "peer"}, line, true},
		"who, and not what":    {q{Who: "operator", What: "policy"}, line, false},
		"what, and not who":    {q{Who: "eve", What: "peer"}, line, false},
		"all, too early":       {q{Who: "operator", What: "peer", Since: at("2026-01-03")}, line, false},
	} {
		if got := Selects(&x.q, []byte(x.line)); got != x.want {
			t.Errorf("%s: %t, want %t", name, got, x.want)
		}
	}
}

// A page ends at its limit and at its bytes, says whether there is more, and the next one goes on
// after it. What is no line is a fault, and is not selected.
//
// Requirement: TRUST-015, SEC-020
func TestAPageIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	a := openLog(t, path, 64<<20, 2)
	for n := range 8 {
		must(t, intend(a, directory.AuditEvent{Action: "x", Agent: fmt.Sprint("agent-", n)}))
	}

	after, pages := uint64(0), []string{}

	for more := true; more; {
		page, err := a.Read(t.Context(), directory.AuditQuery{Limit: 3, After: after})
		must(t, err)

		var names []string

		for _, line := range page.Lines {
			entry, err := ParseEntry(line)
			must(t, err)

			names = append(names, entry.Action+entry.Agent)
		}

		pages = append(pages, strings.Join(names, " "))
		after, more = page.Last, page.More
	}

	if want := []string{"xagent-0 xagent-1 xagent-2", "xagent-3 xagent-4 xagent-5", "xagent-6 xagent-7"}; !slices.
		Equal(pages, want) {
		t.Errorf("the pages are %q", pages)
	}

	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)

	large := strings.Repeat("x", 900<<10)
	for range 6 {
		_, err = fmt.Fprintf(file, "{\"phase\":\"intent\",\"agent\":%q}\n", large)
		must(t, err)
	}

	_, err = fmt.Fprintln(file, "not a line")
	must(t, errors.Join(err, file.Close()))

	page, err := a.Read(t.Context(), directory.AuditQuery{Limit: 100})
	if err != nil || len(page.Lines) != 8+5 || !page.More {
		t.Errorf("%d lines of %d KiB are a page, more %t: %v", len(page.Lines)-8, len(large)>>10, page.More, err)
	}

	page, err = a.Read(t.Context(), directory.AuditQuery{Limit: 100, Since: time.Now().Add(-time.Hour)})
	if err != nil || len(page.Lines) != 8 || len(page.Faults) == 0 {
		t.Errorf("of the last hour there are %d lines, with the faults %q: %v", len(page.Lines), page.Faults, err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if page, err := a.Read(ended, directory.AuditQuery{Limit: 100}); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was given up returns %d lines: %v", len(page.Lines), err)
	}

	if err := Lines(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that isn't there: %v", err)
	}

	read := 0
	must(t, Lines(path, func([]byte) bool { read++; return read < 5 }))

	if read != 5 {
		t.Errorf("%d lines were read", read)
	}
}

// The end of a log says which changes have no outcome, which commands had no proof, what members did
// wrong, and what was granted last.
//
// Requirement: TRUST-015, SEC-012
func TestTheTailOfALog(t *testing.T) {
	for _, line := range []string{`{"phase":"applied","action":`, `{"phase":"applied","n":"1"}`, `{"n":1}`, ``} {
		if entry, err := ParseEntry([]byte(line)); err == nil {
			t.Errorf("%q is taken as the line %+v", line, entry)
		}
	}

	path := filepath.Join(t.TempDir(), "audit.jsonl")
	now := time.Now().UTC()

	var text strings.Builder

	for _, line := range []struct {
		ago                          time.Duration
		phase, id, outcome, rid, act string
	}{
		{time.Hour, "intent", "1", "", "R1", "register"},
		{time.Hour, "outcome", "1", "ok", "R1", "register"},
		{time.Hour, "intent", "2", "", "", "register"},
		{time.Hour, "outcome", "2", "ok", "", "remove"}, // of another action
		{2 * time.Hour, "intent", "3", "", "", "register"},
		{2 * time.Hour, "applied", "3", "", "", "register"},            // is no outcome
		{time.Minute - time.Second, "intent", "4", "", "", "register"}, // isn't late yet
		{time.Hour, "outcome", "5", "forbidden", "R2", "register"},
		{time.Hour, "outcome", "6", "ok", "R1", "refresh"},
		{time.Hour, "intent", "6", "ok", "R3", "refresh"},
		{time.Hour, "outcome", "6", "ok", "", "refresh"},
		{time.Hour, "applied", "a", directory.OutcomeUnproven, "", "policy.write"},
		{time.Hour, "applied", "b", directory.OutcomeUnchecked, "", "policy.write"},
		{time.Hour, "applied", "c", directory.OutcomeUnsent, "", "policy.write"},
		{time.Hour, "refused", "d", directory.OutcomeMisconduct, "", "raft"},
	} {
		fmt.Fprintf(&text, `{"time":%q,"phase":%q,"request_id":%q,"outcome":%q,"rid":%q,"action":%q}`+"\n",
			now.Add(-line.ago).Format(time.RFC3339Nano), line.phase, line.id, line.outcome, line.rid, line.act)
	}

	must(t, os.WriteFile(path, []byte(text.String()+"not a line\n"), 0o600))

	tail, err := ReadTail(path, now)
	must(t, err)

	ids := func(entries []Entry) (all string) {
		for _, entry := range entries {
			all += entry.RequestID
		}

		return all
	}

	if tail.Lines != 16 || ids(tail.Open) != "32" || ids(tail.Suspect) != "abc" || ids(tail.Misconduct) != "d" ||
		len(tail.Faults) == 0 {
		t.Errorf("%d lines, open %s, suspect %s, misconduct %s, faults %q", tail.Lines, ids(tail.Open),
			ids(tail.Suspect),
			ids(tail.Misconduct), tail.Faults)
	}

	if len(tail.Granted) != 1 || tail.Granted["R1"].Action != "refresh" {
		t.Errorf("granted are %+v", tail.Granted)
	}

	// Of a larger file the first line after the cut isn't whole, and isn't counted.
	must(t, os.WriteFile(path, []byte(strings.Repeat(strings.Repeat("x", 1<<19)+"\n", 32)+text.String()), 0o600))

	if tail, err := ReadTail(path, now); err != nil || tail.Lines != 31+15 || ids(tail.Open) != "32" ||
		len(tail.Faults) != maxFaults {
		t.Errorf("of a large file: %d lines, open %s, %d faults, %v", tail.Lines, ids(tail.Open), len(tail.Faults), err)
	}

	if _, err := ReadTail(path+"x", now); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
}

// What is removed is told on disk before it goes: if the disk doesn't have that line, nothing is
// removed.
//
// Requirement: SEC-020
func TestWhatIsRemovedIsOnDiskFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.Symlink("/dev/null", path)) // takes lines, and can't be synced
	must(t, os.WriteFile(path+".1", []byte(`{"phase":"intent","n":1}`+"\n"), 0o600))

	old := time.Now().Add(-25 * time.Hour)
	must(t, os.Chtimes(path+".1", old, old))

	a, err := Open(path, Options{Size: 1 << 20, Files: 5, Keep: 24 * time.Hour,
		Logger: slog.New(slog.DiscardHandler)})
	must(t, err)

	if err := a.removeExpired(time.Now()); err == nil {
		t.Error("a disk that can't be synced is no failure")
	}

	if _, err := os.Stat(path + ".1"); err != nil {
		t.Errorf("lines are gone, and nothing on disk says so: %v", err)
	}

	must(t, a.Close())
}

// Who waits for lines is told of a line and of the end. A log that can be written is asked nothing of
// its disk, which may hang.
//
// Requirement: TRUST-015
func TestWhoWaitsForLinesIsTold(t *testing.T) {
	a := openLog(t, filepath.Join(t.TempDir(), "audit.jsonl"), 1<<20, 2)

	waited := a.Grown()
	if must(t, intend(a, directory.AuditEvent{Action: "x"})); !isClosed(waited) {
		t.Error("who waits isn't told of a line")
	}

	grown := a.Grown()
	if isClosed(grown) {
		t.Error("there are no more lines")
	}

	a.mu.Lock()

	answered := make(chan error, 1)
	go func() { answered <- a.Err() }()

	select {
	case err := <-answered:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Error("a log that can be written waits for its disk to say so")
	}

	a.mu.Unlock()
	must(t, a.Close())

	if !isClosed(grown) {
		t.Error("who waits isn't told of the end")
	}

	if err := intend(a, directory.AuditEvent{Action: "x"}); directory.ProblemOf(err) != directory.Unavailable {
		t.Errorf("a change after the end: %v", err)
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// A page whose query selects few lines reads a bounded part of the log, says that there is more, and leaves no
// file open.
//
// Requirement: SEC-020
func TestAPageReadsABoundedPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 64<<20, 3)

	long := strings.Repeat("x", maxText)
	for a.size <= maxPageRead+1<<20 {
		must(t, intend(a, directory.AuditEvent{Action: "register", Target: long, Agent: long, RequestID: long}))
	}

	open := func() (n int) {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no list of open files: ", err)
		}

		for _, file := range files {
			if target, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil && target == path {
				n++
			}
		}

		return n
	}

	before, last := open(), uint64(0)

	for pages, more := 0, true; more; pages++ {
		page, err := a.Read(t.Context(), directory.AuditQuery{After: last, Limit: 10, What: "nothing"})
		must(t, err)

		if more, last = page.More, page.Last; pages == 0 && !more || pages > 1 || len(page.Lines) > 0 {
			t.Fatalf("page %d ends at line %d, more %t, with %d lines", pages, last, more, len(page.Lines))
		}
	}

	if after := open(); after != before {
		t.Errorf("%d files are open after reading, %d before", after, before)
	}
}

// A log in which nothing is a line has a page with a few faults, not one for each.
//
// Requirement: SEC-020
func TestThePageOfABrokenLogHasFewFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 64<<20, 3)
	must(t, os.WriteFile(path, []byte(strings.Repeat("not a line\n", 10*maxFaults)), 0o600))

	page, err := a.Read(t.Context(), directory.AuditQuery{Limit: 100})
	must(t, err)

	if len(page.Faults) != maxFaults {
		t.Errorf("the page has %d faults, want %d", len(page.Faults), maxFaults)
	}
}

// An idle log keeps the time of its first line over a restart: its age decides when a part is removed.
//
// Requirement: TRUST-015
func TestAPartIsAsOldAsItsFirstLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	a := openLog(t, path, 1<<20, 3)
	must(t, intend(a, directory.AuditEvent{Action: "register"}))

	text, err := os.ReadFile(path)
	must(t, errors.Join(err, a.Close()))

	var line struct {
		Time time.Time `json:"time"`
	}
	must(t, json.Unmarshal(text[:strings.IndexByte(string(text), '\n')], &line))

	// The file was written to much later, as by a copy.
	later := time.Now().Add(48 * time.Hour)
	must(t, os.Chtimes(path, later, later))

	if again := openLog(t, path, 1<<20, 3); !again.oldest.Equal(line.Time) {
		t.Errorf("the part is from %s, and its first line from %s", again.oldest, line.Time)
	}
}

// Identities of another domain are one caller, and each of the own domain, or of an issuer, is one. A
// window counts what has no line of its own, by outcome.
//
// Requirement: TRUST-015
func TestWhoIsOneCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 2)
	a.o.Domain = spiffeid.RequireTrustDomainFromString("alpha.test")

	for _, x := range []struct {
		uri, domain string
	}{
		{"spiffe://alpha.test/agent/ada", ""}, {"spiffe://beta.test/agent/ada", "beta.test"},
		{"wimse://beta.test/agent/ada", "beta.test"}, {"wimse://alpha.test/agent/ada", ""},
		{"oauth:https://login.test#ada", ""},
	} {
		id := identity(t, x.uri)
		if got := a.callerOf(id); got.domain != x.domain || got.identity.IsZero() == (x.domain == "") {
			t.Errorf("%s is %+v", x.uri, got)
		}
	}

	known, other := caller{domain: "known"}, caller{domain: "other"}

	var r refreshes

	first := r.of(known)
	for n := range refreshCallers - 1 {
		r.of(caller{domain: fmt.Sprint(n)})
	}

	if r.of(known) != first || r.of(other) != r.of(caller{}) || len(r.callers) != refreshCallers+1 {
		t.Errorf("with %d callers a known one has another count, or a new one has its own", len(r.callers))
	}

	a.refreshes.add(known, 3, true)
	a.refreshes.add(known, 2, false)
	a.refreshes.add(other, 5, false)
	a.tallyRefreshes()
	a.tallyRefreshes()

	var got []string
	for _, line := range readLog(t, path) {
		got = append(got, fmt.Sprint(line.Phase, " ", line.Target, " ", line.Outcome, " ", line.Count))
	}

	slices.Sort(got)

	if want := []string{"counted known ok 3", "counted known refused 2",
		"counted other refused 5"}; !slices.Equal(got, want) {
		t.Errorf("the lines are %q", got)
	}
}

// A node that ended between giving a file its number and beginning the next one says so in the next
// one's first line, and goes on with the chain.
//
// Requirement: SEC-020
func TestARotationThatWasCutShortGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 3)

	for range 2 {
		must(t, intend(a, directory.AuditEvent{Action: "register"}))
	}

	must(t, errors.Join(a.Close(), os.Rename(path, path+".1")))
	must(t, intend(openLog(t, path, 1<<20, 3), directory.AuditEvent{Action: "register"}))

	want := []string{phaseIntent, phaseIntent, phaseRotated, phaseIntent}
	if got := chained(t, trailText(t, path)); !slices.Equal(got, want) {
		t.Errorf("the lines are %q", got)
	}
}

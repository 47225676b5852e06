package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

func identity(t testing.TB, uri string) directory.Identity {
	t.Helper()

	id, err := directory.ParseIdentity(uri)
	must(t, err)

	return id
}

func openLog(t testing.TB, path string, size int64, files int) *Log {
	t.Helper()
	a, err := Open(path, Options{Size: size, Files: files, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, a.Close()) })

	return a
}

// intend writes an intent.
func intend(a *Log, e directory.AuditEvent) error {
	_, err := a.Intend(e)
	return err
}

// readLog returns a file's lines, each of which is whole.
func readLog(t testing.TB, path string) (lines []logLine) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)

	for scan := bufio.NewScanner(bytes.NewReader(b)); scan.Scan(); {
		var line logLine
		if err := json.Unmarshal(scan.Bytes(), &line); err == nil {
			lines = append(lines, line)
		} else {
			t.Errorf("%s: %v: %q", path, err, scan.Text())
		}
	}

	return lines
}

// Many write at a time; no file outgrows its bound, no more are kept than
// configured, and no line is torn.
//
// Requirement: TRUST-015
func TestAuditRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 10_000, 3)

	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 100 {
				e := directory.AuditEvent{RequestID: fmt.Sprint(w, "-", i), Action: "register", Agent: "a"}

				done, err := a.Intend(e)
				if err != nil {
					t.Error(err)
					return
				}

				e.Outcome = "ok"
				done(e)
			}
		})
	}

	writers.Wait()
	files, err := filepath.Glob(path + "*")
	must(t, err)

	if len(files) != 3 {
		t.Errorf("there are %q", files)
	}

	for _, f := range files {
		info, err := os.Stat(f)
		must(t, err)

		if info.Size() > 10_000 || len(readLog(t, f)) == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v", f, info.Size(), info.Mode())
		}
	}
}

// Where the intent can't be written there is no change, and each caller is told why.
//
// Requirement: TRUST-015
func TestAuditFailsClosed(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}

	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.Symlink("/dev/full", path))

	a := openLog(t, path, 1<<20, 2)
	for range 2 {
		err := intend(a, directory.AuditEvent{Action: "register"})
		if directory.ProblemOf(err) != directory.Unavailable || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the intent could not be written: %v", err)
		}
	}
}

// A stranger who is refused a million times has a few lines and a count, and so
// have all strangers together.
//
// Requirement: TRUST-015
func TestAuditSamplesRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		a := openLog(t, path, 10<<20, 2)
		ctx, cancel := context.WithCancel(t.Context())

		var loop sync.WaitGroup
		loop.Go(func() { a.Run(ctx) })
		stranger := identity(t, "spiffe://other.test/stranger")

		const n = 1_000_000
		for range n {
			a.Refused(directory.AuditEvent{Action: "POST /ad/r", Actor: stranger, Outcome: "forbidden"})
		}

		// Many callers of one domain, and many domains.
		for _, callers := range []string{"spiffe://other.test/%d", "spiffe://other-%d.test/a"} {
			synctest.Wait()
			time.Sleep(window + time.Second)

			for i := range 2 * refusalCallers {
				a.Refused(directory.AuditEvent{Action: "POST /ad/r", Actor: identity(t, fmt.Sprintf(callers, i)),
					Outcome: "forbidden"})
				synctest.Wait()
			}
		}

		cancel()
		loop.Wait()

		// Those that wait when the node stops are written, too.
		for range 10 * refusalLines {
			a.Refused(directory.AuditEvent{Action: "POST /ad/r", Actor: stranger, Outcome: "forbidden"})
		}

		a.Run(ctx)

		lines, counted := readLog(t, path), uint64(0)
		for _, line := range lines {
			if line.Phase != "refused" {
				t.Errorf("a refusal is %q", line.Phase)
			}

			counted += max(line.Count, 1)
		}

		want := uint64(n + 4*refusalCallers + 10*refusalLines)
		if len(lines) > 3*refusalLines+5+refusalCallers || counted != want {
			t.Errorf("%d lines tell of %d refusals, not of %d", len(lines), counted, want)
		}
	})
}

// A line that is written by hand is what the codec makes of it, with each member that
// there is.
func TestAuditLines(t *testing.T) {
	ada := identity(t, "spiffe://alpha.test/agent/ada")

	all := logLine{Time: time.Unix(1780315200, 0).UTC(), Phase: "outcome", Bytes: 1, Reason: "size", From: 3,
		Head: directory.HashOf(nil), AuditEvent: directory.AuditEvent{
			RequestID: "r-1", Action: "register", Owner: ada, Actor: ada, Authn: "wpt", Agent: "a",
			RID:  directory.NewRID(1, [10]byte{2}),
			RIDs: []directory.RID{directory.NewRID(3, [10]byte{})}, Target: "beta.test", Revision: "1.2",
			Outcome:  "ok",
			Policies: []string{"p1"},
			Lifetime: 604800, Credential: 3600, Count: 5, Routine: true,
			Position: directory.Position{Epoch: 1, Revision: 2}, Proof: "a.b.c", BroughtBy: ada,
			By: directory.ByNode, Entitlement: "rotation", AttestedBy: ada, Payload: `{"keys":[]}`,
			ProofHash: directory.Hash{1}, PayloadHash: directory.Hash{2},
			Change:     directory.Position{Epoch: 1, Revision: 3},
			Difference: DifferenceOf([]byte("a\n"), []byte("b\n")),
		}}
	zero, one := uint64(0), uint64(1)
	all.Difference.WasVersion, all.Difference.Version = &zero, &one

	for i, v := 0, reflect.ValueOf(all.AuditEvent); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("this test says nothing of %s", v.Type().Field(i).Name)
		}
	}

	for _, line := range []logLine{
		all,
		{Time: time.Unix(1780315200, 120_000_000).UTC(), Phase: "refused",
			AuditEvent: directory.AuditEvent{Action: "more", Count: 7}},
		{Time: time.Unix(1780315200, 0).UTC(), Phase: "outcome", AuditEvent: directory.AuditEvent{
			RequestID: "r-1", Action: "invoke", Owner: ada, Actor: ada, Authn: "wpt", Agent: "a \"b\" ü",
			RID:    directory.NewRID(1, [10]byte{2}),
			RIDs:   []directory.RID{directory.NewRID(3, [10]byte{}), directory.NewRID(4, [10]byte{})},
			Target: "beta.test", Revision: "1.2", Outcome: "ok", Policies: []string{"p1", "p2"},
		}},
		{Phase: "intent", AuditEvent: directory.AuditEvent{Action: "x", RIDs: []directory.RID{}, Policies: []string{}}},
	} {
		want, err := json.Marshal(line)
		must(t, err)

		if got := append(line.append(nil), '}'); string(got) != string(want) {
			t.Errorf("a line is\n%s, want\n%s", got, want)
		}
	}

	bad := logLine{Phase: "intent", AuditEvent: directory.AuditEvent{Action: "x", Target: "\xff"}}
	if got := string(bad.append(nil)); !strings.Contains(got, "\ufffd") {
		t.Errorf("bytes that are no text are in the trail: %q", got)
	}
}

// Refreshes and refusals without lines of their own are counted window by window while the node runs, so that
// a node that is killed leaves all but the last window's.
//
// Requirement: TRUST-015
func TestCountsAreWrittenWhileTheNodeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		a := openLog(t, path, 1<<20, 2)
		ctx, cancel := context.WithCancel(t.Context())

		var loop sync.WaitGroup
		loop.Go(func() { a.Run(ctx) })

		for n := range uint64(2) {
			a.refreshes.add(caller{domain: "beta.test"}, n+1, true)
			time.Sleep(window + time.Second)
			synctest.Wait()

			if lines := readLog(t, path); uint64(len(lines)) != n+1 || lines[n].Phase != phaseCounted ||
				lines[n].Count != n+1 {
				t.Errorf("after window %d the lines are %+v", n+1, lines)
			}
		}

		const refused = 10 * refusalLines
		for range refused {
			a.Refused(directory.AuditEvent{Action: "POST /ad/r", Actor: identity(t, "spiffe://other.test/stranger"),
				Outcome: "forbidden"})
			synctest.Wait()
		}

		time.Sleep(window + time.Second)
		synctest.Wait()

		counted := uint64(0)
		for _, line := range readLog(t, path)[2:] {
			counted += max(line.Count, 1)
		}

		if counted != refused {
			t.Errorf("the lines tell of %d refusals, not of %d", counted, refused)
		}

		// Lines that a window has used up are there again in the next one.
		for i := range 2 * refusalTotal {
			a.Refused(directory.AuditEvent{Action: "POST /ad/r", Outcome: "forbidden",
				Actor: identity(t, fmt.Sprintf("spiffe://other-%d.test/a", i/refusalLines))})
			synctest.Wait()
		}

		time.Sleep(window + time.Second)
		synctest.Wait()

		late := identity(t, "spiffe://late.test/a")
		a.Refused(directory.AuditEvent{Action: "POST /ad/r", Actor: late, Outcome: "forbidden"})
		synctest.Wait()

		if lines := readLog(t, path); lines[len(lines)-1].Actor != late {
			t.Errorf("in the next window the last line is %+v", lines[len(lines)-1])
		}

		cancel()
		loop.Wait()
	})
}

// A trail without an age keeps its lines, however old they are.
//
// Requirement: AI-018
func TestAuditWithoutAnAgeKeepsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")

		a, err := Open(path, Options{Size: 1000, Files: 9, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)

		ctx, cancel := context.WithCancel(t.Context())

		var loop sync.WaitGroup
		loop.Go(func() { a.Run(ctx) })

		const lines = 25 // of several files
		for range lines {
			must(t, intend(a, directory.AuditEvent{Action: "register"}))
		}

		time.Sleep(40 * 24 * time.Hour)
		synctest.Wait()

		if n := strings.Count(trailText(t, path), `"phase":"intent"`); n != lines {
			t.Errorf("after 40 days %d of %d lines are kept", n, lines)
		}

		cancel()
		loop.Wait()
		must(t, a.Close())
	})
}

// No file of a trail is lost: not where a part can't be given its next number, nor the file that is written, however
// old it is, nor for a line that is larger than a file. A log that is closed begins none.
//
// Requirement: TRUST-015, AI-018
func TestNoFileOfATrailIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-48*time.Hour)))

	a, err := Open(path, Options{Size: 1, Files: 2, Keep: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)

	files := func() string {
		found, err := os.ReadDir(filepath.Dir(path))
		must(t, err)

		intents := ""

		for _, info := range found {
			file := filepath.Join(filepath.Dir(path), info.Name())

			intents += " " + strings.TrimPrefix(file, path) + ":"

			if info.IsDir() {
				continue
			}

			for _, line := range readLog(t, file) {
				if line.Phase == phaseIntent {
					intents += line.Action
				}
			}
		}

		return intents
	}

	write := func(action, want string, fails bool) {
		t.Helper()

		if err := intend(a, directory.AuditEvent{Action: action}); (err != nil) != fails || files() != want {
			t.Errorf("%s: %v; there are%s, want%s", action, err, files(), want)
		}
	}

	a.expire()
	write("a", " :a", false)
	write("b", " :b .1:a", false)

	blocked := filepath.Join(path+".2", "file")
	must(t, os.MkdirAll(blocked, 0o700))
	write("c", " :b .1:a .2:", true)
	must(t, os.RemoveAll(path+".2"))
	write("d", " :d .1:b", false)

	must(t, a.Close())
	write("e", " :d .1:b", true)

	a.o.Keep = time.Nanosecond
	a.expire()

	if got := files(); got != " :d .1:b" {
		t.Errorf("after the log was closed there are%s", got)
	}
}

// Lines go by their age, at start and while the node runs, however few there are: none
// is kept for longer than one file's part beyond what was asked for.
//
// Requirement: AI-018
func TestAuditKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		old := time.Now().Add(-25 * time.Hour)
		must(t, os.WriteFile(path+".7", []byte("{}\n"), 0o600)) // of a time when more were kept
		must(t, os.Chtimes(path+".7", old, old))
		line := logLine{Time: old.UTC(), Phase: "intent",
			AuditEvent: directory.AuditEvent{RequestID: "before", Action: "x"}}
		must(t, os.WriteFile(path, append(line.append(nil), "}\n"...), 0o600))
		must(t, os.Chtimes(path, old, old))
		a, err := Open(path, Options{Size: 1 << 20, Files: 5, Keep: 24 * time.Hour,
			Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())

		var loop sync.WaitGroup
		loop.Go(func() { a.Run(ctx) })

		kept := func() (ids []string) {
			t.Helper()
			synctest.Wait()
			files, err := filepath.Glob(path + "*")
			must(t, err)

			if len(files) > 5 {
				t.Errorf("there are %q", files)
			}

			for _, f := range files {
				for _, l := range readLog(t, f) {
					if l.Phase == phaseIntent {
						ids = append(ids, l.RequestID)
					}
				}
			}

			slices.Sort(ids)

			return ids
		}
		if got := kept(); len(got) > 0 {
			t.Errorf("lines of 25 hours ago are still there: %q", got)
		}

		for hour := range 72 {
			must(t, intend(a, directory.AuditEvent{RequestID: fmt.Sprintf("%02d", hour), Action: "x"}))
			time.Sleep(time.Hour)

			if got := kept(); got[0] < fmt.Sprintf("%02d", hour-30) ||
				hour >= 24 && got[0] > fmt.Sprintf("%02d", hour-17) || got[len(got)-1] != fmt.Sprintf("%02d", hour) {
				t.Errorf("after %d hours there are %q to %q", hour+1, got[0], got[len(got)-1])
			}
		}

		time.Sleep(31 * time.Hour)

		if got := kept(); len(got) > 0 {
			t.Errorf("31 quiet hours later there are still %q", got)
		}

		if faults := verify(trailText(t, path)); faults != nil {
			t.Errorf("what the node has removed by age counts as faults: %q", faults)
		}

		from := uint64(0)

		for text := range strings.Lines(trailText(t, path)) {
			var line logLine
			must(t, json.Unmarshal([]byte(text), &line))

			if line.Phase == phaseDropped && (line.Count == 0 || from > 0 && from+line.Count != line.From) {
				t.Errorf("%d lines were removed between line %d and line %d", line.Count, from, line.From)
			}

			if line.Time.Before(old) {
				t.Errorf("line %s is of %s", line.Phase, line.Time)
			}

			from = cmp.Or(line.From, from)
		}

		cancel()
		loop.Wait()
		must(t, a.Close())
	})
}

var must = directorytest.Must

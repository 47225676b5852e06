package audit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// A process that has no descriptors left can't begin the next file. However often that
// is tried, no older part is lost for it, and the trail goes on once there are some.
//
// Requirement: TRUST-015
func TestAuditKeepsItsPartsWhereNoneCanBeBegun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 700, 4)

	write := func(agent string) error {
		return intend(a, directory.AuditEvent{Action: "register", Agent: agent + strings.Repeat("x", 100)})
	}
	for range 6 { // two in a file
		must(t, write("before"))
	}

	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}))

	for range 5 {
		if err := write("meanwhile"); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("no file could be begun: %v", err)
		}
	}

	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	must(t, write("after"))

	lines := 0
	for _, part := range []string{"", ".1", ".2", ".3"} {
		for _, line := range readLog(t, path+part) {
			if line.Phase != phaseRotated {
				lines++
			}
		}
	}

	if lines != 8 { // one says that there is a gap
		t.Errorf("%d lines are left of 8", lines)
	}
}

// A disk that is full takes a part of a line, and Err says that no more can be written.
// What is there stays whole lines; once there is room Err finds that out by itself, and
// the trail has the outcome and says how many lines are missing.
//
// Requirement: TRUST-015
func TestAuditOnAFullDiskStaysWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 2)
	e := directory.AuditEvent{RequestID: "r-1", Action: "register"}
	must(t, intend(a, e))
	must(t, a.Err())

	// The caller has no lines left for refreshes, which are counted.
	refresh := directory.AuditEvent{Action: "refresh", Actor: identity(t, "spiffe://alpha.test/ada"), Routine: true}
	a.refreshes.take(a.callerOf(refresh.Actor), refreshBytes+1)
	info, err := os.Stat(path)
	must(t, err)

	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 10, Max: was.Max}))
	intended := intend(a, e)
	a.done(e)
	failing, refreshed := a.Err(), intend(a, refresh)
	full, err := os.Stat(path)
	must(t, err)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))

	if full.Size() != info.Size() {
		t.Errorf("%d bytes of a line are left on the full disk", full.Size()-info.Size())
	}

	if directory.ProblemOf(intended) != directory.Unavailable || failing == nil ||
		directory.ProblemOf(refreshed) != directory.Unavailable {
		t.Errorf("the disk is full: %v, %v, %v", intended, failing, refreshed)
	}

	must(t, a.Err())
	must(t, intend(a, e))
	b, err := os.ReadFile(path)
	must(t, err)

	var phases []string
	for text := range strings.Lines(string(b)) {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%v: %q", err, text)
		}

		phases = append(phases, fmt.Sprint(line.Phase, line.Count))
	}

	if want := []string{"intent0", "outcome0", "missing1", "intent0"}; !slices.Equal(phases, want) {
		t.Errorf("the lines are %q, want %q", phases, want)
	}
}

// A change that was made has its line, however full the disk is: the log fails while a small line has
// room and that one hasn't, and writes it as soon as there is room, with the time of the change.
//
// Requirement: TRUST-015
func TestAuditFailsWhileAnOutcomeHasNoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 2)
	must(t, intend(a, directory.AuditEvent{RequestID: "r-1", Action: "peer.set"}))

	info, err := os.Stat(path)
	must(t, err)

	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 400, Max: was.Max}))
	a.done(directory.AuditEvent{RequestID: "r-1", Action: "peer.set", Outcome: strings.Repeat("x", 190),
		Target: strings.Repeat("y", 190)})

	second, third := directory.Position{Epoch: 1, Revision: 2}, directory.Position{Epoch: 1, Revision: 3}
	applied := a.Applied(directory.AuditEvent{Action: "peer.write", Position: second})
	brought := a.Brought(directory.AuditEvent{Action: "remove", Change: third})
	failing, still := a.Err(), a.Err()
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))

	if failing == nil || still == nil {
		t.Errorf("an outcome had no room, and the log says %v, then %v", failing, still)
	}

	must(t, applied)
	must(t, brought)
	must(t, a.Err())

	lines := readLog(t, path)
	if len(lines) != 4 || lines[1].RequestID != "r-1" || lines[2].Position.Revision != 2 ||
		lines[3].Change.Revision != 3 || lines[3].Time.Before(lines[1].Time) {
		t.Errorf("once there is room the lines are %+v", lines)
	}
}

// A log may be a pipe, which has no lines of before to continue.
func TestALogMayBeAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, syscall.Mkfifo(path, 0o600))

	a := openLog(t, path, 1<<20, 2)
	must(t, intend(a, directory.AuditEvent{Action: "register"}))

	pipe, err := os.Open(path)
	must(t, err)

	line, err := bufio.NewReader(pipe).ReadString('\n')
	must(t, errors.Join(err, pipe.Close()))

	if at, ok := parseLink([]byte(line)); !ok || at.Number != 1 {
		t.Errorf("the line is %q", line)
	}
}

// A log has one file open, however many it has begun, read and continued.
func TestFilesAreClosed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")

	for range 2 {
		a := openLog(t, path, 1000, 3)
		for range 30 {
			must(t, intend(a, directory.AuditEvent{Action: "register"}))
		}

		_, err := ReadTail(path, time.Now())
		must(t, err)

		open := 0

		for fd := range 1000 {
			if name, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); err == nil && strings.HasPrefix(name, dir) {
				open++
			}
		}

		if open != 1 {
			t.Errorf("%d files are open", open)
		}

		must(t, a.Close())
		must(t, os.Truncate(path, 0)) // the next one continues the file before it
	}
}

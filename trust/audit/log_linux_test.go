package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

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
// the trail says how many lines are missing.
//
// Requirement: TRUST-015
func TestAuditOnAFullDiskStaysWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openLog(t, path, 1<<20, 2)
	e := directory.AuditEvent{RequestID: "r-1", Action: "register"}
	must(t, intend(a, e))
	must(t, a.Err())
	info, err := os.Stat(path)
	must(t, err)

	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 10, Max: was.Max}))
	intended := intend(a, e)
	a.done(e)
	failing := a.Err()
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))

	if directory.ProblemOf(intended) != directory.Unavailable || failing == nil {
		t.Errorf("the disk is full: %v, %v", intended, failing)
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

	if want := []string{"intent0", "missing2", "intent0"}; !slices.Equal(phases, want) {
		t.Errorf("the lines are %q, want %q", phases, want)
	}
}

package trust

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// A process that has no descriptors left can't begin the next file. However often that
// is tried, no older part is lost for it, and the trail goes on once there are some.
//
// Requirement: TRUST-015
func TestAuditKeepsItsPartsWhereNoneCanBeBegun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := openAudit(t, path, 500, 4)
	intend := func(agent string) error {
		return a.Intend(directory.Audited{Action: "register", Agent: agent + strings.Repeat("x", 100)})
	}
	for range 6 { // two in a file
		must(t, intend("before"))
	}
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}))
	for range 5 {
		if err := intend("meanwhile"); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("no file could be begun: %v", err)
		}
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	must(t, intend("after"))
	lines := 0
	for _, part := range []string{"", ".1", ".2", ".3"} {
		lines += len(readTrail(t, path+part))
	}
	if lines != 7 {
		t.Errorf("%d lines are left of 7", lines)
	}
}

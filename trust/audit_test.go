package trust

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

func openAudit(t testing.TB, path string, size int64, files int) *Audit {
	t.Helper()
	a, err := OpenAudit(path, AuditOptions{Size: size, Files: files, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, a.Close()) })
	return a
}

// readTrail returns a file's lines, each of which is whole.
func readTrail(t testing.TB, path string) (lines []auditLine) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	for scan := bufio.NewScanner(bytes.NewReader(b)); scan.Scan(); {
		var line auditLine
		if err := json.Unmarshal(scan.Bytes(), &line); err == nil {
			lines = append(lines, line)
		} else if len(scan.Bytes()) > 0 && scan.Text() != `{"time":"20` {
			t.Errorf("%s: %v: %q", path, err, scan.Text())
		}
	}
	return lines
}

// Many write at a time; no file outgrows its bound, no more are kept than
// configured, and no line is torn. What a killed process left behind doesn't spoil
// the next line.
//
// Requirement: TRUST-015
func TestAuditRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.WriteFile(path, []byte(`{"time":"20`), 0o600))
	a := openAudit(t, path, 10_000, 3)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 100 {
				e := directory.Audited{RequestID: fmt.Sprint(w, "-", i), Action: "register", Agent: "a"}
				if err := a.Intend(e); err != nil {
					t.Error(err)
				}
				e.Outcome = "ok"
				a.Done(e)
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
		if info.Size() > 10_000 || len(readTrail(t, f)) == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v", f, info.Size(), info.Mode())
		}
	}
}

// Where the intent can't be written there is no change, and once there is room
// there is one again.
//
// Requirement: TRUST-015
func TestAuditFailsClosed(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.Symlink("/dev/full", path))
	a := openAudit(t, path, 1<<20, 2)
	if err := a.Intend(directory.Audited{Action: "register"}); directory.ProblemOf(err) != directory.Unavailable {
		t.Errorf("the intent could not be written: %v", err)
	}
}

// A stranger who is refused a million times has a few lines and a count, and so
// have all strangers together.
//
// Requirement: TRUST-015
func TestAuditSamplesRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		a := openAudit(t, path, 10<<20, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { a.Run(ctx) })
		stranger := identity(t, "spiffe://other.test/stranger")
		const n = 1_000_000
		for range n {
			a.Refused(directory.Audited{Action: "POST /ad/r", Actor: stranger, Outcome: "forbidden"})
		}
		synctest.Wait()
		time.Sleep(refusalWindow + time.Second)
		for i := range 2 * refusalIdentities {
			a.Refused(directory.Audited{Action: "POST /ad/r", Actor: identity(t, fmt.Sprint("spiffe://other.test/", i)), Outcome: "forbidden"})
			synctest.Wait()
		}
		cancel()
		loop.Wait()
		lines, counted := readTrail(t, path), uint64(0)
		for _, line := range lines {
			if line.Phase != "refused" {
				t.Errorf("a refusal is %q", line.Phase)
			}
			counted += max(line.Count, 1)
		}
		if len(lines) > 2*refusalLines+refusalIdentities || counted != n+2*refusalIdentities {
			t.Errorf("%d lines tell of %d refusals, not of %d", len(lines), counted, n+2*refusalIdentities)
		}
	})
}

// What a change pays for its two lines.
func BenchmarkAudit(b *testing.B) {
	a := openAudit(b, filepath.Join(b.TempDir(), "audit.jsonl"), 64<<20, 2)
	e := directory.Audited{RequestID: "5b3f6a0e-1f5e-4d5e-8f6e-5a1a0e5b3f6a", Action: "register", Agent: "an-agent.with.a.name",
		Owner: identity(b, "spiffe://alpha.test/agent/ada"), Actor: identity(b, "spiffe://alpha.test/agent/ada"), Authn: "x509-svid", Policies: []string{"own-registers"}}
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if err := a.Intend(e); err != nil {
				b.Fatal(err)
			}
			a.Done(e)
		}
	})
}

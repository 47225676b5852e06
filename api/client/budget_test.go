package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// budget are the modules, beside the standard library, whose packages the client
// may link.
var budget = []string{
	"github.com/roster-mesh/roster/api/client",
	"github.com/roster-mesh/roster/api/wire",
	"github.com/spiffe/go-spiffe/v2/spiffeid",
	"github.com/go-json-experiment/json",
	"github.com/roster-mesh/roster/directory/egress", // which links nothing
	"github.com/roster-mesh/roster/directory/sse",    // nor does this
	"github.com/roster-mesh/roster/directory/operatorproof",
	"github.com/roster-mesh/roster/limit/certs", // which links nothing
}

// A program that imports the client links a JSON library and spiffeid, and nothing
// of the server.
//
// Requirement: FORM-008
func TestDependencyBudget(t *testing.T) {
	const notStandard = "{{if not .Standard}}{{.ImportPath}}{{end}}"
	for _, dep := range strings.Fields(run(t, "go", "list", "-deps", "-f", notStandard, ".")) {
		within := func(allowed string) bool { return dep == allowed || strings.HasPrefix(dep, allowed+"/") }
		if !slices.ContainsFunc(budget, within) {
			t.Errorf("the client depends on %s", dep)
		}
	}

	// Both ends of the wire can use its types: they need less still.
	for _, dep := range strings.Fields(run(t, "go", "list", "-deps", "-f", notStandard, "../wire")) {
		if dep != budget[1] && dep != budget[2] {
			t.Errorf("the wire types depend on %s", dep)
		}
	}
}

// maxRatio bounds the size of a small program that looks agents up, in relation to
// one with net/http and spiffeid alone.
const maxRatio = 1.2

// Requirement: FORM-008
func TestSizeOfASmallProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}

	small := sizeOf(t, "./testdata/baseline")
	ratio := sizeOf(t, "./testdata/lookup") / small
	t.Logf("%.3f times the size of the same with net/http and spiffeid alone, which is %.1f MB", ratio, small/1e6)

	if ratio > maxRatio {
		t.Errorf("a program with the client is %.3f times as large as one without, more than %.1f", ratio, maxRatio)
	}
}

// sizeOf builds a program as releases are built, and returns its size in bytes.
func sizeOf(t *testing.T, program string) float64 {
	t.Helper()
	t.Setenv("CGO_ENABLED", "0")
	file := filepath.Join(t.TempDir(), "program")
	run(t, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, program)

	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}

	return float64(info.Size())
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()

	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}

	return string(out)
}

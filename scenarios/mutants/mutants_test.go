package mutants

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// module is the module's folder, as this package's tests see it.
const module = "../.."

// Each planted bug still applies to the source, and the test that must catch it exists.
func TestEveryMutantApplies(t *testing.T) {
	for _, mutant := range All {
		t.Run(mutant.Name, func(t *testing.T) {
			source, err := mutant.apply(module)
			if err != nil {
				t.Fatal(err)
			}

			if original, err := os.ReadFile(filepath.Join(module, mutant.File)); err != nil ||
				bytes.Equal(original, source) {
				t.Errorf("the bug changes nothing: %v", err)
			}

			if !hasTest(t, mutant.Package, mutant.Test) {
				t.Errorf("%s has no test %s", mutant.Package, mutant.Test)
			}
		})
	}
}

// hasTest reports whether a package has a test function.
func hasTest(t *testing.T, of, name string) bool {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(module, of, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(of, files, err)
	}

	declared := regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`)

	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if declared.Match(source) {
			return true
		}
	}

	return false
}

// Each planted bug is caught: the test fails on the source with the bug.
func TestEveryMutantIsCaught(t *testing.T) {
	if os.Getenv("MUTANTS") == "" {
		t.Skip("takes minutes; set MUTANTS=1")
	}

	for _, mutant := range All {
		t.Run(mutant.Name, func(t *testing.T) {
			out, err := mutant.test(t)
			if err == nil {
				t.Fatalf("%s passes", mutant.Test)
			}

			// A source that doesn't build shows nothing.
			if !bytes.Contains(out, []byte("--- FAIL: "+mutant.Test)) && !bytes.Contains(out, []byte("panic:")) {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// test runs the mutant's test on the source with the bug.
func (m *Mutant) test(t *testing.T) ([]byte, error) {
	t.Helper()

	overlay, err := Overlay(module, t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}

	test := exec.CommandContext(t.Context(), "go", "test", "-count", "1", "-run", "^"+m.Test+"$", "./"+m.Package)
	test.Dir = module
	// Tests that build the program build it with the bug too.
	test.Env = append(os.Environ(), fmt.Sprintf("GOFLAGS=%s -overlay=%s", os.Getenv("GOFLAGS"), overlay), "MUTANTS=")

	return test.CombinedOutput()
}

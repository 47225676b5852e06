package deploy

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The same revision gives the same bytes in another directory with an empty build cache. The
// release is verified by the program in it, and it lists components and licences.
//
// Requirement: OPS-036
func TestAReleaseIsReproducible(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)

	der, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)

	key := filepath.Join(t.TempDir(), "release.key")
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))

	root, err := filepath.Abs("../..")
	must(t, err)

	first := makeRelease(t, root, key)
	second := makeRelease(t, root, key, "GOCACHE="+t.TempDir())

	for _, name := range []string{
		"roster-linux-amd64", "roster.cdx.json", "LICENSES.txt", "SHA256SUMS", "SHA256SUMS.sig",
	} {
		a, err := os.ReadFile(filepath.Join(first, name))
		must(t, err)

		b, err := os.ReadFile(filepath.Join(second, name))
		must(t, err)

		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", name)
		}
	}

	program := filepath.Join(first, "roster-linux-amd64")

	text, err := exec.Command(program, "verify-release", first, "--key", filepath.Join(first, "release.pub")).
		CombinedOutput()
	if err != nil {
		t.Errorf("verify-release: %v: %s", err, text)
	}

	var version struct{ Revision string }

	text, err = exec.Command(program, "version", "-o", "json").Output()
	must(t, err)
	must(t, json.Unmarshal(text, &version))

	revision, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").Output()
	must(t, err)

	if version.Revision != string(bytes.TrimSpace(revision)) {
		t.Errorf("the program says revision %q, not %s", version.Revision, revision)
	}

	var sbom struct{ Components []struct{ Name string } }

	text, err = os.ReadFile(filepath.Join(first, "roster.cdx.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &sbom))

	if len(sbom.Components) < 20 {
		t.Errorf("the list of components has %d", len(sbom.Components))
	}
}

// makeRelease builds a release of the last commit from a clone of its own and returns its
// directory.
func makeRelease(t *testing.T, root, key string, env ...string) string {
	t.Helper()

	clone, out := filepath.Join(t.TempDir(), "clone"), filepath.Join(t.TempDir(), "dist")

	if text, err := exec.Command("git", "clone", "-q", root, clone).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, text)
	}

	build := exec.Command("go", "run", "./deploy/release", "-key", key, "-out", out, "-platforms", "linux/amd64")
	build.Dir = clone
	build.Env = append(os.Environ(), env...)

	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}

	return out
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

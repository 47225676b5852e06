package release

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A fixture is a signed release in a directory.
type fixture struct {
	dir, key string
	private  ed25519.PrivateKey
}

func newFixture(t *testing.T) fixture {
	t.Helper()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)

	f := fixture{t.TempDir(), filepath.Join(t.TempDir(), "release.pub"), private}
	f.write(t, "roster-linux-amd64", "program")
	f.write(t, "LICENSES.txt", "licences")
	f.write(t, VersionFile, "v1.2.3 0123abc\n")
	f.sign(t, sumOf("LICENSES.txt", "licences")+sumOf(VersionFile, "v1.2.3 0123abc\n")+
		sumOf("roster-linux-amd64", "program"))
	writeKey(t, f.key, public)

	return f
}

func (f fixture) write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600))
}

func (f fixture) sign(t *testing.T, sums string) {
	t.Helper()
	f.write(t, SumsFile, sums)
	f.write(t, SignatureFile, string(ed25519.Sign(f.private, []byte(sums))))
}

func sumOf(name, text string) string {
	return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name)
}

func writeKey(t *testing.T, path string, public any) {
	t.Helper()

	der, err := x509.MarshalPKIXPublicKey(public)
	must(t, err)
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
}

// A release is verified as a whole or by file; openssl and sha256sum agree with the result.
//
// Requirement: OPS-036
func TestARelease(t *testing.T) {
	f := newFixture(t)

	key, err := ReadKey(f.key)
	must(t, err)

	for path, want := range map[string]int{f.dir: 3, filepath.Join(f.dir, "LICENSES.txt"): 1} {
		is, err := verify(key, path)
		if err != nil || len(is.Files) != want || is.Version != "v1.2.3 0123abc" {
			t.Errorf("%s: %v, %v; want %d files", path, is, err, want)
		}
	}

	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not here to compare with")
	}

	check := exec.Command("openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", f.key, "-in", SumsFile,
		"-sigfile", SignatureFile)
	check.Dir = f.dir

	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("openssl: %v: %s", err, text)
	}

	check = exec.Command("sha256sum", "--check", "--strict", SumsFile)
	check.Dir = f.dir

	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v: %s", err, text)
	}
}

// Nothing but what the key has signed is verified: not a changed or missing file, a file that
// is not listed, a changed list, a list that names other directories, or another's signature.
//
// Requirement: OPS-036
func TestAReleaseThatWasChanged(t *testing.T) {
	other, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)

	for name, c := range map[string]struct {
		change func(f fixture)
		path   string
		want   error
	}{
		"program":  {func(f fixture) { f.write(t, "roster-linux-amd64", "Program") }, "", ErrMismatch},
		"missing":  {func(f fixture) { must(t, os.Remove(filepath.Join(f.dir, "LICENSES.txt"))) }, "", fs.ErrNotExist},
		"version":  {func(f fixture) { f.write(t, VersionFile, "v9.9.9") }, "roster-linux-amd64", ErrMismatch},
		"unlisted": {func(f fixture) { f.write(t, "extra", "x") }, "extra", ErrUnlisted},
		"list":     {func(f fixture) { f.write(t, SumsFile, sumOf("roster-linux-amd64", "program")) }, "", ErrSignature},
		"no list":  {func(f fixture) { must(t, os.Remove(filepath.Join(f.dir, SumsFile))) }, "", fs.ErrNotExist},
		"no signature": {
			func(f fixture) { must(t, os.Remove(filepath.Join(f.dir, SignatureFile))) }, "", fs.ErrNotExist,
		},
		"cut signature": {func(f fixture) { f.write(t, SignatureFile, strings.Repeat("x", 63)) }, "", ErrSignature},
		"other key":     {func(f fixture) { writeKey(t, f.key, other) }, "", ErrSignature},
		"path":          {func(f fixture) { f.sign(t, sumOf("../x", "x")) }, "", ErrSums},
		"root":          {func(f fixture) { f.sign(t, sumOf("/etc/passwd", "x")) }, "", ErrSums},
		"twice":         {func(f fixture) { f.sign(t, sumOf("x", "x")+sumOf("x", "y")) }, "", ErrSums},
		"empty":         {func(f fixture) { f.sign(t, "") }, "", ErrSums},
		"short hash":    {func(f fixture) { f.sign(t, "abcd  x\n") }, "", ErrSums},
		"long line":     {func(f fixture) { f.sign(t, strings.Repeat("x", maxSums)) }, "", ErrSums},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.change(f)

			key, err := ReadKey(f.key)
			must(t, err)

			is, err := verify(key, filepath.Join(f.dir, c.path))
			if !errors.Is(err, c.want) || is.Files != nil {
				t.Errorf("%v, %v; want %v", is, err, c.want)
			}
		})
	}
}

// A file that is no public key of Ed25519 is refused.
//
// Requirement: OPS-036
func TestAKeyThatSignsNoRelease(t *testing.T) {
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	path := filepath.Join(t.TempDir(), "key")
	writeKey(t, path, curve.Public())

	if _, err := ReadKey(path); err == nil {
		t.Error("a key of P-256 is accepted")
	}

	for name, text := range map[string][]byte{
		"text": []byte("hello"), "large": bytes.Repeat([]byte("x"), maxKey+1),
		"not a key": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
		"private":   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
	} {
		must(t, os.WriteFile(path, text, 0o600))

		if _, err := ReadKey(path); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

var must = directorytest.Must

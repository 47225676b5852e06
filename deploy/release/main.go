// The release command builds what a release of Roster consists of: the program for each
// platform, the list of its components (CycloneDX), their licences, the hashes of all files
// and a signature over the hashes. The same revision and the same Go give the same bytes.
//
//	go run ./deploy/release -key release.key -out dist
//
// The key is one of Ed25519 in PEM (PKCS #8), as "openssl genpkey -algorithm ed25519" writes
// it. "roster verify-release" and openssl verify the result.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/cmd/roster/release"
)

// sbomTool lists the components of a program.
const sbomTool = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

func main() {
	keyFile := flag.String("key", "", "`FILE` with the private key that signs (PEM, PKCS #8, Ed25519)")
	out := flag.String("out", "dist", "`DIRECTORY` of the release; it must be empty or absent")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64",
		"`LIST` of GOOS/GOARCH, by commas")
	flag.Parse()

	if err := build(*keyFile, *out, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// build makes a release in a directory.
func build(keyFile, out string, platforms []string) error {
	key, err := readKey(keyFile)
	if err != nil {
		return err
	}

	if err := checkTree(); err != nil {
		return err
	}

	if err := makeEmpty(out); err != nil {
		return err
	}

	for _, platform := range platforms {
		if err := buildProgram(out, platform); err != nil {
			return err
		}
	}

	if err := errors.Join(writeVersion(out), writeSBOM(out), writeLicences(out, platforms)); err != nil {
		return err
	}

	return sign(out, key)
}

// readKey reads the private key that signs.
func readKey(path string) (ed25519.PrivateKey, error) {
	if path == "" {
		return nil, errors.New("-key is required: releases are signed")
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s holds no private key in PEM (PKCS #8)", path)
	}

	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key that is not of Ed25519", path)
	}

	return key, nil
}

// checkTree refuses a tree that differs from its revision: it could not be built again.
func checkTree() error {
	changes, err := output("git", "status", "--porcelain")
	if err != nil {
		return err
	}

	if len(changes) > 0 {
		return fmt.Errorf("the tree differs from its revision:\n%s", changes)
	}

	return nil
}

// makeEmpty makes a directory, which may exist if it is empty.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty", dir)
	}

	return err
}

// buildProgram builds the program for one platform. Paths and the identifier of the build are
// left out, so that the place of the build doesn't change it.
func buildProgram(out, platform string) error {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("platform %q is not GOOS/GOARCH", platform)
	}

	name := filepath.Join(out, "roster-"+system+"-"+architecture)
	fmt.Fprintln(os.Stderr, "building", name)

	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -buildid=", "-o", name,
		"./cmd/roster")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+system, "GOARCH="+architecture)
	cmd.Stderr = os.Stderr

	return cmd.Run()
}

// writeVersion writes the tag of the revision, or "untagged", and the revision.
func writeVersion(out string) error {
	revision, err := output("git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}

	tags, err := output("git", "tag", "--points-at", "HEAD", "--sort=-version:refname")
	if err != nil {
		return err
	}

	version, _, _ := strings.Cut(string(tags), "\n")
	if version == "" {
		version = "untagged"
	}

	return os.WriteFile(filepath.Join(out, release.VersionFile), []byte(version+" "+string(revision)), 0o644)
}

// writeSBOM writes the list of the components, without the time and the random serial number
// that would differ with each build.
func writeSBOM(out string) error {
	fmt.Fprintln(os.Stderr, "listing the components")

	cmd := exec.Command("go", "run", sbomTool, "app", "-json", "-noserial", "-notimestamp", "-licenses", "-std",
		"-main", "cmd/roster", "-output", filepath.Join(out, "roster.cdx.json"), ".")
	// The list names the environment, and the hash of the tool.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	cmd.Stderr = os.Stderr

	return cmd.Run()
}

// A module is one that is linked into the program.
type module struct{ Path, Version, Dir string }

// writeLicences writes the licences of all modules that are linked into any of the programs.
func writeLicences(out string, platforms []string) error {
	modules := map[string]module{}

	for _, platform := range platforms {
		system, architecture, _ := strings.Cut(platform, "/")
		cmd := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/roster")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)

		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("go list: %w", err)
		}

		decoder := json.NewDecoder(bytes.NewReader(text))
		for {
			var pkg struct{ Module *module }
			if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}

			if pkg.Module != nil {
				modules[pkg.Module.Path] = *pkg.Module
			}
		}
	}

	var text bytes.Buffer

	for _, path := range sortedKeys(modules) {
		if err := appendLicence(&text, modules[path]); err != nil {
			return err
		}
	}

	return os.WriteFile(filepath.Join(out, "LICENSES.txt"), text.Bytes(), 0o644)
}

// appendLicence appends the licence and the notice of a module; each module has a licence.
func appendLicence(text *bytes.Buffer, m module) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}

	found := false

	for _, entry := range entries {
		name := strings.ToUpper(entry.Name())
		licence := strings.HasPrefix(name, "LICEN") || strings.HasPrefix(name, "COPYING")

		if entry.IsDir() || !licence && !strings.HasPrefix(name, "NOTICE") {
			continue
		}

		body, err := os.ReadFile(filepath.Join(m.Dir, entry.Name()))
		if err != nil {
			return err
		}

		fmt.Fprintf(text, "=== %s %s: %s\n\n%s\n", m.Path, m.Version, entry.Name(), body)

		found = found || licence
	}

	if !found {
		return fmt.Errorf("module %s has no licence", m.Path)
	}

	return nil
}

// sign writes the hashes of all files of a directory, their signature and the public key.
func sign(out string, key ed25519.PrivateKey) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}

	var sums bytes.Buffer

	for _, entry := range entries {
		body, err := os.ReadFile(filepath.Join(out, entry.Name()))
		if err != nil {
			return err
		}

		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(body), entry.Name())
	}

	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}

	pemKey := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})

	return errors.Join(
		os.WriteFile(filepath.Join(out, release.SumsFile), sums.Bytes(), 0o644),
		os.WriteFile(filepath.Join(out, release.SignatureFile), ed25519.Sign(key, sums.Bytes()), 0o644),
		os.WriteFile(filepath.Join(out, "release.pub"), pemKey, 0o644),
	)
}

// output returns the standard output of a command.
func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr

	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return text, nil
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}

	slices.Sort(keys)

	return keys
}

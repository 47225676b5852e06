package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/node/config"
)

// archiveOf returns the files and parts of a support archive.
func archiveOf(t *testing.T, cfg config.Config, logFile string) (map[string]string, map[string]Part) {
	t.Helper()

	var packed bytes.Buffer

	parts, err := WriteArchive(t.Context(), &packed, cfg, nil, logFile)
	must(t, err)

	unpacked, err := gzip.NewReader(&packed)
	must(t, err)

	files := map[string]string{}

	reader := tar.NewReader(unpacked)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		must(t, err)

		text, err := io.ReadAll(reader)
		must(t, err)

		if header.Mode != 0o600 {
			t.Errorf("%s has mode %o", header.Name, header.Mode)
		}

		files[strings.TrimPrefix(header.Name, archiveDir+"/")] = string(text)
	}

	byName := map[string]Part{}
	for _, part := range parts {
		byName[part.Name] = part
	}

	return files, byName
}

// Each part of a support archive is bounded, whatever the node answers and however large its log is,
// and names the parts that were cut. A log is cut at a line.
//
// Requirement: OPS-034
func TestSupportArchiveIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}

	dir := t.TempDir()
	for i := range maxFiles + 10 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%05d", i)), nil, 0o600))
	}

	logFile := filepath.Join(dir, "node.log")
	lines := strings.Repeat(strings.Repeat("y", 999)+"\n", 3*maxLog/1000)

	must(t, os.WriteFile(logFile, []byte(lines+"the last line\n"), 0o600))

	cfg := config.Default()
	cfg.Data = dir
	cfg.Listen.Admin = "127.0.0.1:1" // no node runs

	files, parts := archiveOf(t, cfg, logFile)

	if got := strings.Count(files["files.txt"], "\n"); got != maxFiles ||
		!strings.Contains(parts["files.txt"].Problem, fmt.Sprint("only ", maxFiles)) {
		t.Errorf("files.txt has %d lines: %q", got, parts["files.txt"].Problem)
	}

	text := files["log.txt"]
	if first, _, _ := strings.Cut(text, "\n"); len(text) > maxLog || len(first) != 999 ||
		!strings.HasSuffix(text, "y\nthe last line\n") || !strings.Contains(parts["log.txt"].Problem, "only the last") {
		t.Errorf("log.txt has %d bytes and ends with %q: %q", len(text), text[len(text)-20:], parts["log.txt"].Problem)
	}

	if !strings.Contains(files["README.txt"], parts["log.txt"].Problem) {
		t.Errorf("README.txt doesn't say what is incomplete:\n%s", files["README.txt"])
	}
}

// Secrets are searched for in all that is read, which takes seconds for so much.
func TestAPartOfASupportArchiveIsBounded(t *testing.T) {
	if !directorytest.Full() {
		t.Skip("searches megabytes for secrets; make stories runs it")
	}

	flood := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			return
		}

		for range 3 * maxPart >> 10 {
			fmt.Fprintln(w, strings.Repeat("x", 1023))
		}
	}))
	defer flood.Close()

	cfg := config.Default()
	cfg.Data = t.TempDir()
	cfg.Listen.Admin = strings.TrimPrefix(flood.URL, "http://")

	files, parts := archiveOf(t, cfg, "")
	if text := files["metrics.txt"]; len(text) != maxPart || !strings.Contains(parts["metrics.txt"].Problem, "cut to") {
		t.Errorf("metrics.txt has %d bytes: %q", len(text), parts["metrics.txt"].Problem)
	}
}

// A log that is a device or a pipe is not read: it may have no end.
//
// Requirement: OPS-034
func TestSupportArchiveReadsFilesOnly(t *testing.T) {
	cfg := config.Default()
	cfg.Data = t.TempDir()

	fifo := filepath.Join(cfg.Data, "fifo") // whose writer never comes
	must(t, syscall.Mkfifo(fifo, 0o600))

	for _, logFile := range []string{"/dev/zero", fifo} {
		files, parts := archiveOf(t, cfg, logFile)
		if _, ok := files["log.txt"]; ok || !strings.Contains(parts["log.txt"].Problem, "not a regular file") {
			t.Errorf("log.txt is made of %s: %q", logFile, parts["log.txt"].Problem)
		}
	}
}

// An archive that is interrupted is not written.
//
// Requirement: OPS-034
func TestSupportArchiveEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	var packed bytes.Buffer
	if _, err := WriteArchive(ctx, &packed, config.Default(), nil, ""); !errors.Is(err, context.Canceled) ||
		packed.Len() > 0 {
		t.Errorf("%d bytes were written: %v", packed.Len(), err)
	}
}

// A log is added without characters that a terminal acts on.
//
// Requirement: SEC-015, OPS-034
func TestAnArchivesLogIsSafeForATerminal(t *testing.T) {
	cfg := config.Default()
	cfg.Data = t.TempDir()
	logFile := filepath.Join(cfg.Data, "node.log")

	must(t, os.WriteFile(logFile, []byte("a\x1b]0;owned\x07\tb\u009b1m\u202ec\n"), 0o600))

	files, _ := archiveOf(t, cfg, logFile)
	if text := files["log.txt"]; text != `a\u001b]0;owned\u0007`+"\tb"+`\u009b1m\u202ec`+"\n" {
		t.Errorf("%q", text)
	}
}

var must = directorytest.Must

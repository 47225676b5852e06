package scenarios

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	gomodule "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// installVersion is the version under which the work tree is published to itself.
const installVersion = "v0.0.1-installed"

// installTime bounds one run of the go command; a cold build cache takes minutes.
const installTime = 9 * time.Minute

// go install refuses a module whose go.mod has a replace or exclude directive.
//
// Requirement: FORM-008
func TestTheModuleReplacesNothing(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	must(t, err)

	file, err := modfile.Parse("go.mod", text, nil)
	must(t, err)

	for _, r := range file.Replace {
		t.Errorf("go.mod replaces %s", r.Old.Path)
	}

	for _, e := range file.Exclude {
		t.Errorf("go.mod excludes %s", e.Mod)
	}
}

// The program is installed, and the client imported, from a module proxy, as any
// user does.
//
// Requirement: FORM-008
func TestTheModuleIsInstalledFromAProxy(t *testing.T) {
	story(t)

	proxy := publish(t)
	bin := t.TempDir()

	run := goCommand(t, proxy, "GOBIN="+bin)
	run(t.TempDir(), "install", "-trimpath", module+"/cmd/roster@"+installVersion)

	said := output(t, filepath.Join(bin, executable("roster")), "version")
	if !strings.Contains(said, installVersion) {
		t.Errorf("roster version says %q, want %s", said, installVersion)
	}

	// Another module requires this one and imports the client.
	dir := t.TempDir()

	source, err := os.ReadFile("../api/client/testdata/lookup/main.go")
	must(t, err)

	writeTo(t, dir, "main.go", source)
	gomod := fmt.Appendf(nil, "module example.com/lookup\n\ngo 1.26.0\n\nrequire %s %s\n", module, installVersion)
	writeTo(t, dir, "go.mod", gomod)
	run(dir, "build", "-mod=mod", "-trimpath", "-o", executable("lookup"), ".")
}

// publish makes a module proxy of files that has the work tree's tracked files as
// a version of the module, and returns its directory.
func publish(t *testing.T) string {
	t.Helper()

	root, err := filepath.Abs("..")
	must(t, err)

	list := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z")

	tracked, err := list.Output()
	if err != nil {
		t.Skipf("the work tree is no git repository: %v", err)
	}

	var files []modzip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(tracked), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue // deleted and not committed yet, or a link
		}

		must(t, err)

		files = append(files, trackedFile{name: filepath.ToSlash(name), path: filepath.Join(root, name), info: info})
	}

	version := gomodule.Version{Path: module, Version: installVersion}

	var archive bytes.Buffer
	must(t, modzip.Create(&archive, version, files))

	proxy := t.TempDir()

	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	must(t, os.MkdirAll(dir, 0o755))

	writeTo(t, dir, "list", []byte(installVersion+"\n"))
	info := fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, installVersion)
	writeTo(t, dir, installVersion+".info", info)
	writeTo(t, dir, installVersion+".mod", fromZip(t, archive.Bytes(), "go.mod"))
	writeTo(t, dir, installVersion+".zip", archive.Bytes())

	return proxy
}

// A trackedFile is one file of the work tree (modzip.File).
type trackedFile struct {
	name, path string
	info       os.FileInfo
}

func (f trackedFile) Path() string                 { return f.name }
func (f trackedFile) Lstat() (os.FileInfo, error)  { return f.info, nil }
func (f trackedFile) Open() (io.ReadCloser, error) { return os.Open(f.path) }

func fromZip(t *testing.T, archive []byte, name string) []byte {
	t.Helper()

	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	must(t, err)

	f, err := r.Open(module + "@" + installVersion + "/" + name)
	must(t, err)
	defer f.Close()

	b, err := io.ReadAll(f)
	must(t, err)

	return b
}

// goCommand returns a function that runs the go command in a directory. Modules come
// from the proxy, then from the download cache, and only then from the network. They are
// unpacked into a cache of the test's own.
func goCommand(t *testing.T, proxy string, env ...string) func(dir string, args ...string) {
	t.Helper()
	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	ambient := strings.TrimSpace(output(t, "go", "env", "GOPROXY"))
	unpacked := t.TempDir()
	proxies := []string{
		"file://" + filepath.ToSlash(proxy),
		"file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download")),
		ambient,
	}
	env = append(os.Environ(), append(env,
		"GOPROXY="+strings.Join(proxies, ","), "GOMODCACHE="+unpacked, "GOFLAGS=-modcacherw",
		"GOSUMDB=off", "GONOSUMDB=", "GOPRIVATE=", "GONOPROXY=", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0")...)

	return func(dir string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), installTime)
		defer cancel()
		c := exec.CommandContext(ctx, "go", args...)
		c.Dir = dir

		c.Env = env
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()

	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}

	return string(out)
}

func writeTo(t *testing.T, dir, name string, text []byte) {
	t.Helper()

	must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}

	return name
}

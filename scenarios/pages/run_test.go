package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// pageTimeout bounds the run of a page, on a machine with much else to do.
const pageTimeout = 10 * time.Minute

// exampleNet begins the addresses of nodes on the pages. The run has a net of loopback
// addresses of its own in their place, since other runs may go on beside it.
const exampleNet = "127.0.1."

// functions begin the script of a page: eventually FILE PATTERN repeats the script in a
// file until it succeeds and its output has the pattern; exits CODE FILE runs it once. What
// the script exports is there for the blocks after it, as in the one shell of a reader.
const functions = `set -euo pipefail
block() {
  bash -euo pipefail -c 'trap "set -o posix; export -p >\"$1.env\"" EXIT; . "$1"' block "$1"
}
eventually() {
  local attempt
  for attempt in $(seq 900); do
    if block "$1" >"$1.log" 2>&1 && grep -qP "$2" "$1.log"; then
      cat "$1.log"
      . "$1.env"
      return 0
    fi
    sleep 0.2
  done
  cat "$1.log"
  echo "this never succeeded: $1"
  return 1
}
exits() {
  local code=0
  block "$2" || code=$?
  [ "$code" = "$1" ] || { echo "exit code $code, want $1"; return 1; }
  . "$2.env"
}
`

// A library is the programs and the mesh that the pages of one run share.
type library struct {
	t    *testing.T // of the whole run
	dir  string     // bin, and mesh once it is started
	net  string
	goes map[string]string // variables of the Go command, which depend on HOME
}

// Every shell block of README.md and of docs runs, in the order of its page.
//
// Requirement: OPS-035
func TestBlocksRun(t *testing.T) {
	if !directorytest.Full() {
		t.Skip("runs every page; make stories does")
	}

	requireBash(t)

	lib := newLibrary(t)

	all := pages(t)
	for _, page := range slices.Sorted(maps.Keys(all)) {
		if !slices.ContainsFunc(all[page], func(b block) bool { return b.isShell() && b.norun == "" }) {
			continue
		}

		t.Run(page, func(t *testing.T) {
			for _, b := range all[page] {
				if program := b.missing(); b.isShell() && program != "" {
					t.Logf("%s isn't run: there is no %s here", b, program)
				}
			}

			if output, err := lib.run(t, all[page]); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// A page fails by the exit code of each of its commands, not only of the last one.
func TestBrokenBlocksAreFound(t *testing.T) {
	requireBash(t)

	lib := &library{t: t, dir: t.TempDir(), net: exampleNet}

	for text, want := range map[string]string{
		"```sh\ntrue\n```\n":                                                                           "",
		"```sh exits=3\nexit 3\n```\n":                                                                 "",
		"```sh exits=3\nexit 4\n```\n":                                                                 "p.md:2",
		"```sh norun=it is wrong\nfalse\n```\n":                                                        "",
		"```sh needs=nosuchprogram\nfalse\n```\n":                                                      "",
		"```sh\nfalse\ntrue\n```\n":                                                                    "p.md:2",
		"```sh\nnosuchcommand | cat\n```\n":                                                            "p.md:2",
		"```sh\nX=1\n```\n```sh\ntest $X = 2\n```\n":                                                   "p.md:5",
		"```sh eventually\nexport X=1; echo x\n```\n```sh\ntest -z \"${X:-}\"\n```\n":                  "p.md:5",
		"```sh exits=3\nexport X=1\nexit 3\n```\n```sh\ntest -z \"${X:-}\"\n```\n":                     "p.md:6",
		"```sh until=^b$\necho a >>x; tail -n 1 x; test -s y && echo b; echo >y\n```\n":                "",
		"```json file=a/b.json\n{}\n```\n```sh\ngrep '{}' a/b.json\n```\n":                             "",
		"```sh terminals\nsleep 600; false\necho ready >x\n```\n```sh eventually\ngrep ready x\n```\n": "",
	} {
		blocks, err := blocksOf("p.md", text)
		if err != nil {
			t.Fatal(err)
		}

		output, err := lib.run(t, blocks)
		switch {
		case (err != nil) != (want != ""):
			t.Errorf("%q: %v, want a failure at %q; output %s", text, err, want, output)
		case err != nil && !strings.Contains(err.Error(), want+" "):
			t.Errorf("%q: %v, want a failure at %s", text, err, want)
		}
	}
}

func requireBash(t *testing.T) {
	t.Helper()

	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("the pages are for bash: ", err)
	}
}

// newLibrary builds the programs.
func newLibrary(t *testing.T) *library {
	t.Helper()

	lib := &library{t: t, dir: t.TempDir(), goes: map[string]string{}}
	lib.net = fmt.Sprintf("127.%d.%d.", os.Getpid()%250+2, os.Getpid()/250%250+1)

	bin := filepath.Join(lib.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}

	if _, err := launch.Build(t.Context(), bin); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS", "GOPROXY"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}

		lib.goes[name] = strings.TrimSpace(string(out))
	}

	return lib
}

// run runs the blocks of a page in a place of their own. It returns the output, and an
// error that names the block that failed.
func (lib *library) run(t *testing.T, blocks []block) (output string, err error) {
	t.Helper()
	place := newPlace(t)
	lib.furnish(t, place, blocks)

	script := filepath.Join(t.TempDir(), "page.sh")
	if err := os.WriteFile(script, []byte(lib.script(filepath.Dir(script), blocks)), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()

	var out bytes.Buffer

	shell := exec.CommandContext(ctx, "bash", script)
	shell.Dir = place
	shell.Env = lib.environment(place)
	shell.Stdout = &out
	shell.Stderr = &out
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.WaitDelay = time.Second // for what terminals hold open

	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}

	// Terminals outlive the shell; ending the group ends them.
	err = shell.Wait()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)

	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		at, _ := os.ReadFile(filepath.Join(filepath.Dir(script), "at"))
		return out.String(), fmt.Errorf("the block at %s failed: %w", strings.TrimSpace(string(at)), err)
	}

	return out.String(), nil
}

// memoryDisk is a file system in memory, and memoryNeeded is the room on it that lets a page use it: doctor
// fails on a disk with less than 1 GiB.
const (
	memoryDisk   = "/dev/shm"
	memoryNeeded = 4 << 30
)

// newPlace returns an empty folder for a page. It is in memory if that has room, since the pages diagnose nodes,
// and how full and how fast the machine's disk is says nothing about a page.
func newPlace(t *testing.T) string {
	t.Helper()

	var room syscall.Statfs_t
	if syscall.Statfs(memoryDisk, &room) != nil || room.Bavail*uint64(room.Bsize) < memoryNeeded {
		return t.TempDir()
	}

	place, err := os.MkdirTemp(memoryDisk, "roster-page-")
	if err != nil {
		return t.TempDir()
	}

	t.Cleanup(func() { _ = os.RemoveAll(place) })

	return place
}

// environment is that of a reader with no settings of roster.
func (lib *library) environment(place string) []string {
	env := []string{"PATH=" + filepath.Join(lib.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + place,
		"XDG_CONFIG_HOME=" + filepath.Join(place, ".config"), "LANG=C.UTF-8", "USER=reader"}
	for name, value := range lib.goes {
		env = append(env, name+"="+value)
	}

	return env
}

// furnish puts into the place of a page what the page says that its reader has: the
// development mesh, the sources, a Go module.
func (lib *library) furnish(t *testing.T, place string, blocks []block) {
	t.Helper()

	needsMesh := func(b block) bool { return b.isShell() && strings.Contains(b.text, "mesh/env.sh") }
	if slices.ContainsFunc(blocks, needsMesh) {
		if err := os.Symlink(lib.mesh(), filepath.Join(place, "mesh")); err != nil {
			t.Fatal(err)
		}
	}

	needsSources := func(b block) bool {
		return b.isShell() && (strings.Contains(b.text, "docs/spec/") || strings.Contains(b.text, "docs/verify/"))
	}
	if slices.ContainsFunc(blocks, needsSources) {
		docs, err := filepath.Abs("../../docs")
		if err != nil {
			t.Fatal(err)
		}

		if err := os.Symlink(docs, filepath.Join(place, "docs")); err != nil {
			t.Fatal(err)
		}
	}

	if slices.ContainsFunc(blocks, func(b block) bool { return b.lang == "go" && b.value("file") != "" }) {
		writeModule(t, place)
	}
}

// script returns the script of a page. dir is for its files.
func (lib *library) script(dir string, blocks []block) string {
	var script strings.Builder

	script.WriteString(functions)

	for i, b := range blocks {
		if b.norun != "" {
			continue
		}

		b.text = strings.ReplaceAll(b.text, exampleNet, lib.net)

		if name := b.value("file"); name != "" {
			fmt.Fprintf(&script, "mkdir -p '%s'; cat >'%s' <<'END-OF-FILE'\n%sEND-OF-FILE\n", filepath.Dir(name), name,
				b.text)

			continue
		}

		if !b.isShell() || b.missing() != "" {
			continue
		}

		fmt.Fprintf(&script, "\necho '%s' >'%s'; echo '== %[1]s'\n", b, filepath.Join(dir, "at"))

		commands := b.commands()
		switch {
		case b.has("terminals"):
			for line := range strings.Lines(commands) {
				fmt.Fprintf(&script, "{ %s; } </dev/null &\n", strings.TrimSpace(line))
			}
		case b.has("eventually"), b.value("until") != "", b.value("exits") != "":
			file := filepath.Join(dir, fmt.Sprintf("block%d.sh", i))
			fmt.Fprintf(&script, "cat >'%s' <<'END-OF-BLOCK'\n%sEND-OF-BLOCK\n", file, commands)

			if code := b.value("exits"); code != "" {
				fmt.Fprintf(&script, "exits %s '%s'\n", code, file)
			} else {
				fmt.Fprintf(&script, "eventually '%s' '%s'\n", file, b.value("until"))
			}
		default:
			script.WriteString(commands)
		}
	}

	return script.String()
}

// mesh returns the directory of the development mesh, which it starts once.
func (lib *library) mesh() string {
	lib.t.Helper()

	dir := filepath.Join(lib.dir, "mesh")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}

	dev := exec.Command(filepath.Join(lib.dir, "bin", "roster"), "dev", "--port", "0", "--dir", dir)
	dev.Env = lib.environment(lib.dir)

	mesh, err := launch.Start(dev)
	if err != nil {
		lib.t.Fatal(err)
	}

	lib.t.Cleanup(func() { _ = mesh.Stop() }) // pages may have ended nodes of it

	launch.Eventually(lib.t, "the mesh is ready", func() error {
		if said := mesh.Output(); !strings.Contains(said, "Ctrl-C ends the mesh") {
			return errors.New(said)
		}

		return nil
	})

	return dir
}

// writeModule makes a place the module of a reader who imports this one.
func writeModule(t *testing.T, place string) {
	t.Helper()

	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}

		if name == "go.mod" {
			const module = "github.com/roster-mesh/roster"

			text = bytes.Replace(text, []byte("module "+module), []byte("module agents.example/reader"), 1)
			text = fmt.Appendf(text, "\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n", module, root)
		}

		if err := os.WriteFile(filepath.Join(place, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

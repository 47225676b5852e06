package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// units copies the units to a directory, with this run's binary in them.
func units(t *testing.T) (dir string, names []string) {
	t.Helper()

	dir = t.TempDir()
	for _, file := range append(glob(t, "../systemd/*.service"), glob(t, "../systemd/*.timer")...) {
		text, err := os.ReadFile(file)
		must(t, err)

		name := filepath.Base(file)
		names = append(names, name)
		changed := strings.ReplaceAll(string(text), "/usr/bin/roster", binary(t))

		must(t, os.WriteFile(filepath.Join(dir, name), []byte(changed), 0o644))
	}

	// The service beside which the agent's unit runs.
	beside := "[Service]\nExecStart=" + binary(t) + " version\n"
	must(t, os.WriteFile(filepath.Join(dir, "weather.service"), []byte(beside), 0o644))

	return dir, names
}

// glob returns the files of a pattern, at least one.
func glob(t *testing.T, pattern string) []string {
	t.Helper()

	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}

	return files
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()

	abs, err := filepath.Abs(path)
	must(t, err)

	return abs
}

// maxExposure is ten times the exposure that OPS-028 allows.
const maxExposure = "15"

// Requirement: OPS-010, OPS-028
func TestUnitsAreValidAndHardened(t *testing.T) {
	analyze := tool(t, "systemd-analyze")
	dir, names := units(t)

	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strings.Replace(name, "@.", "@weather.", 1))
			verify := exec.Command(analyze, "verify", "--man=no", file)
			verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")

			if strings.Contains(name, "@") { // an instance is a link to its template
				must(t, os.Symlink(filepath.Join(dir, name), file))
			}

			out, err := verify.CombinedOutput()
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "roster") || strings.Contains(line, dir) {
					t.Error(strings.TrimSpace(line))
				}
			}

			if err != nil && !t.Failed() {
				t.Errorf("%v\n%s", err, out)
			}

			if !strings.HasSuffix(name, ".service") {
				return
			}

			out, err = exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+maxExposure,
				filepath.Join(dir, name)).CombinedOutput()

			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			t.Log(lines[len(lines)-1])

			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// systemd starts the node, learns that it is ready, and stops it. Where systemd is not the
// service manager, the notifications are tested with a socket (cmd/roster, systemd.txt).
//
// Requirement: OPS-028
func TestSystemdStartsAndStopsANode(t *testing.T) {
	systemctl := tool(t, "systemctl")
	asRoot(t)

	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd is not the service manager of this machine")
	}

	const etc = "/etc/roster"
	if _, err := os.Stat(etc); err == nil {
		t.Skipf("%s exists: this machine has a node", etc)
	}

	dir, _ := units(t)
	unit := "/run/systemd/system/roster.service"

	t.Cleanup(func() {
		_ = exec.Command(systemctl, "stop", "roster").Run()
		_ = os.Remove(unit)
		_ = os.RemoveAll(etc)
		_ = exec.Command(systemctl, "daemon-reload").Run()
	})

	work := t.TempDir()
	setup := exec.Command("sh", "-ec", `
		"$1" ca init alpha.test
		"$1" init new --members a=127.0.0.1
		mv new/a /etc/roster
		sed -i 's,^data: data$,data: /var/lib/roster,' /etc/roster/node.yaml
		systemd-sysusers "$4"
		chown -R roster:roster /etc/roster
		cp "$2" "$3"
		systemctl daemon-reload`, "sh", binary(t), filepath.Join(dir, "roster.service"), unit,
		mustAbs(t, "../systemd/roster.sysusers.conf"))
	setup.Dir = work
	setup.Env = append(os.Environ(), "XDG_CONFIG_HOME="+work)
	run(t, setup)

	run(t, exec.Command(systemctl, "start", "roster")) // returns once the node is ready

	if out := run(t, exec.Command(systemctl, "show", "-p", "StatusText", "roster")); !strings.Contains(out, "=ready") {
		t.Errorf("systemd knows %q", out)
	}

	run(t, exec.Command(systemctl, "stop", "roster"))

	if out := run(t, exec.Command(systemctl, "show", "-p", "Result", "roster")); !strings.Contains(out, "=success") {
		t.Errorf("the stop's %s", out)
	}
}

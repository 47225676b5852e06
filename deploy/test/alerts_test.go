package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// register registers an agent at the first node of a domain of dir, by the domain's agent ada.
func register(t *testing.T, dir string, mesh devMesh, domain int, name string) error {
	t.Helper()

	at := mesh.Domains[domain]
	identity := filepath.Join(dir, at.TrustDomain, "identities", "agent-ada")

	out, err := exec.Command(binary(t), "register", name, "../agent/weather.json", "--visibility", "mesh",
		"--address", at.Nodes[0].API, "--bundle", filepath.Join(dir, at.TrustDomain, "bundle.pem"),
		"--cert", identity+".pem", "--key", identity+".key").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("register %s: %w\n%s", name, err, out)
	}

	return err
}

// says runs a command until its output has all the texts.
func says(t *testing.T, command func() *exec.Cmd, texts ...string) {
	t.Helper()

	until(t, strings.Join(command().Args, " "), func() error {
		out, _ := command().CombinedOutput()
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				return fmt.Errorf("it doesn't say %q:\n%s", text, out)
			}
		}

		return nil
	})
}

// gapRegistrations are more than a page of gossip lists.
const gapRegistrations = 120

// The peer's nodes have moved to where this domain doesn't reach them, while this node was down for longer
// than gossip announces the changes that it missed. It hears how far the peer is, and can't pull the rest.
//
// Requirement: OPS-029
func TestAlertsOfAGap(t *testing.T) {
	tool(t, "prometheus")

	dir, mesh := dev(t, 2, 1)
	alpha, beta := mesh.Domains[0], mesh.Domains[1]
	node := alpha.Nodes[0]
	show := func() *exec.Cmd {
		return operator(t, dir, alpha.TrustDomain, node.API, "peer", "show", beta.TrustDomain)
	}

	run(t, operator(t, dir, alpha.TrustDomain, node.API, "peer", "set", beta.TrustDomain,
		"--nodes", "https://127.0.0.1:1"))

	moved := beta.Nodes[0]
	for _, pid := range []int{node.PID, moved.PID} {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}

	// Its nodes say where they are reached, too, and are no longer where alpha has reached them.
	text, err := os.ReadFile(moved.Config)
	must(t, err)

	address := ownNet(4) + "9:8400"
	text = bytes.ReplaceAll(text, []byte("api: "+moved.API), []byte("api: https://127.0.0.1:1"))
	text = bytes.ReplaceAll(text, []byte("api: "+strings.TrimPrefix(moved.API, "https://")), []byte("api: "+address))
	must(t, os.WriteFile(moved.Config, text, 0o600))

	moved.API = "https://" + address
	beta.Nodes[0] = moved // the domain's slice is the mesh's

	start(t, "beta again", exec.Command(binary(t), "serve", "--config", moved.Config))
	until(t, "beta answers", func() error {
		return operator(t, dir, beta.TrustDomain, moved.API, "status").Run()
	})

	var all sync.WaitGroup
	for first := range 4 {
		all.Go(func() {
			for i := first; i < gapRegistrations; i += 4 {
				if err := register(t, dir, mesh, 1, fmt.Sprint("missed-", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}

	all.Wait()

	start(t, "alpha again", exec.Command(binary(t), "serve", "--config", node.Config))
	until(t, "alpha answers", func() error { return show().Run() })

	p := startPrometheus(t, map[string][]string{alpha.TrustDomain: {node.Admin}})
	p.eventuallyFires(t, "RosterPeerGap")
	says(t, show, "lag\t", "connection refused")
}

// An operator trusts another authority of a peer than the one that certifies its nodes. A third domain
// goes on to pass the peer's announcements on, and they are refused.
//
// Requirement: OPS-029
func TestAlertsOfARefusedPeer(t *testing.T) {
	tool(t, "prometheus")

	dir, mesh := dev(t, 3, 1)
	alpha, beta, gamma := mesh.Domains[0], mesh.Domains[1], mesh.Domains[2]
	node := alpha.Nodes[0]
	p := startPrometheus(t, map[string][]string{alpha.TrustDomain: {node.Admin}})

	other := t.TempDir()
	authority := exec.Command(binary(t), "ca", "init", beta.TrustDomain, "--dir", other)
	authority.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	run(t, authority)
	run(t, operator(t, dir, alpha.TrustDomain, node.API, "peer", "set", beta.TrustDomain,
		"--peer-bundle", filepath.Join(other, "ca.pem")))

	for again := 0; !slices.Contains(p.firing(t), "RosterPeerRefused"); again++ {
		if again == maxRegistrations {
			t.Fatalf("no alert after %d registrations; what fires is %v", again, p.firing(t))
		}

		must(t, register(t, dir, mesh, 1, fmt.Sprint("refused-", again)))
	}

	says(t, func() *exec.Cmd {
		return operator(t, dir, alpha.TrustDomain, node.API, "peer", "show", gamma.TrustDomain)
	}, "messages refused key_unknown")
}

// A peer trusts another authority of a domain than its present one, and takes nothing from it. Later the
// peer's only node dies, and nobody serves its bundle.
//
// Requirement: OPS-029, OPS-043
func TestAlertsOfAPeerThatRefusesUs(t *testing.T) {
	tool(t, "prometheus")

	dir, mesh := dev(t, 2, 1)
	alpha, beta := mesh.Domains[0], mesh.Domains[1]
	node := alpha.Nodes[0]
	p := startPrometheus(t, map[string][]string{alpha.TrustDomain: {node.Admin}})
	show := func() *exec.Cmd {
		return operator(t, dir, alpha.TrustDomain, node.API, "peer", "show", beta.TrustDomain)
	}

	other := t.TempDir()
	authority := exec.Command(binary(t), "ca", "init", alpha.TrustDomain, "--dir", other)
	authority.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	run(t, authority)
	run(t, operator(t, dir, beta.TrustDomain, beta.Nodes[0].API, "peer", "set", alpha.TrustDomain,
		"--peer-bundle", filepath.Join(other, "ca.pem")))
	p.eventuallySays(t, "RosterPeerRefusesUs", beta.TrustDomain+" takes nothing from "+alpha.TrustDomain,
		host(node.Admin))
	says(t, show, "refuses this domain\t")

	must(t, syscall.Kill(beta.Nodes[0].PID, syscall.SIGKILL))

	// Another endpoint is asked at once.
	run(t, operator(t, dir, alpha.TrustDomain, node.API, "peer", "set", beta.TrustDomain,
		"--bundle-endpoint", "https://127.0.0.1:1/bundle"))
	p.eventuallySays(t, "RosterBundleRefreshFailing", host(node.Admin)+" of "+alpha.TrustDomain,
		"the bundle of "+beta.TrustDomain)
	says(t, show, "bundle error\t", "other nodes of the peer were asked in vain")
}

// host returns the address of an admin listener, by which Prometheus names a node.
func host(admin string) string { return strings.TrimPrefix(admin, "http://") }

// wrongClock is the source of package time with a clock that is wrong by the seconds in SKEW.
const wrongClock = `
var wrongBy = func() (seconds int64) {
	text, _ := syscall.Getenv("ROSTER_TEST_SKEW")
	for _, digit := range text {
		seconds = 10*seconds + int64(digit-'0')
	}

	return seconds
}()

`

// skewed builds a binary whose clock is wrong by ROSTER_TEST_SKEW seconds. A machine has one clock, so
// the fake stands in for the clock of another machine.
func skewed(t *testing.T) string {
	t.Helper()

	source := filepath.Join(strings.TrimSpace(run(t, exec.Command("go", "env", "GOROOT"))), "src", "time", "time.go")

	text, err := os.ReadFile(source)
	must(t, err)

	const now, read = "func Now() Time {\n", "sec, nsec, mono := runtimeNow()\n"

	before, after, found := strings.Cut(string(text), now+"\t"+read)
	if !found {
		t.Skip("time.Now of this Go release has another form")
	}

	changed := strings.Replace(before, "import (\n", "import (\n\t\"syscall\"\n", 1) + wrongClock + now + "\t" + read +
		"\tsec += wrongBy\n" + after
	dir := t.TempDir()
	fake, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")

	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: fake}})
	must(t, err)

	for file, text := range map[string][]byte{fake: []byte(changed), overlay: replace} {
		must(t, os.WriteFile(file, text, 0o600))
	}

	program := filepath.Join(dir, "roster")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./cmd/roster")
	build.Dir = "../.."
	run(t, build)

	return program
}

// The clock of one node of three is ten seconds ahead.
//
// Requirement: OPS-029
func TestAlertsOfAWrongClock(t *testing.T) {
	tool(t, "prometheus")

	if os.Getenv("STORY_LONG") == "" {
		t.Skip("it builds the standard library anew; STORY_LONG=1 runs this")
	}

	program := skewed(t)
	_, mesh := dev(t, 1, 3)
	node := mesh.Domains[0].Nodes[2]

	must(t, syscall.Kill(node.PID, syscall.SIGKILL))

	wrong := exec.Command(program, "serve", "--config", node.Config)
	wrong.Env = append(os.Environ(), "ROSTER_TEST_SKEW=10")
	start(t, "a node with a wrong clock", wrong)

	p := startPrometheus(t, map[string][]string{
		mesh.Domains[0].TrustDomain: {node.Admin, mesh.Domains[0].Nodes[0].Admin},
	})
	p.eventuallyFires(t, "RosterClockSkew")
	says(t, func() *exec.Cmd { return exec.Command(binary(t), "doctor", "--config", node.Config) }, "clock of")
}

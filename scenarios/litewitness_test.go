package scenarios

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/torchwood"

	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// startLitewitness starts torchwood's witness with an empty database, and returns its address, its vkey and a
// function that has it know a log.
func startLitewitness(t *testing.T, program string) (url, vkey string, know func(policy string) error) {
	t.Helper()

	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }

	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+in("agent"))

		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}

		return string(out)
	}

	background := func(cmd *exec.Cmd) {
		must(t, cmd.Start())

		t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait()) })
	}

	background(exec.Command("ssh-agent", "-D", "-a", in("agent")))

	for range 100 {
		if _, err := os.Stat(in("agent")); err == nil {
			break
		}

		time.Sleep(100 * time.Millisecond)
	}

	run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", in("key"))
	run("ssh-add", "-q", in("key"))
	fingerprint := strings.Fields(run("ssh-keygen", "-lf", in("key.pub")))[1]

	held, address := reserved(t)

	t.Cleanup(func() { _ = syscall.Close(held) })

	witness := exec.Command(program, "-name", "witness.example/lite", "-db", in("db"), "-ssh-agent", in("agent"),
		"-key", fingerprint, "-listen", address)

	log, err := witness.StderrPipe()
	must(t, err)

	background(witness)

	lines := bufio.NewScanner(log)
	for vkey == "" && lines.Scan() {
		_, vkey, _ = strings.Cut(lines.Text(), "vkey=")
	}

	if vkey = strings.Trim(vkey, `"`); vkey == "" {
		t.Fatalf("%s printed no vkey", program)
	}

	go func() {
		for lines.Scan() { // so that it never waits for a reader
			continue
		}
	}()

	return "http://" + address, vkey, func(policy string) error {
		parsed, err := checkpoint.ParsePolicy(policy)
		if err != nil || len(parsed.Logs) == 0 {
			return fmt.Errorf("the policy %q: %w", policy, err)
		}

		args := []string{"-c", `import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
db.execute("INSERT INTO log VALUES (?, 0, ?)", sys.argv[2:4])
db.executemany("INSERT INTO key VALUES (?, ?)", [(sys.argv[2], key) for key in sys.argv[4:]])
db.commit()`, in("db"), parsed.Logs[0].Key.Name, base64.StdEncoding.EncodeToString(checkpoint.EmptyRoot[:])}
		for _, log := range parsed.Logs {
			args = append(args, log.Key.String())
		}

		run("python3", args...)

		return nil
	}
}

// Torchwood's witness, which shares no code with the project, cosigns a domain's ledger as it grows, under each of
// three leaders, and registrations that it cosigned are shown as witnessed. LITEWITNESS is the program, which
// .ci/ledger installs.
//
// Requirement: LOG-008, LOG-009
func TestLitewitnessCosignsALedger(t *testing.T) {
	program := os.Getenv("LITEWITNESS")
	if program == "" {
		t.Skip("LITEWITNESS is not set: .ci/ledger installs it and runs this")
	}

	url, vkey, know := startLitewitness(t, program)
	m := mesh.Start(t, mesh.Options{Nodes: 3, RealTime: true, Configure: func(c *config.Config) {
		c.Witness.Every = time.Second
		c.Witness.Witnesses = []config.OutsideWitness{{VKey: vkey, URL: url}}
	}})
	domain := m.Domains[0]

	// The keys of all members are in the policy once each has been seen by the leader.
	m.Eventually(time.Minute, "the witness knows the log", func() error {
		policy, err := servedPolicy(domain.Nodes[0])
		if err == nil && strings.Count(policy, "\nlog ") < 2 {
			err = errors.New("the policy lacks keys: " + policy)
		}

		if err != nil {
			return err
		}

		return know(policy)
	})

	covered := func(name string) func() error {
		agent := m.Register(domain.Name, name, 3600)

		return func() error {
			for _, n := range domain.Nodes {
				if !n.Lives() {
					continue
				}

				text, err := file(n, "/ad/r/"+agent.RID)
				if err != nil {
					return err
				}

				if !strings.Contains(text, `"witnessed":true`) ||
					!strings.Contains(text, `"name":"witness.example/lite"`) {
					return fmt.Errorf("%s shows %s", n.Name, text)
				}
			}

			return nil
		}
	}

	m.Eventually(time.Minute, "the first is witnessed", covered("first"))
	domain.Leader().Kill()
	m.Eventually(time.Minute, "the second is witnessed by a new leader", covered("second"))

	for _, n := range domain.Nodes {
		if !n.Lives() {
			continue
		}

		found, err := judgeLedger(n)
		must(t, err)

		text := valueOf(file(n, found.prefix+"/checkpoint"))
		if _, _, err := torchwood.VerifyCheckpoint([]byte(text), found.policy); err != nil {
			t.Errorf("%s: %v\n%s", n.Name, err, text)
		}
	}
}

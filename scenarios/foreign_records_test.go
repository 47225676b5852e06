package scenarios

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Other domains' records never enter the own domain's log: its bytes stay unchanged
// while a node receives all registrations of a peer, and a node that loses its store
// pulls everything again.
//
// Requirement: MESH-028
func TestForeignRecordsAreInNoLog(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 1, Seed: seed})
		beta := m.Domain("beta.test").Nodes[0]
		m.Sleep(time.Minute)
		m.CutOff("beta.test")

		var agents []*mesh.Agent
		for i := range long(10_000, 200) {
			agents = append(agents, m.Register("alpha.test", fmt.Sprint("agent-", i), 86400))
		}

		before := logOf(t, beta)
		m.Heal()
		m.Eventually(2*time.Minute, "beta.test has them", func() error { return m.Seen(agents...) })

		if logOf(t, beta) != before {
			t.Error("the log of beta.test changed")
		}

		t.Logf("%d foreign registrations, and not a byte more in the log", len(agents))
		beta.Kill()

		must(t, os.RemoveAll(filepath.Join(beta.Data(), "federation")))

		beta.Restart()
		m.Eventually(2*time.Minute, "beta.test has them again", func() error { return m.Seen(agents...) })
	})
}

// logOf is the hash of all that a node has on disk of its own domain's history.
func logOf(t *testing.T, n *mesh.Node) string {
	t.Helper()
	h := sha256.New()

	err := filepath.WalkDir(filepath.Join(n.Data(), "consensus"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintln(h, path)
		_, err = io.Copy(h, f)

		return err
	})
	must(t, err)

	return fmt.Sprintf("%x", h.Sum(nil))
}

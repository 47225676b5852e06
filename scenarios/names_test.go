package scenarios

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Agents of one name in three domains are three items of a lookup at every node, and
// origin picks one of them. The end of one leaves the others.
//
// Requirement: MESH-027
func TestOneNameInThreeDomains(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed})

		var agents []*mesh.Agent
		for _, d := range m.Domains {
			agents = append(agents, m.Register(d.Name, "translator", 600))
		}

		m.Eventually(time.Second, "all are seen everywhere", func() error { return m.Seen(agents...) })

		at := m.Domains[0].Nodes[0]

		if got := at.Found("translator", ""); len(got) != 3 {
			t.Errorf("the name has %d items, want one of each domain: %v", len(got), got)
		}

		for i, d := range m.Domains {
			for _, name := range []string{"", "translator"} {
				if got := at.Found(name, d.Name); len(got) != 1 || got[agents[i].RID] != d.Name {
					t.Errorf("%q of %s: %v, want %s", name, d.Name, got, agents[i].RID)
				}
			}
		}

		m.Remove(agents[1])
		m.Eventually(time.Second, "the removal is known", func() error { return m.Gone(agents[1]) })

		if got := at.Found("translator", ""); len(got) != 2 || got[agents[1].RID] != "" {
			t.Errorf("after a removal: %v", got)
		}
	})
}

// A command that keeps a registration leaves it when the command is terminated, and with
// --on-exit remove ends it within two seconds.
//
// Requirement: OPS-007
func TestKeepEndsAtATermination(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "1", "--nodes", "1", "--sample", "0")
	client := p.client(0, 0, "agent/ada")

	document := filepath.Join(t.TempDir(), "agent.json")
	if err := os.WriteFile(document, []byte(`{"base":"https://agents.example.com/kept"}`), 0o600); err != nil {
		t.Fatal(err)
	}

	shown := func(name string) bool {
		page, err := client.Lookup(t.Context(), apiclient.LookupOptions{Agent: name})
		if err != nil {
			t.Fatal(err)
		}

		return len(page.Agents) > 0
	}

	for name, remove := range map[string]bool{"left": false, "removed": true} {
		args := []string{"register", name, document, "--keep", "--lt", "600"}
		if remove {
			args = append(args, "--on-exit", "remove")
		}

		cmd := p.runAs(0, "agent-ada", args...)
		p.eventually(30*time.Second, name+" is registered", func() error {
			// The node shows the registration before the command has its answer.
			if !strings.Contains(cmd.Output(), "registered") || !shown(name) {
				return errors.New("not yet")
			}

			return nil
		})

		began := time.Now()

		p.end(cmd) // by SIGTERM; it fails the test unless the command exits with 0

		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: the end took %s", name, took)
		}

		if shown(name) == remove {
			t.Errorf("%s is shown after the end: %t, want %t", name, remove, !remove)
		}
	}
}

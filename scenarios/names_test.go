package scenarios

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// A command that keeps a registration leaves it when the command is terminated, and with
// --on-exit remove ends it within two seconds.
//
// Requirement: OPS-007
func TestKeepEndsAtATermination(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "1", "--nodes", "1", "--sample", "0")
	client := p.client(0, 0, "agent/ada")

	document := filepath.Join(t.TempDir(), "agent.json")
	must(t, os.WriteFile(document, []byte(`{"base":"https://agents.example.com/kept"}`), 0o600))

	shown := func(name string) bool {
		page, err := client.Lookup(t.Context(), apiclient.LookupOptions{Agent: name})
		must(t, err)

		return len(page.Agents) > 0
	}

	for name, remove := range map[string]bool{"left": false, "removed": true} {
		args := []string{"register", name, document, "--keep", "--lt", "600"}
		if remove {
			args = append(args, "--on-exit", "remove")
		}

		cmd := p.runAs(0, "agent-ada", args...)
		p.eventually(name+" is registered", func() error {
			// The node shows the registration before the command has its answer.
			if !strings.Contains(cmd.Output(), "registered") || !shown(name) {
				return errors.New("not yet")
			}

			return nil
		})

		began := time.Now()

		p.end(cmd) // by SIGTERM; it fails the test unless the command exits with 0

		if took := time.Since(began); took > launch.Within(2*time.Second) {
			t.Errorf("%s: the end took %s", name, took)
		}

		if shown(name) == remove {
			t.Errorf("%s is shown after the end: %t, want %t", name, remove, !remove)
		}
	}
}

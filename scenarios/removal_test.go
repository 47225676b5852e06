package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// At night a node dies, and its operator takes out another one by mistake, sooner or later after the
// death. It is refused each time, and the domain goes on. Within four seconds every node says which
// one is dead, by the same word.
//
// Requirement: FLD-028
func TestTheWrongMemberIsRemovedAfterADeath(t *testing.T) {
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")
	p.lead(0)

	dead := p.Domains[0].Nodes[2]
	p.kill(dead)
	killed := time.Now()

	for i, after := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second,
		30 * time.Second} {
		time.Sleep(time.Until(killed.Add(after)))

		at := i % 2 // the leader, and the follower that is to be removed

		out, code := p.roster(0, at, "raft", "remove", "2")
		if code != 5 || !strings.Contains(out, "only 1 answer now") || !strings.Contains(out, dead.ID) {
			t.Errorf("%s after the death: exit code %d\n%s", after, code, out)
		}

		if strings.Contains(out, "safe to repeat") {
			t.Errorf("to repeat what costs the quorum is not safe:\n%s", out)
		}

		agent := fmt.Sprintf("agent-%d", i)
		if _, err := p.client(0, at, "agent/ada").Register(t.Context(), agent,
			[]byte(`{"base":"https://kept.alpha.test/"}`), apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
			t.Errorf("%s after the death: a write: %v", after, err)
		}

		if after < 5*time.Second {
			continue
		}

		for node := range 2 {
			out, _ := p.roster(0, node, "status")
			if !strings.Contains(out, "member "+dead.ID+"\tsilent\t") {
				t.Errorf("%s after the death: status says\n%s", after, out)
			}
		}
	}

	// What is right is done at once, and ends the alarm.
	p.must(0, 1, "raft", "remove", "3")

	if out, _ := p.roster(0, 0, "status"); strings.Contains(out, "silent") {
		t.Errorf("after the removal of the dead one status says\n%s", out)
	}
}

// lead gives a node of the first domain the leadership, unless it has it.
func (p *processes) lead(node int) {
	p.t.Helper()

	if id := p.Domains[0].Nodes[node].ID; p.leader(0).ID != id {
		p.must(0, node, "raft", "transfer", id)
	}
}

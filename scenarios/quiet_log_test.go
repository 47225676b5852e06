package scenarios

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// ofBusyMachine are the warnings that a machine with much else to do gives reason for.
var ofBusyMachine = regexp.MustCompile("the disk of this member's log is slow|handing the leadership over")

// Two domains start, peer, take registrations, let a node in, hand their leadership over, remove the node
// and stop. All of it is as their operators want it, so no log has a warning or an error. What an operator
// looks for is there: an empty disk, and that the node was removed.
//
// Requirement: OPS-005
func TestAHealthyLifeWritesNoWarning(t *testing.T) {
	t.TempDir() // its removal, and that of the logs in it, comes after the check

	var (
		p      *processes
		joined *launch.Process
	)

	t.Cleanup(func() {
		if p == nil || joined == nil {
			return
		}

		logs := map[string]string{"the node that joined": joined.Output()}
		for _, d := range p.Domains {
			for _, n := range d.Nodes[:3] {
				logs[n.ID] = p.logOf(n)
			}
		}

		for name, log := range logs {
			for _, line := range strings.Split(log, "\n") {
				if regexp.MustCompile("level=(WARN|ERROR)").MatchString(line) && !ofBusyMachine.MatchString(line) {
					t.Errorf("%s: %s", name, line)
				}
			}

			if !strings.Contains(log, "has no state on its disk") {
				t.Errorf("%s does not say that its disk was empty:\n%s", name, log)
			}

			if name != "the node that joined" && strings.Contains(log, "to admit this node") {
				t.Errorf("%s began its domain, and says that it waits to be admitted:\n%s", name, log)
			}
		}
	})

	p = startProcesses(t, "--domains", "2", "--nodes", "3", "--sample", "4")
	i := p.plan(0, "")
	fourth := p.Domains[0].Nodes[i]
	p.must(0, 0, "raft", "admit", fourth.ID)
	p.restart(fourth)
	joined = p.started[fourth.ID]

	p.eventually("it has its vote", func() error {
		for _, peer := range p.raft(0, 0).Peers {
			if peer.ID == fourth.ID && peer.Voter {
				return nil
			}
		}

		return errors.New("it has not")
	})

	document := []byte(`{"base":"https://quiet.alpha.test/"}`)
	if _, err := p.client(0, i, "agent/ada").Register(t.Context(), "quiet", document,
		apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
		t.Error(err)
	}

	for node := range 3 {
		p.leads(node)
	}

	p.must(0, 0, "raft", "remove", fourth.ID)
	p.eventually("the removed node says so", func() error {
		if log := joined.Output(); !strings.Contains(log, "was removed from its domain") {
			return errors.New(log)
		}

		return nil
	})
}

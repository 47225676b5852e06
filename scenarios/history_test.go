package scenarios

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
)

// All nodes of a domain stop, and two disks of three are lost. In whichever order they start (two orders, all in
// the long run), no second history begins: nothing that was acknowledged is lost, the peer goes on to see it, and
// each node says what to do. An operator recovers the third disk.
//
// Requirement: FLD-023
func TestTwoDisksOfThreeAreLost(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "2", "--nodes", "3", "--sample", "0")
	nodes := p.Domains[0].Nodes

	if _, err := p.client(0, 0, "agent/ada").Register(t.Context(), "kept", []byte(`{"base":"https://kept.example/"}`),
		apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
		t.Fatal(err)
	}

	p.peerSees("kept")
	p.eventually("each node has it on disk", func() error {
		for i := range nodes {
			if _, err := p.client(0, i, "agent/ada").GetFresh(t.Context(), "kept",
				apiclient.ReadOptions{Consistency: "linearizable"}); err != nil {
				return err
			}
		}

		return nil
	})

	orders := [][]int{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}}

	for _, order := range orders[:long(len(orders), 2)] {
		for _, n := range nodes {
			p.kill(n)
		}

		p.loseData(nodes[0])
		p.loseData(nodes[1])

		for _, i := range order {
			p.restartUntil(nodes[i], "up and waits", saysAny("does not answer", "no answer at", "empty", "no leader"))
		}

		for _, n := range nodes {
			p.eventually(fmt.Sprintf("order %v: %s says what to do", order, n.ID),
				func() error { return saysAny("roster snapshot salvage")(n) })
		}

		p.eventually("status says it, too", func() error {
			out, _ := p.roster(0, 2, "status")
			if !strings.Contains(strings.Join(strings.Fields(out), " "), "snapshot salvage") {
				return errors.New(out)
			}

			return nil
		})
		p.peerSees("kept")
	}

	for _, n := range nodes {
		p.kill(n)
	}

	p.salvage(nodes)
	p.peerSees("kept")
}

// loseData removes all that a killed node has stored.
func (p *processes) loseData(n dev.Node) {
	p.t.Helper()

	must(p.t, os.RemoveAll(n.Data))
}

// peerSees fails unless each node of the second domain shows an agent of the first.
func (p *processes) peerSees(agent string) {
	p.t.Helper()

	for i := range p.Domains[1].Nodes {
		p.eventually("the peer sees "+agent, func() error {
			page, err := p.client(1, i, "agent/bob").Lookup(p.t.Context(), apiclient.LookupOptions{Agent: agent})
			if err == nil && len(page.Agents) != 1 {
				err = fmt.Errorf("node %d shows %d", i, len(page.Agents))
			}

			return err
		})
	}
}

// saysAny returns a condition: the node runs, and is not ready for a reason with one of these words.
func saysAny(words ...string) func(dev.Node) error {
	return func(n dev.Node) error {
		resp, err := admin.Get(n.Admin + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()

		text, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
		for _, word := range words {
			if strings.Contains(string(text), word) {
				return nil
			}
		}

		return fmt.Errorf("%s: %s", resp.Status, text)
	}
}

// salvage recovers a domain from its last disk, as docs/runbooks.md says.
func (p *processes) salvage(nodes []dev.Node) {
	p.t.Helper()

	backup := p.dir + "/salvaged"
	p.await(p.run("snapshot", "salvage", backup, "--config", nodes[2].Config, "--plaintext"))

	for _, n := range nodes {
		p.loseData(n)
	}

	for _, n := range nodes {
		p.release(n.ID)
		p.serve(n)
	}

	for _, n := range nodes {
		p.eventually(n.ID+" is ready", func() error { return ready(n) })
	}

	p.must(0, 0, "snapshot", "restore", backup, "--new-epoch")

	if _, err := p.client(0, 0, "agent/ada").GetFresh(p.t.Context(), "kept",
		apiclient.ReadOptions{Consistency: "linearizable"}); err != nil {
		p.t.Errorf("after the restore: %v", err)
	}

	// Peers show it again once its owner has confirmed it.
	if _, err := p.client(0, 0, "agent/ada").Register(p.t.Context(), "kept",
		[]byte(`{"base":"https://kept.example/"}`), apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
		p.t.Error(err)
	}
}

package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A domain of the previous release becomes one of this release, a node at a time. While nodes of
// both releases are in it, each of them leads in turn under 500 requests a second, none of which
// fails, and all write the log as the previous release reads it. An operator's command is in the audit
// log of every node. The nodes have one ledger at all times. STORY_LONG=1 does it for 10 minutes.
//
// Requirement: OPS-012
func TestTwoReleasesShareADomain(t *testing.T) {
	story(t)

	previous := previousRelease(t)

	path, err := program()
	must(t, err)

	this := release{"this", path}
	p := startRelease(t, previous.path, "--domains", "1", "--nodes", "3", "--sample", "0")
	nodes := p.Domains[0].Nodes

	p.register(0, 0, "fixed")
	p.eventually("every node has the fixed registration", func() error {
		return errors.Join(p.finds(0, 0, "fixed"), p.finds(0, 1, "fixed"), p.finds(0, 2, "fixed"))
	})

	load := p.load()
	load.await(200)

	// The nodes of the previous release stop without a drain, which interrupts requests. Between two
	// upgrades nothing fails.
	turn := int64(long(66*500, 100)) // requests

	for _, upgraded := range []int{2, 1, 0} {
		p.upgrade(nodes[upgraded], this)

		for i := range nodes {
			p.leads(i)
			load.pause()() // until the requests have ended that the node interrupted
			_, _ = load.takeFailures()

			for done := load.count.Load() + turn; load.count.Load() < done; {
				load.await(min(500, turn))
			}

			if many, examples := load.takeFailures(); many > 0 {
				t.Errorf("%d requests failed while node %d led, with node %d as the last upgraded: %q", many, i+1,
					upgraded+1, examples)
			}
		}

		resume := load.pause()
		p.equalLedgers(0)
		resume()

		p.must(0, 2, "raft", "admit", "--standing", "--max", strconv.Itoa(5+upgraded), standingPattern)
	}

	for _, n := range nodes {
		p.eventually("the command is traced on every member", func() error {
			trail, err := os.ReadFile(filepath.Join(n.Data, "audit.jsonl"))
			if err == nil && !bytes.Contains(trail, []byte(standingPattern)) {
				err = fmt.Errorf("not in the audit log of %s", n.ID)
			}

			return err
		})
	}

	load.await(100)
	load.stop()
	p.equalLedgers(0)
	t.Logf("%d requests in %s", load.count.Load(), time.Since(load.began).Round(time.Second))

	for n := range nodes {
		at := p.client(0, n, "agent/ada")
		p.eventually("everything acknowledged is visible", func() error {
			return shows(t, at, &load.acknowledged)
		})
	}
}

const standingPattern = "spiffe://alpha.test/roster/node/pod-*"

// leads has a node of the first domain lead.
func (p *processes) leads(n int) {
	p.t.Helper()

	p.eventually(p.Domains[0].Nodes[n].ID+" leads", func() error {
		if p.leader(0).ID == p.Domains[0].Nodes[n].ID {
			return nil
		}

		out, code := p.roster(0, n, "raft", "transfer", strconv.Itoa(n+1))
		if code == 0 {
			return nil
		}

		return errors.New(out)
	})
}

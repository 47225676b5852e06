package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/node/dev"
)

// A leader that was stopped does not answer from the past when it goes on: real
// nodes, real sockets, and the leader's process is stopped (SIGSTOP) again and
// again for longer than an election takes, while agents work at all nodes and
// wait at the stopped one too.
//
// Requirement: OPS-017
func TestAStoppedLeaderIsNeverStale(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")
	h := newHistory()
	done := make(chan struct{})

	var clients sync.WaitGroup
	for i := range 3 {
		for j := range 4 {
			c := &linearClient{
				history: h, id: i*4 + j, node: p.client(0, i, "agent/ada"),
				names: []string{"one", "two", "three", "four"}, consistency: "linearizable",
				timeout: 6 * time.Second, pause: 5 * time.Millisecond, rng: rand.New(rand.NewPCG(1, uint64(i*4+j))),
			}
			clients.Go(func() { c.run(t, done) })
		}
	}

	more := func(what string) {
		reads, writes := h.answers()
		p.eventually(what, func() error {
			if r, w := h.answers(); r < reads+20 || w < writes+20 {
				return fmt.Errorf("%d reads and %d writes were answered", r-reads, w-writes)
			}

			return nil
		})
	}
	for range 3 {
		more("agents work")
		leader := p.leader(0)
		resume := p.suspend(leader)
		time.Sleep(2500 * time.Millisecond) // longer than the others take to elect
		more("agents work under a new leader")
		resume()
		time.Sleep(200 * time.Millisecond)
	}

	close(done)
	clients.Wait()
	h.check(t)
}

// leader returns the node that leads a domain.
func (p *processes) leader(domain int) (leader dev.Node) {
	p.t.Helper()
	p.eventually("there is a leader", func() error {
		ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
		defer cancel()

		s, _, err := p.client(domain, 0, "ops/operator").Operator().Raft(ctx)
		if err != nil {
			return err
		}

		for _, n := range p.Domains[domain].Nodes {
			if n.ID == s.Leader {
				leader = n
				return nil
			}
		}

		return fmt.Errorf("the leader is %q", s.Leader)
	})

	return leader
}

// suspend stops a node's process, by its id, until resume is called.
func (p *processes) suspend(n dev.Node) (resume func()) {
	p.t.Helper()
	send := func(s syscall.Signal) {
		if err := syscall.Kill(n.PID, s); err != nil {
			p.t.Errorf("%v to %s: %v", s, n.ID, err)
		}
	}
	send(syscall.SIGSTOP)
	resume = sync.OnceFunc(func() { send(syscall.SIGCONT) })
	p.t.Cleanup(resume)

	return resume
}

package scenarios

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// regions is the network between three regions: 100 ms there and back, and some jitter.
var regions = mesh.Link{Delay: 50 * time.Millisecond, Jitter: 5 * time.Millisecond}

// A domain has its three voters in three regions. Agents register in each of them; a write
// crosses to the leader and from there to the next voter. The leader dies again and again: its
// process ends, and its connections with it, or its host is lost and answers no more. A day
// without events begins no election. All times are those of the network, whatever the machine
// does.
//
// Requirement: OPS-018
func TestThreeRegions(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		log := &electionLog{}
		m := mesh.Start(t, mesh.Options{Nodes: 3, Seed: seed, Link: regions, Log: log})
		domain := m.Domain("alpha.test")

		took := writeEverywhere(m, domain, directorytest.Sample(50, 20))
		p99 := took[len(took)*99/100]

		if p99 > 400*time.Millisecond {
			t.Errorf("writes took %s at p99", p99)
		}

		var gaps []time.Duration
		for round := range long(40, directorytest.Sample(8, 4)) {
			gap := surviveLeader(m, domain, fmt.Sprint("after-", round), round%2 == 1)
			gaps = append(gaps, gap)

			// A vote that the two survivors split is repeated.
			if gap > 8*time.Second {
				t.Errorf("death %d of a leader: the next write came after %s", round, gap)
			}
		}

		if late := slices.Sorted(slices.Values(gaps))[len(gaps)*9/10-1]; late > 5*time.Second {
			t.Errorf("the next write came later than 5 s after more than a tenth of the deaths: %s", gaps)
		}

		domain.Leader()
		m.Sleep(time.Minute) // until the last leader that was killed has caught up

		before := log.elections.Load()
		if before < int64(len(gaps)) {
			t.Errorf("%d elections are in the logs; %d leaders died", before, len(gaps))
		}

		day := time.Duration(long(24*60, directorytest.Sample(30, 5))) * time.Minute
		m.Sleep(day)

		if n := log.elections.Load() - before; n > 0 {
			t.Errorf("%d elections in %s without events", n, day)
		}

		t.Logf("%d writes: %s at the median, %s at p99; %s to the next write after the death of a leader; "+
			"no election in %s", len(took), took[len(took)/2], p99, gaps, day)
	})
}

// writeEverywhere registers n agents at each node of a domain, one after the other, at all
// nodes at once. It returns the durations in ascending order.
func writeEverywhere(m *mesh.Mesh, domain *mesh.Domain, n int) []time.Duration {
	took := make([][]time.Duration, len(domain.Nodes))

	var all sync.WaitGroup
	for at, node := range domain.Nodes {
		all.Go(func() {
			for i := range n {
				began := time.Now()
				m.RegisterAt(node, fmt.Sprintf("agent-%d-%d", at, i), 7*86400)
				took[at] = append(took[at], time.Since(began))
			}
		})
	}

	all.Wait()

	together := slices.Concat(took...)
	slices.Sort(together)

	return together
}

// surviveLeader kills the leader of a domain, or loses its host, and brings it back after the
// next write at another node. It returns the time from its death to that write.
func surviveLeader(m *mesh.Mesh, domain *mesh.Domain, name string, host bool) time.Duration {
	leader := domain.Leader()
	kill, revive := leader.Kill, leader.Restart

	if host {
		kill = func() { m.Freeze(leader) }
		revive = func() { m.Thaw(leader) }
	}

	written := func(survivor *mesh.Node) bool {
		_, err := m.TryRegisterAt(survivor, name, 7*86400)
		return err == nil
	}

	kill()

	began := time.Now()

	for !slices.ContainsFunc(leader.Others(), written) {
		time.Sleep(10 * time.Millisecond)
	}

	gap := time.Since(began)

	revive()
	m.Eventually(time.Minute, leader.Name+" is ready", leader.Ready)

	return gap
}

// An electionLog counts the elections that the nodes' logs report.
type electionLog struct{ elections atomic.Int64 }

func (l *electionLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *electionLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *electionLog) WithGroup(string) slog.Handler            { return l }

func (l *electionLog) Handle(_ context.Context, line slog.Record) error {
	if strings.Contains(line.Message, "entering candidate state") {
		l.elections.Add(1)
	}

	return nil
}

package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// Requirement: AD-017
func TestNothingAcknowledgedIsLost(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		var mu sync.Mutex
		kept := map[string]directory.RID{}
		stop := d.writers(4, &mu, func(s *Store, w, i int) {
			name := fmt.Sprintf("agent-%d-%d", w, i)
			if out, err := s.Register(t.Context(), put(t, ada, name, 600)); err == nil {
				mu.Lock()
				kept[name] = out.RID
				mu.Unlock()
			}
		})
		enough := func(n int) func() bool {
			return func() bool { mu.Lock(); defer mu.Unlock(); return len(kept) > n }
		}
		eventually(t, "some are registered", enough(50))

		for round := range 2 {
			leader, _ := d.leader()
			d.net.isolate(d.members[leader].Address) // a kill as the others see it
			s := d.nodes[leader]
			mu.Lock()
			d.nodes[leader] = nil
			n := len(kept)
			mu.Unlock()
			eventually(t, "a new leader takes writes", enough(n+50))

			must(t, s.Close())

			d.net.heal(d.members[leader].Address)
			mu.Lock()
			d.start(leader)
			mu.Unlock()
			t.Logf("round %d: %d are registered", round, n)
		}

		stop()
		d.ready()
		d.settled()

		for i, s := range d.nodes {
			for name, rid := range kept {
				if e, ok := s.cfg.Index.Get(rid); !ok || e.Agent != name {
					t.Fatalf("node %d has lost %s, which was acknowledged", i, name)
				}
			}
		}

		size, root := d.nodes[0].Replica.Ledger()
		for _, s := range d.nodes[1:] {
			if n, r := s.Replica.Ledger(); n != size || r != root {
				t.Errorf("the ledgers differ: %d %s and %d %s", size, root, n, r)
			}
		}
	})
}

// A snapshot is made where the log has grown, however few entries hold it, because a start would apply all of it. A
// member that starts has what it had.
func TestASnapshotIsMadeWhereTheLogHasGrown(t *testing.T) {
	inDomain(t, 1, func(c *Config) { c.Timing.SnapshotBytes = 4 << 10 }, func(t *testing.T, d *domain) {
		var last directory.Outcome
		for i := range 20 {
			last = d.register(0, fmt.Sprint("agent-", i), 600)
		}

		s := d.nodes[0]
		eventually(t, "there is a snapshot, and little log after it", func() bool {
			list, err := s.storage.disk.Snapshots.List()
			return err == nil && len(list) > 0 && s.storage.growth.bytes.Load() < s.storage.growth.limit.Load()
		})

		size, root := s.Replica.Ledger()

		d.restart(0)

		if s = d.nodes[0]; s.cfg.Index.Len() != 20 || s.storage.growth.bytes.Load() > 8<<10 {
			t.Errorf("after a restart: %d registrations, and %d bytes of log applied", s.cfg.Index.Len(),
				s.storage.growth.bytes.Load())
		}

		if n, r := s.Replica.Ledger(); n != size || r != root || s.Replica.Position() != last.Position {
			t.Errorf("after a restart: %s with the ledger %d %s, want %s with %d %s", s.Replica.Position(), n, r,
				last.Position, size, root)
		}
	})
}

// However few entries they are that Raft would keep.
func TestTheLogBehindASnapshotIsBounded(t *testing.T) {
	const limit = 64 << 10

	inDomain(t, 1, func(c *Config) { c.Timing.SnapshotBytes = limit }, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		written := 0
		for i := 0; written < 4*limit; i++ {
			r := put(t, ada, fmt.Sprint("agent-", i%5), 600)

			r.Document = directory.LoadDocument(directory.KindAD, directorytest.Weighty(i))
			_, err := s.Register(t.Context(), r)
			must(t, err)

			written += len(r.Document.Compressed().StoredBytes()) // as the log has it
		}

		kept := func() (bytes int) {
			first, err1 := s.storage.disk.Logs.FirstIndex()

			last, err2 := s.storage.disk.Logs.LastIndex()
			for i := first; i <= last; i++ {
				var e raft.Log
				if err := errors.Join(err1, err2, s.storage.disk.Logs.GetLog(i, &e)); err != nil {
					return math.MaxInt // it was deleted meanwhile
				}

				bytes += len(e.Data)
			}

			return bytes
		}
		eventually(t, "what is kept is no more than what comes between two snapshots, before the newest and behind it",
			func() bool {
				return kept() <= 2*limit
			})
	})
}

// A registration is there until its deadline on each member, and within two seconds on none.
func TestARegistrationEndsEverywhereAtItsDeadline(t *testing.T) {
	inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
		_, follower := d.leader()
		out := d.register(follower, "translator", 60)

		for _, step := range []struct {
			pause time.Duration
			there bool
		}{{59 * time.Second, true}, {3 * time.Second, false}} {
			time.Sleep(step.pause)

			for i, s := range d.nodes {
				if _, ok := s.cfg.Index.Get(out.RID); ok != step.there {
					t.Errorf("node %d has it: %t, want %t", i, ok, step.there)
				}
			}
		}
	})
}

// Requirement: MESH-002, MESH-020
func TestMembersAgreeAcrossLeaders(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		rounds := directorytest.Sample(20, 8)
		for round := range rounds {
			leader, _ := d.leader()

			var writers sync.WaitGroup
			for w := range 8 {
				writers.Go(func() {
					for i := range 10 {
						s := d.nodes[(w+i)%3]

						out, err := s.Register(t.Context(),
							put(t, ada, fmt.Sprintf("agent-%d-%d", w, (round+i)%15), 600))
						if err == nil && i%4 == 0 {
							_, err = s.Remove(t.Context(),
								directory.RemoveRequest{Caller: directory.Caller{Identity: ada}, RID: out.RID})
						}

						if err != nil && directory.ProblemOf(err) != directory.OutcomeUnknown {
							t.Error(err)
						}
					}
				})
			}

			writers.Go(func() { _ = d.nodes[leader].group.raft.LeadershipTransfer().Error() }) // in the midst of it
			writers.Wait()
		}

		d.ready()
		d.equalStates()

		s := d.nodes[0]
		if size, _ := s.Replica.Ledger(); size < uint64(80*rounds) {
			t.Errorf("only %d leaves", size)
		}

		ds, _, _ := s.Replica.Digests(directory.Mesh, 0, 1000)
		for _, dig := range ds {
			if !dig.Live() {
				continue
			}

			first, _, _ := s.Replica.Record(directory.Mesh, dig.H, dig.M)
			for _, other := range d.nodes[1:] {
				if payload, _, ok := other.Replica.Record(directory.Mesh, dig.H, dig.M); !ok ||
					!bytes.Equal(payload, first) {
					t.Fatalf("the statement of %s differs", dig.RID)
				}
			}
		}
	})
}

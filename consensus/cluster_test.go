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

// Requirement: AD-017, AD-018
func TestThreeMembersTakeWritesEverywhere(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()

		out := d.register(follower, "translator", 600)

		if e, ok := d.nodes[follower].cfg.Index.Get(out.RID); !ok || e.Agent != "translator" {
			t.Error("the writer cannot read its write where it wrote it")
		}

		_, err := d.nodes[follower].Register(t.Context(), put(t, bob, "translator", 600))
		problem(t, err, directory.NameTaken)

		if want := "agent name 'translator' already registered"; err.Error() != want {
			t.Errorf("the detail is %q, want %q", err, want)
		}

		again, err := d.nodes[leader].Register(t.Context(), put(t, ada, "translator", 700))
		if err != nil || again.RID != out.RID || again.Created || !out.Position.Before(again.Position) {
			t.Errorf("a replace gave %+v, %v", again, err)
		}

		d.settled()
	})
}

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

			if err := s.Close(); err != nil {
				t.Error(err)
			}

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

// However few entries hold it: a start would apply all of it.
func TestASnapshotIsMadeWhereTheLogHasGrown(t *testing.T) {
	inDomain(t, 1, func(c *Config) { c.Timing.SnapshotBytes = 4 << 10 }, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		for i := range 20 {
			if _, err := s.Register(t.Context(), put(t, ada, fmt.Sprint("agent-", i), 600)); err != nil {
				t.Fatal(err)
			}
		}

		eventually(t, "there is a snapshot, and little log after it", func() bool {
			list, err := s.storage.disk.Snapshots.List()
			return err == nil && len(list) > 0 && s.storage.growth.bytes.Load() < s.storage.growth.limit.Load()
		})
		d.restart(0)

		if s = d.nodes[0]; s.cfg.Index.Len() != 20 || s.storage.growth.bytes.Load() > 8<<10 {
			t.Errorf("after a restart: %d registrations, and %d bytes of log applied", s.cfg.Index.Len(),
				s.storage.growth.bytes.Load())
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
			if _, err := s.Register(t.Context(), r); err != nil {
				t.Fatal(err)
			}

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

func TestRestartFromDisk(t *testing.T) {
	inDomain(t, 1, func(c *Config) { c.Timing.SnapshotEvery = 16 }, func(t *testing.T, d *domain) {
		var last directory.Outcome
		for i := range 50 {
			var err error
			if last, err = d.nodes[0].Register(t.Context(), put(t, ada, fmt.Sprint("agent-", i), 600)); err != nil {
				t.Fatal(err)
			}

			if i == 30 {
				must(t, d.nodes[0].group.raft.Snapshot().Error())
			}
		}

		size, root := d.nodes[0].Replica.Ledger()
		d.restart(0)

		s := d.nodes[0]
		if s.Replica.Position() != last.Position || s.cfg.Index.Len() != 50 {
			t.Errorf("after a restart: %s with %d, want %s with 50", s.Replica.Position(), s.cfg.Index.Len(),
				last.Position)
		}

		if n, r := s.Replica.Ledger(); n != size || r != root {
			t.Errorf("the ledger was %d %s and is %d %s", size, root, n, r)
		}
	})
}

func TestInABubble(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		_, follower := d.leader()

		out := d.register(follower, "translator", 600)

		time.Sleep(599 * time.Second)

		for i, s := range d.nodes {
			if _, ok := s.cfg.Index.Get(out.RID); !ok {
				t.Errorf("node %d dropped it before its deadline", i)
			}
		}

		time.Sleep(3 * time.Second)

		for i, s := range d.nodes {
			if _, ok := s.cfg.Index.Get(out.RID); ok {
				t.Errorf("node %d has it two seconds after its deadline", i)
			}
		}
	})
}

// Requirement: MESH-002, MESH-020
func TestMembersAgreeAcrossLeaders(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		for round := range 20 {
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
		if size, _ := s.Replica.Ledger(); size < 1600 {
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

package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
)

// A forkedLog is a log that signs two branches, as a dishonest one may: they are the same up to fork.
type forkedLog struct {
	origin string
	fork   uint64
}

// root stands for the root of a branch at a size.
func (l *forkedLog) root(branch byte, size uint64) directory.Hash {
	if size <= l.fork {
		branch = 0
	}

	return directory.HashOf(fmt.Append(nil, l.origin, branch, size))
}

// continues stands for a consistency proof: whether a branch at any larger size continues a checkpoint.
func (l *forkedLog) continues(branch byte, from CosignedLog) bool {
	return from.Size == 0 || from.Root == l.root(branch, from.Size)
}

// submit has a member take the next checkpoint of a branch, as its entry member verifies it, and reports
// whether it was cosigned.
func (l *forkedLog) submit(ctx context.Context, s *Store, branch byte, more uint64) (Checkpoint, bool) {
	last, _, _ := s.Cosigned(l.origin)
	if !l.continues(branch, last) {
		return Checkpoint{}, false
	}

	size := last.Size + more
	c := Checkpoint{Origin: l.origin, Old: last.Size, Size: size, Root: l.root(branch, size), Note: l.origin + "\n"}
	_, err := s.Cosign(ctx, c, nil)

	return c, err == nil
}

// A witness domain of three never cosigns two branches of a log, however its members, which lag, are
// asked, and whoever leads. A thousand logs are tried at night.
//
// Requirement: MESH-023
func TestTwoBranchesAreNeverCosigned(t *testing.T) {
	domains := 5
	if os.Getenv("STORY_LONG") != "" {
		domains = 100
	}

	forked := 0

	for seed := range domains {
		t.Run(fmt.Sprint("domain ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { forked += forkTenLogs(t, uint64(seed)) })
		})
	}

	if forked == 0 {
		t.Error("no log came to its fork")
	}
}

// forkTenLogs returns how many of ten logs have come to their fork.
func forkTenLogs(t *testing.T, seed uint64) (forked int) {
	d := newDomain(t, 3, func(cfg *Config) { cfg.CheckCheckpoint = nil })
	d.ready()

	for n := range uint64(10) {
		seed := seed*10 + n
		log := &forkedLog{fmt.Sprintf("liar.test/roster/%d", seed+1), seed % 4}

		var (
			mu       sync.Mutex // guards the field below
			cosigned []Checkpoint
			askers   sync.WaitGroup
		)
		for branch := range byte(2) {
			for asker := range uint64(2) {
				askers.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(branch)<<8|asker))
					for range 8 {
						s := d.nodes[random.IntN(3)]
						if c, ok := log.submit(t.Context(), s, branch+1, random.Uint64N(3)); ok {
							mu.Lock()
							cosigned = append(cosigned, c)
							mu.Unlock()
						}
					}
				})
			}
		}

		if seed%3 == 0 {
			leader, _ := d.leader()
			askers.Go(func() { _ = d.nodes[leader].group.raft.LeadershipTransfer().Error() })
		}

		askers.Wait()

		on := [2]bool{true, true}
		for _, c := range cosigned {
			on[0] = on[0] && c.Root == log.root(1, c.Size)
			on[1] = on[1] && c.Root == log.root(2, c.Size)
		}

		if !on[0] && !on[1] {
			t.Fatalf("seed %d: two branches were cosigned: %+v", seed, cosigned)
		}

		if on[0] != on[1] {
			forked++
		}
	}

	return forked
}

// Any member takes checkpoints and shows them; another member's is verified by the leader. Cosignatures
// are kept by the leader alone, and known to all members.
//
// Requirement: MESH-023, LOG-007
func TestAMembersCheckpointIsVerifiedByTheLeader(t *testing.T) {
	errForged := errors.New("the log has not signed it")

	var valid bool

	inDomain(t, 3, func(cfg *Config) {
		cfg.CheckCheckpoint = func(c Checkpoint, _ CosignedLog, proof []directory.Hash) error {
			if !valid || len(proof) != 1 {
				return directory.Refuse(directory.Forbidden, "%s: %w", c.Origin, errForged)
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		c := Checkpoint{Origin: "beta.test/roster/1", Size: 3, Root: directory.Hash{1}, Note: "beta.test/roster/1\n3\n"}

		if _, err := d.nodes[follower].Cosign(t.Context(), c, nil); directory.ProblemOf(err) != directory.Forbidden {
			t.Errorf("a forged one: got %v", err)
		}

		valid = true

		out, err := d.nodes[follower].Cosign(t.Context(), c, []directory.Hash{{2}})
		if err != nil || out.CosignedAt == 0 || out.Position.Epoch == 0 {
			t.Fatalf("got %+v, %v", out, err)
		}

		size, root := d.nodes[leader].Ledger()
		own := Cosignatures{Epoch: out.Position.Epoch, Size: size, Root: root, Lines: "— beta.test/witness AAAA\n"}

		must(t, d.nodes[leader].KeepCosignatures(t.Context(), own))

		for i, s := range d.nodes {
			eventually(t, fmt.Sprint("node ", i, " knows both"), func() bool {
				log, epoch, ok := s.Cosigned(c.Origin)
				kept := s.Cosignatures()
				kept.At = own.At

				return ok && log.Size == 3 && epoch == own.Epoch && kept == own
			})
		}

		own.Lines += own.Lines
		problem(t, d.nodes[follower].KeepCosignatures(t.Context(), own), directory.Unavailable) // they aren't forwarded
	})
}

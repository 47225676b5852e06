package consensus

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory"
)

// A linearizable read on any member shows what any other member acknowledged
// just before, and none of them costs a log entry.
func TestALinearizableReadShowsWhatWasAcknowledged(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		for i := range 60 {
			out := d.register(i%3, fmt.Sprint("agent-", i), 600)

			for j, s := range d.nodes {
				must(t, s.reader.Linearize(t.Context()))

				if _, ok := s.cfg.Index.Get(out.RID); !ok {
					t.Fatalf("node %d does not show what node %d acknowledged", j, i%3)
				}
			}
		}

		d.settled()
		leader, _ := d.leader()

		before := d.nodes[leader].group.raft.LastIndex()
		for range 100 {
			for _, s := range d.nodes {
				must(t, s.reader.Linearize(t.Context()))
			}
		}

		if after := d.nodes[leader].group.raft.LastIndex(); after > before+2 { // the key document's issue, a nudge
			t.Errorf("300 reads made %d log entries", after-before)
		}
	})
}

// A read that comes while the question to the majority is under way waits for the next
// question: the answer under way may be older than a write that was acknowledged before
// the read began. Reads that come while it waits share that next question.
func TestAReadWaitsForAQuestionThatBeganAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		r := newReader(&member{life: newLifecycle(nil)}, nil)
		s := &r.confirmed
		answers := make(chan uint64)
		asked := 0

		go s.answer(ctx, func() (directory.Position, error) {
			asked++

			select {
			case revision := <-answers:
				return directory.Position{Revision: revision}, nil
			case <-ctx.Done():
				return directory.Position{}, ctx.Err()
			}
		})

		join := func() <-chan uint64 {
			got := make(chan uint64, 1)
			go func() {
				at, err := s.join(ctx)
				if err != nil {
					t.Error(err)
				}

				got <- at.Revision
			}()
			synctest.Wait()

			return got
		}

		first := join()
		second, third := join(), join()
		answers <- 1
		synctest.Wait()

		if got := <-first; got != 1 {
			t.Errorf("the first read has the answer %d", got)
		}

		for _, read := range []<-chan uint64{second, third} {
			select {
			case got := <-read:
				t.Fatalf("a read has the answer %d to a question that began before it", got)
			default:
			}
		}

		answers <- 2

		if a, b := <-second, <-third; a != 2 || b != 2 || asked != 2 {
			t.Errorf("the later reads have the answers %d and %d of %d questions, not 2 of 2", a, b, asked)
		}
	})
}

// A leader that was cut off confirms nothing: not while it still takes itself for
// the leader, and not when it finds what it missed.
//
// Requirement: OPS-017
func TestWithoutAMajorityNothingIsConfirmed(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		s := d.nodes[leader]
		d.net.isolate(d.members[leader].Address)
		began := time.Now()
		problem(t, s.reader.Linearize(t.Context()), directory.Unavailable)

		if took := time.Since(began); took > s.cfg.Timing.Heartbeat {
			t.Errorf("to say so took %s", took)
		}

		time.Sleep(5 * time.Second)
		began = time.Now()
		problem(t, s.reader.Linearize(t.Context()), directory.Unavailable)

		if took := time.Since(began); took > 0 {
			t.Errorf("without a leader it took %s to say so", took)
		}

		out := d.register(other, "elsewhere", 600)

		d.net.heal(d.members[leader].Address)

		for err := s.reader.Linearize(t.Context()); err != nil; err = s.reader.Linearize(t.Context()) {
			problem(t, err, directory.Unavailable)
			time.Sleep(10 * time.Millisecond)
		}

		if _, ok := s.cfg.Index.Get(out.RID); !ok {
			t.Error("confirmed without what was acknowledged elsewhere")
		}
	})
}

// A member's old word does not count: the leader is asked to confirm itself while
// the others are in a later term.
func TestALaterTermIsNotOverlooked(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		for range 20 { // where the machine is busy, a member's answer or the next leader may come too late
			d.ready()
			leader, _ := d.leader()
			s := d.nodes[leader]

			term := s.terms.leader().term
			if s.reader.poll(t.Context(), term) != nil || s.group.raft.LeadershipTransfer().Error() != nil {
				continue
			}

			if next, _ := d.leader(); next == leader {
				continue // it was elected again at once
			}

			// A member that voted for the next leader knows its term; one that didn't was not needed for it.
			if err := s.reader.poll(t.Context(), term); err == nil && s.group.raft.CurrentTerm() == term {
				t.Error("a term that is over was confirmed")
			}

			eventually(t, "a read is confirmed by the new leader", func() bool {
				return s.reader.Linearize(t.Context()) == nil
			})

			return
		}

		t.Error("no leader was confirmed in its term and then handed over")
	})
}

// A read waits for the commands up to the commit index; entries that never
// reach the machine don't hold it up.
func TestEntriesWithoutCommandsDoNotHoldAReadUp(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		for range 3 {
			must(t, s.group.raft.Barrier(time.Second).Error())
		}

		must(t, s.reader.Linearize(t.Context()))

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()

		must(t, s.reader.awaitIndex(ctx, s.group.raft.LastIndex()))

		if s.Replica.progress.applied.Load() == 0 || s.group.raft.State() != raft.Leader {
			t.Error("nothing is known to be applied")
		}
	})
}

// A leader that stands still while the others elect another confirms nothing,
// though it takes itself for the leader and nobody has told it otherwise: its
// disk hangs, which holds up Raft's own looking after its lease where it writes
// other things than commands, and it is cut off.
func TestALeaderThatStandsStillConfirmsNothing(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		s := d.nodes[leader]
		hang := make(chan struct{})
		d.log(leader).hang.Store(&hang)
		release := sync.OnceFunc(func() {
			d.log(leader).hang.Store(nil)
			close(hang)
		})
		defer release() // or a failure would wait for the disk for ever
		late := make(chan error, 1)
		go func() {
			_, err := s.Register(t.Context(), put(t, ada, "hangs", 600))
			late <- err
		}()
		time.Sleep(50 * time.Millisecond)
		s.group.raft.Barrier(time.Second)
		time.Sleep(50 * time.Millisecond)
		d.net.isolate(d.members[leader].Address)

		var out directory.Outcome
		eventually(t, "the others have a leader that takes writes", func() (ok bool) {
			var err error
			out, err = d.nodes[other].Register(t.Context(), put(t, ada, "goes-on", 600))

			return err == nil
		})

		if s.group.raft.State() != raft.Leader || !s.IsLeader() {
			t.Fatal("it knows that it does not lead: this shows nothing")
		}

		problem(t, s.reader.Linearize(t.Context()), directory.Unavailable)
		problem(t, <-late, directory.OutcomeUnknown)
		release()
		d.net.heal(d.members[leader].Address)
		d.ready()

		must(t, s.reader.Linearize(t.Context()))

		if _, ok := s.cfg.Index.Get(out.RID); !ok {
			t.Error("confirmed without what was acknowledged elsewhere")
		}
	})
}

// A linearizable read at a leader whose disk is slow waits for it as a write does.
func TestAReadWaitsForASlowDisk(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		d.log(0).delay.Store(int64(2 * LocalTiming.Heartbeat))

		done := make(chan error, 1)
		go func() {
			_, err := d.nodes[0].Register(t.Context(), put(t, ada, "slow", 600))
			done <- err
		}()

		time.Sleep(LocalTiming.Heartbeat / 4)

		if err := d.nodes[0].Linearize(t.Context()); err != nil {
			t.Errorf("a read while the disk is slow: %v", err)
		}

		must(t, <-done)
	})
}

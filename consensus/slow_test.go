package consensus

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
)

// write has agents written at a member at intervals until stop is closed.
func write(t *testing.T, s *Store, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}

		_, _ = s.Register(t.Context(), put(t, ada, fmt.Sprint("agent-", i%10), 600))
	}
}

// A leader whose disk is slow for long hands over, within seconds; one that is
// slow now and then does not.
func TestALeaderWithASlowDiskHandsOver(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		stop := make(chan struct{})

		var writers sync.WaitGroup
		writers.Go(func() { write(t, d.nodes[other], stop) })

		for range 20 { // slow for a second, again and again
			d.log(leader).delay.Store(int64(900 * time.Millisecond))
			time.Sleep(1100 * time.Millisecond)
			d.log(leader).delay.Store(0)
			time.Sleep(2 * time.Second) // enough for the last slow append and several that are not
		}

		if now, _ := d.leader(); now != leader {
			t.Fatal("a leader handed over that was slow for a second")
		}

		d.log(leader).delay.Store(int64(900 * time.Millisecond))
		time.Sleep(9 * time.Second)

		if now, _ := d.leader(); now == leader {
			t.Fatal("a leader with a slow disk goes on")
		}

		began := time.Now()

		d.register(other, "after", 600)

		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("a write takes %s under the new leader", took)
		}

		close(stop)
		writers.Wait()
	})
}

// A leader whose disk hangs is replaced though Raft itself waits for the disk;
// it says that it is not ready, and shows what it missed once the disk answers.
func TestALeaderWithAHangingDiskIsReplaced(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		s := d.nodes[leader]
		hang := make(chan struct{})
		d.log(leader).hang.Store(&hang)

		registered := make(chan error, 1)
		go func() {
			_, err := s.Register(t.Context(), put(t, ada, "hangs", 600))
			registered <- err
		}()

		eventually(t, "it knows that its disk hangs", func() bool { return s.diskWatch.hanging() > 0 })

		if s.diskWatch.Heard() == 0 {
			t.Error("a leader whose disk hangs has heard of itself a moment ago")
		}

		problem(t, <-registered, directory.OutcomeUnknown)
		time.Sleep(3 * time.Second)

		if err := s.Ready(); !errors.Is(err, errDiskHangs) || s.diskWatch.Heard() == 0 {
			t.Errorf("ready: %v, and the leader was heard %s ago", err, s.diskWatch.Heard())
		}

		// A member that counts on it for a majority is told.
		var answer message.TermAnswer

		err := d.nodes[other].messenger.post(t.Context(), d.members[leader], termPath, &message.TermRequest{}, &answer)
		if err != nil || !answer.Unable {
			t.Errorf("it can acknowledge entries: %+v, %v", answer, err)
		}

		out, err := d.nodes[other].Register(t.Context(), put(t, ada, "goes-on", 600))
		if err != nil {
			t.Fatalf("the others do not go on: %v", err)
		}

		problem(t, s.reader.Linearize(t.Context()), directory.Unavailable)
		d.log(leader).hang.Store(nil)
		close(hang)
		d.ready()
		d.settled()

		must(t, s.reader.Linearize(t.Context()))

		if _, ok := s.cfg.Index.Get(out.RID); !ok {
			t.Error("it does not show what it missed")
		}
	})
}

// A member that was started again is ready when it has what the leader had, and
// not before, however slowly that comes.
//
// Requirement: OPS-015
func TestAMemberThatLagsIsNotReady(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		d.stop(follower)

		for i := range 300 {
			d.register(leader, fmt.Sprint("agent-", i), 600)
		}

		d.log(follower).delay.Store(int64(700 * time.Millisecond))
		d.start(follower)
		s := d.nodes[follower]
		began := time.Now()

		lagged := 0
		for s.Ready() != nil {
			if n := s.cfg.Index.Len(); n > 0 && n < 300 {
				lagged++
			}

			if time.Since(began) > time.Minute {
				t.Fatalf("not ready after a minute: %v", s.Ready())
			}

			time.Sleep(10 * time.Millisecond)
		}

		if n := s.cfg.Index.Len(); n != 300 || lagged == 0 {
			t.Errorf("ready with %d of 300; seen behind %d times", n, lagged)
		}
	})
}

// A leader that cannot write its log says that it must end, and why, shows nothing that is not there, and is
// replaced.
//
// Requirement: OPS-003
func TestAMemberThatCannotWriteSaysThatItMustEnd(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		s := d.nodes[leader]

		select {
		case <-s.Failed():
			t.Fatal("it failed before anything did")
		default:
		}

		d.log(leader).full.Store(true)
		_, err := s.Register(t.Context(), put(t, ada, "lost", 600))
		problem(t, err, directory.OutcomeUnknown)

		select {
		case <-s.Failed():
		case <-time.After(10 * time.Second):
			t.Fatal("it does not say so")
		}

		if err := s.Ready(); err == nil || err.Error() != "write the log: no space left on device" {
			t.Errorf("the reason is %v", err)
		}

		problem(t, s.reader.Linearize(t.Context()), directory.Unavailable)

		if s.cfg.Index.Len() != 0 {
			t.Error("what could not be written is shown")
		}

		eventually(t, "another member takes writes", func() bool {
			_, err := d.nodes[other].Register(t.Context(), put(t, ada, "after", 600))

			return err == nil
		})
	})
}

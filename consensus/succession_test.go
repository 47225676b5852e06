package consensus

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A leader that is stopped keeps nobody waiting for longer than it takes to have another:
// of a write that it was sent the outcome is unknown, one that it was to be sent goes to
// its successor.
func TestAStoppedLeaderKeepsNobodyWaiting(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()

		third := 3 - leader - other // has no line to the leader
		d.register(other, "before", 600)

		began := time.Now()
		d.net.hold(d.members[leader].Address, true)
		sent := make(chan error, 1)
		go func() {
			_, err := d.nodes[other].Register(t.Context(), put(t, ada, "sent", 600))
			sent <- err
		}()

		d.register(third, "unsent", 600)

		problem(t, <-sent, directory.OutcomeUnknown)

		if took := time.Since(began); took >= DefaultTiming.Write {
			t.Errorf("both have an answer after %s", took)
		}

		d.register(other, "sent", 600)

		d.net.hold(d.members[leader].Address, false)
		d.ready()
		d.settled()
	})
}

// A survivor that is elected itself does not keep its own writes waiting for the former leader,
// whose host answers no attempt to connect. Here the host is lost when its followers send their
// time, so that they wait for that answer, too.
func TestAnElectedMemberDropsItsAttemptToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var idle atomic.Bool

		lost := make(chan struct{}, 1)
		d := newDomain(t, 3, func(c *Config) {
			c.Timing.Presence = DefaultTiming.Write
			c.sent = func(message []byte) []byte {
				if idle.CompareAndSwap(true, false) {
					lost <- struct{}{}
					time.Sleep(time.Millisecond) // until the leader's host is lost
				}

				return message
			}
		})
		d.ready()
		leader, _ := d.leader()

		idle.Store(true) // the next message is a follower's time
		<-lost
		d.net.hold(d.members[leader].Address, true)

		began := time.Now()

		var survivors sync.WaitGroup
		for i, node := range d.nodes {
			if i == leader {
				continue
			}

			survivors.Go(func() {
				_, err := node.Register(t.Context(), put(t, ada, fmt.Sprint("agent-", i), 600))
				if took := time.Since(began); err != nil || took >= DefaultTiming.Write {
					t.Errorf("a write at survivor %d took %s: %v", i, took, err)
				}
			})
		}

		survivors.Wait()
		d.net.hold(d.members[leader].Address, false)
		d.ready()
		d.settled()
	})
}

// A former leader has a heartbeat to answer what it was sent, however soon before it the
// leadership has changed already: an answer that only comes late is not lost.
func TestAFormerLeaderHasAHeartbeatToAnswer(t *testing.T) {
	var slow [3]atomic.Bool

	i := 0

	inDomain(t, 3, func(c *Config) {
		busy := &slow[i%3]
		i++
		c.sent = func(message []byte) []byte {
			if busy.Load() {
				time.Sleep(LocalTiming.Heartbeat / 2)
			}

			return message
		}
	}, func(t *testing.T, d *domain) {
		first, second := d.leader()
		asks := 3 - first - second

		must(t, d.nodes[asks].Transfer(t.Context(), d.members[second].ID))

		time.Sleep(LocalTiming.Heartbeat / 2)
		slow[second].Store(true)

		_, err := d.nodes[asks].forwarder.write(t.Context(), &message.Request{
			Order: &message.Order{Verb: message.TransferLeadership, ID: d.members[first].ID},
		})
		if err != nil {
			t.Errorf("a transfer whose answer comes late: %v", err)
		}

		slow[second].Store(false)
	})
}

// A successor that answers a little later than Raft waits gets the leadership all the same, and
// the operator gets no error.
func TestASlowSuccessorIsAskedAgain(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, next := d.leader()
		asks := 3 - leader - next

		d.net.hold(d.members[next].Address, true)

		done := make(chan error, 1)
		go func() { done <- d.nodes[asks].Transfer(t.Context(), d.members[next].ID) }()

		time.Sleep(LocalTiming.Election * 5 / 4)
		d.net.hold(d.members[next].Address, false)

		if err := <-done; err != nil {
			t.Errorf("a transfer to a slow member: %v", err)
		}

		eventually(t, "the member leads", func() bool {
			now, _ := d.leader()
			return now == next
		})
	})
}

// A leader puts its own rules in force, and has forgotten the clocks that its followers had when it led before: it
// would stamp entries by them.
func TestALeaderBeginsItsTermAnew(t *testing.T) {
	late := func(c *Config) { c.Timing.Sweep = time.Hour }
	inDomain(t, 3, late, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		third := 3 - leader - other
		rules := Rules{PerOwner: 7}

		d.nodes[other].rules.Store(&rules) // as it has been started with
		must(t, d.nodes[leader].Transfer(t.Context(), d.members[other].ID))
		eventually(t, "the rules of the new leader are in force", func() bool {
			now := ask(d.nodes[third].Replica, func(s *state.State) Rules { return s.Owners().Rules() })

			return now.Equal(&rules)
		})

		d.net.isolate(d.members[third].Address)
		must(t, d.nodes[other].Transfer(t.Context(), d.members[leader].ID))
		eventually(t, "the first leader leads again", d.nodes[leader].IsLeader)

		clocks := &d.nodes[leader].clocks.presence
		clocks.mu.Lock()
		defer clocks.mu.Unlock()

		if reading, ok := clocks.seen[d.members[third].ID]; ok {
			t.Errorf("it knows the clock of a member by a reading of %s ago", time.Since(reading.at))
		}
	})
}

package consensus

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newClockDomain starts a domain whose members' clocks can be set wrong.
func newClockDomain(t *testing.T, n int) (*domain, []atomic.Int64) {
	wrong := make([]atomic.Int64, n)
	i := 0
	d := newDomain(t, n, func(c *Config) {
		mine := &wrong[i%n]
		i++
		c.clock = func() time.Time { return time.Now().Add(time.Duration(mine.Load())) }
	})
	d.ready()

	return d, wrong
}

// committed returns the time that a member's log has reached, and how many
// registrations it holds.
func committed(s *Store) (time.Time, int) {
	s.Replica.mu.RLock()
	defer s.Replica.mu.RUnlock()

	return time.UnixMilli(s.Replica.state.History().Now()), s.Replica.state.Registrations().Len()
}

// A leader whose clock is more than two seconds off its members' median hands
// over; one that is less off goes on (rule T2).
//
// Requirement: MESH-009
func TestALeaderWithAWrongClockHandsOver(t *testing.T) {
	for _, c := range []struct {
		off   time.Duration
		hands bool
	}{{3 * time.Second, true}, {-3 * time.Second, true}, {1500 * time.Millisecond, false},
		{-1500 * time.Millisecond, false}} {
		t.Run(c.off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, wrong := newClockDomain(t, 3)
				leader, _ := d.leader()
				time.Sleep(5 * time.Second) // the leader knows its members' clocks
				wrong[leader].Store(int64(c.off))
				time.Sleep(10 * time.Second)

				now, _ := d.leader()
				if (now != leader) != c.hands {
					t.Fatalf("handed over: %v, want %v", now != leader, c.hands)
				}

				_, err := d.nodes[leader].Register(t.Context(), put(t, ada, "translator", 600))
				if err != nil {
					t.Fatal(err)
				}

				if at, _ := committed(d.nodes[now]); time.Since(at).Abs() > 2*time.Second {
					t.Errorf("the write has the time %v at %v", at, time.Now())
				}

				d.close()
			})
		})
	}
}

// A follower whose clock is wrong is not ready, since it would show what lives as ended,
// and is again once it is right. One that is no further off than two clocks may be by
// rule T2 is ready; and where the leader's was wrong, all but that one are.
//
// Requirement: MESH-009
func TestAFollowerWithAWrongClockIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, wrong := newClockDomain(t, 3)
		leader, _ := d.leader()

		follower := (leader + 1) % 3
		for _, c := range []struct {
			off   time.Duration
			ready bool
		}{{time.Hour, false}, {-time.Hour, false}, {0, true}, {5 * time.Second, false},
			{3500 * time.Millisecond, true}} {
			wrong[follower].Store(int64(c.off))
			time.Sleep(5 * time.Second)

			if err := d.nodes[follower].Ready(); (err == nil) != c.ready {
				t.Errorf("%v off: %v", c.off, err)
			}
		}

		wrong[follower].Store(0)
		wrong[leader].Store(int64(time.Hour))
		time.Sleep(10 * time.Second)

		for i, n := range d.nodes {
			if err := n.Ready(); (err == nil) != (i != leader) {
				t.Errorf("member %d, where that of %d has a wrong clock: %v", i, leader, err)
			}
		}

		d.close()
	})
}

// A follower with a wrong clock doesn't become ready because another leads, who can't say
// at once what time it is; nor is it ready now and then because its clock is at the bound.
//
// Requirement: MESH-009
func TestAWrongClockIsNotReadyNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, wrong := newClockDomain(t, 3)
		leader, follower := d.leader()
		other := 3 - leader - follower
		wrong[follower].Store(int64(time.Hour))
		time.Sleep(5 * time.Second)
		watch := func(what string, ready bool) {
			t.Helper()

			for range 1000 {
				if err := d.nodes[follower].Ready(); (err == nil) != ready {
					t.Fatalf("%s: %v", what, err)
				}

				time.Sleep(10 * time.Millisecond)
			}
		}

		if err := d.nodes[leader].Transfer(t.Context(), d.members[other].ID); err != nil {
			t.Fatal(err)
		}

		watch("another leads", false)
		wrong[follower].Store(int64(2*maxOff - 100*time.Millisecond))
		watch("it is nearly right", false)
		wrong[follower].Store(0)
		time.Sleep(5 * time.Second)
		wrong[follower].Store(int64(2*maxOff - 100*time.Millisecond))
		watch("it is nearly wrong", true)
		d.close()
	})
}

// Who leads tells of no time, as one that is new: what another said before counts
// for a while only.
func TestAClockIsNotWrongForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clocks{cfg: &Config{clock: time.Now}}
		c.judgeClock(time.Now(), time.Now().Add(time.Hour).UnixMilli())
		c.judgeClock(time.Now(), 0)

		if c.clockOff.Load() == 0 {
			t.Error("it is right because nothing is said of it")
		}

		time.Sleep(clockKept)
		c.judgeClock(time.Now(), 0)

		if c.clockOff.Load() != 0 {
			t.Error("it is wrong by what was said long ago")
		}
	})
}

// A sweep that would end many registrations because time has jumped looks at the
// clocks again first: what a wrong clock would have ended lives on when the clock
// is put right in time, and ends when the clocks say that it is so (rule T2). A
// few end at once.
func TestAfterAJumpOfTimeTheSweepLooksTwice(t *testing.T) {
	for _, c := range []struct {
		name     string
		agents   int
		members  int
		putRight bool
		left     int
	}{
		{"many, and the clock is put right", 1200, 1, true, 1200},
		{"many, and it was so", 1200, 1, false, 0},
		{"many, and a majority says so", 1200, 3, false, 0},
		{"few", 500, 1, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, wrong := newClockDomain(t, c.members)
				leader, _ := d.leader()
				s := d.nodes[leader]

				var all sync.WaitGroup
				for w := range 50 {
					all.Go(func() {
						for i := w; i < c.agents; i += 50 {
							if _, err := s.Register(t.Context(),
								put(t, ada, fmt.Sprint("agent-", i), 600)); err != nil {
								t.Error(err)
							}
						}
					})
				}

				all.Wait()
				time.Sleep(3 * time.Second)
				set := func(to time.Duration) {
					for i := range wrong {
						wrong[i].Store(int64(to))
					}
				}
				set(time.Hour)
				time.Sleep(1500 * time.Millisecond)

				if _, n := committed(s); c.agents > 1012 && n != c.agents {
					t.Errorf("%d of %d are left before the clocks were asked again", n, c.agents)
				}

				if c.putRight {
					set(0)
				}

				time.Sleep(20 * time.Second)

				if _, n := committed(s); n != c.left {
					t.Errorf("%d are left, want %d", n, c.left)
				}

				d.close()
			})
		})
	}
}

package consensus

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// newClockDomain starts a domain whose members' clocks can be set wrong.
func newClockDomain(t *testing.T, n int) (*domain, []atomic.Int64) {
	wrong := make([]atomic.Int64, n)
	i := 0
	d := newDomain(t, n, func(c *Config) {
		quiet(c)

		mine := &wrong[i%n]
		i++
		c.Clock = directory.NewCheckedClock(func() time.Time { return time.Now().Add(time.Duration(mine.Load())) })
		c.Index.Clock.Checked = c.Clock
	})
	d.ready()

	return d, wrong
}

// committed returns the time that a member's log has reached, and how many
// registrations it holds.
func committed(s *Store) (time.Time, int) {
	count := ask(s.Replica, func(now *state.State) int { return now.Registrations().Len() })

	return s.clocks.committed(), count
}

// leaseEnd returns the deadline of a registration, zero for none.
func leaseEnd(s *Store, agent string) time.Time {
	if reg := s.Replica.named(agent); reg != nil {
		return time.UnixMilli(reg.Entry().ExpiresAt)
	}

	return time.Time{}
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

				d.register(leader, "translator", 600)

				if at, _ := committed(d.nodes[now]); time.Since(at).Abs() > 2*time.Second {
					t.Errorf("the write has the time %v at %v", at, time.Now())
				}
			})
		})
	}
}

// A leader stamps nothing while it does not know a majority's clocks, or is more than two seconds off them.
//
// Requirement: MESH-009
func TestALeaderStampsByAConfirmedClockAlone(t *testing.T) {
	cfg := &Config{Domain: alpha, Clock: directory.NewCheckedClock(time.Now), clock: time.Now, Timing: DefaultTiming}
	others := []Member{{ID: valueOf(alphaNode("n1"))}, {ID: valueOf(alphaNode("n2"))}}
	c := newClocks(cfg, newReplica(cfg, newLifecycle(nil)), func() ([]Member, int) { return others, 1 })

	if _, err := c.stamp(); err == nil {
		t.Error("it stamps by its own word")
	}

	for off, stamps := range map[time.Duration]bool{0: true, 1500 * time.Millisecond: true, 3 * time.Second: false,
		-1500 * time.Millisecond: true, -3 * time.Second: false} {
		for _, m := range others {
			c.presence.note(m.ID, time.Now().Add(off), time.Now())
		}

		if _, err := c.stamp(); (err == nil) != stamps {
			t.Errorf("the others are %v ahead: %v", off, err)
		}
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

		must(t, d.nodes[leader].Transfer(t.Context(), d.members[other].ID))

		watch("another leads", false)
		wrong[follower].Store(int64(2*maxOff - 100*time.Millisecond))
		watch("it is nearly right", false)
		wrong[follower].Store(0)
		time.Sleep(5 * time.Second)
		wrong[follower].Store(int64(2*maxOff - 100*time.Millisecond))
		watch("it is nearly wrong", true)
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
							_, err := s.Register(t.Context(),
								put(t, ada, fmt.Sprint("agent-", i), 60))
							must(t, err)
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
				set(directory.MaxStep - time.Second)
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
			})
		})
	}
}

// All clocks make the same step and are put right again, by an hour forward or back: leases that
// are asked for meanwhile and later are as long as granted, nothing ends early, and the domain's
// time goes on, also at a member that was started while the clocks were wrong, as a leader too.
//
// Requirement: FLD-024
func TestNoCommonStepOfClocksExtendsALease(t *testing.T) {
	for _, members := range []int{1, 3} {
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(fmt.Sprint(members, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, wrong := newClockDomain(t, members)
					lease := func(agent string) {
						t.Helper()

						leader, _ := d.leader()

						d.register(leader, agent, 600)

						for i, n := range d.nodes {
							eventually(t, "it is there", func() bool { return !leaseEnd(n, agent).IsZero() })

							if left := time.Until(leaseEnd(n, agent)); left > 600*time.Second ||
								left < 590*time.Second {
								t.Errorf("member %d: the lease of ten minutes of %s has %v left", i, agent, left)
							}

							if now := n.cfg.Index.Clock.Now(); time.Since(now).Abs() > 2*time.Second {
								t.Errorf("member %d shows by %v at %v", i, now, time.Now())
							}
						}
					}

					lease("before")
					time.Sleep(5 * time.Second)

					for i := range wrong {
						wrong[i].Store(int64(step))
					}

					time.Sleep(5 * time.Second)
					lease("while")

					if members > 1 {
						leader, _ := d.leader()
						next := (leader + 1) % members
						d.restart(next)
						time.Sleep(5 * time.Second)
						lease("started")

						must(t, d.nodes[leader].Transfer(t.Context(), d.members[next].ID))

						d.ready()
						lease("led")

						if step := d.nodes[leader].Clock().Step; step == 0 {
							t.Error("a follower doesn't say that its clock has made a step")
						}
					}

					for i := range wrong {
						wrong[i].Store(0)
					}

					time.Sleep(5 * time.Second)
					lease("after")

					for i := range members {
						if members > 1 {
							d.restart(i)
							time.Sleep(5 * time.Second)
						}
					}

					lease("later")

					for i, n := range d.nodes {
						if n.Clock().Step != 0 || n.Clock().Behind != 0 {
							t.Errorf("member %d: a step of %v, behind %v", i, n.Clock().Step, n.Clock().Behind)
						}
					}
				})
			})
		}
	}
}

// Clocks that were wrong and are put right make a step, too. It counts once all members' clocks
// have agreed for ten minutes, or as soon as a peer's time agrees with it or an operator says so at any
// member; not while one member's clock differs.
//
// Requirement: FLD-024
func TestAStepIsConfirmedFromOutside(t *testing.T) {
	for _, c := range []struct {
		name   string
		step   time.Duration
		member time.Duration // what one member's clock differs by
		by     string
		within time.Duration
	}{
		{"back, by agreement", -time.Hour, 0, "", agreeFor + 10*time.Second},
		{"forward, by a peer", time.Hour, 0, "peer", 10 * time.Second},
		{"back, by an operator", -time.Hour, 0, "operator", 10 * time.Second},
		{"one differs", -time.Hour, 10 * time.Second, "", 0},
		{"forward, by agreement", time.Hour, 0, "", agreeFor + 10*time.Second},
		{"back, by a peer", -time.Hour, 0, "peer", 10 * time.Second},
		{"forward, by an operator", time.Hour, 0, "operator", 10 * time.Second},
	}[:directorytest.Sample(7, 4)] {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, wrong := newClockDomain(t, 3)
				leader, _ := d.leader()
				time.Sleep(5 * time.Second)

				for i := range wrong {
					wrong[i].Store(int64(c.step))
				}

				wrong[(leader+1)%3].Add(int64(c.member))
				time.Sleep(5 * time.Second)

				switch c.by {
				case "peer":
					d.nodes[leader].cfg.Clock.Witness(time.Now().Add(c.step))
				case "operator":
					confirmSteps(t, d.nodes[(leader+1)%3], c.step)
				default:
					time.Sleep(agreeFor - 10*time.Second)

					if at, _ := committed(d.nodes[leader]); time.Since(at).Abs() > agreeFor+10*time.Second {
						t.Errorf("the committed time is %v at %v before the step is confirmed", at, time.Now())
					}
				}

				time.Sleep(max(c.within-agreeFor, 30*time.Second))

				d.register(leader, "translator", 600)

				want := c.step
				if c.within == 0 {
					want = 0
				}

				for i, n := range d.nodes {
					eventually(t, "it is there", func() bool { return !leaseEnd(n, "translator").IsZero() })

					left := time.Until(leaseEnd(n, "translator"))
					if off := left - 600*time.Second - want; off.Abs() > 3*time.Second {
						t.Errorf("member %d: the lease has %v left, want ten minutes after a step of %v", i, left, want)
					}

					if off := time.Until(n.cfg.Index.Clock.Now()) - want; off.Abs() > 3*time.Second {
						t.Errorf("member %d shows by a clock that is %v off", i, off)
					}

					if (n.Clock().Step == 0) != (c.within != 0) {
						t.Errorf("member %d: its clock has made a step of %v", i, n.Clock().Step)
					}
				}
			})
		})
	}
}

// confirmSteps confirms a step at a member, as an operator does. One who names another step changes nothing.
func confirmSteps(t *testing.T, s *Store, step time.Duration) {
	t.Helper()

	for _, other := range []time.Duration{-step, step + 2*time.Minute, 10 * time.Second} {
		if err := s.ConfirmClock(t.Context(), other); err == nil {
			t.Errorf("a step of %v was confirmed as one of %v", step, other)
		}
	}

	time.Sleep(5 * time.Second)

	if got := s.Clock().Step; (got - step).Abs() > maxOff {
		t.Errorf("the clock has made a step of %v before it is confirmed", got)
	}

	if err := s.ConfirmClock(t.Context(), step+30*time.Second); err != nil { // read a while ago, at another member
		t.Errorf("the operator confirms a step of %v: %v", step, err)
	}

	time.Sleep(5 * time.Second)

	problem(t, s.ConfirmClock(t.Context(), step), directory.Conflict) // nothing is to be confirmed any more
}

// An operator confirms one step: a later step of the same size waits for another confirmation.
func TestAConfirmationIsForOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64

		wall := func() time.Time { return time.Now().Round(0).Add(time.Duration(off.Load())) }
		cfg := &Config{Domain: alpha, Clock: directory.NewCheckedClock(wall), clock: wall, Timing: DefaultTiming}
		c := newClocks(cfg, newReplica(cfg, newLifecycle(nil)), func() ([]Member, int) { return nil, 1 })

		for _, ordered := range []bool{true, false} {
			time.Sleep(time.Minute)
			cfg.Clock.Now()
			off.Add(int64(time.Hour))

			if ordered {
				c.order(c.step())
			}

			if step := c.step().Round(time.Second); step != time.Hour || c.review(wall()) != ordered {
				t.Errorf("a step of %v is confirmed, or not, by order %t", step, ordered)
			}
		}
	})
}

// A domain whose machines all start with clocks that are behind its last entry goes on from that
// entry: what has ended by then isn't shown again, and leases are as long as granted.
//
// Requirement: FLD-024
func TestADomainDoesNotStartInItsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, wrong := newClockDomain(t, 1)
		leader, _ := d.leader()

		d.register(leader, "before", 600)

		d.settled()
		d.close()

		for i := range wrong {
			wrong[i].Store(int64(-24 * time.Hour))
		}

		for i := range d.nodes {
			d.start(i)
		}

		d.ready()
		time.Sleep(5 * time.Second)

		leader, _ = d.leader()
		if behind := d.nodes[leader].Clock().Behind; behind < 23*time.Hour {
			t.Errorf("the leader is %v behind the committed time, want a day", behind)
		}

		d.register(leader, "after", 600)

		if left := time.Until(leaseEnd(d.nodes[leader], "after")); left < 580*time.Second || left > 600*time.Second {
			t.Errorf("a lease of ten minutes has %v left", left)
		}

		time.Sleep(agreeFor + 10*time.Second)

		if behind := d.nodes[leader].Clock().Behind; behind != 0 {
			t.Errorf("after all clocks have agreed for ten minutes the leader is %v behind", behind)
		}
	})
}

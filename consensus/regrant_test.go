package consensus

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A new leader asks policy about nothing that is decided as it would, and about all
// where another by another basis led before it, or policy has changed.
func TestANewLeaderDecidesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const registered = 5

		var asked atomic.Int64
		basis := directory.Hash{1}
		held := make(chan struct{}) // until it is closed, no decision is made

		close(held)

		d := newDomain(t, 1, func(c *Config) {
			c.Grants = func(Subject) []directory.Grant { <-held; asked.Add(1); return nil }
			c.Basis = basis
		})
		want := func(what string, n int64) {
			t.Helper()
			s := d.nodes[0]
			eventually(t, what+": all is decided", func() bool {
				return s.IsLeader() && ask(s.Replica, func(now *state.State) bool {
					verdict := now.Policy().Verdict()
					return verdict != nil && *verdict == state.Verdict{Policy: now.Policy().Basis(), Basis: basis}
				})
			})

			if got := asked.Swap(0); got != n {
				t.Errorf("%s: policy was asked %d times, want %d", what, got, n)
			}
		}
		d.ready()
		want("a new domain", 0)

		for i := range registered {
			d.register(0, fmt.Sprint("agent-", i), 600)
		}

		want("registered", registered)
		again := func() {
			t.Helper()
			d.restart(0)
		}
		again()

		// behind what a new leader does
		d.setPolicy(t.Context(), 0, "// another")

		want("a new leader, and then another policy", registered)
		basis = directory.Hash{2}
		again()
		want("a leader with another basis", registered)

		// A leader with a third basis decides some and ends. Nothing is decided by the second one any more.
		held, basis = make(chan struct{}), directory.Hash{3}
		again()
		eventually(t, "the verdict is withdrawn", func() bool {
			return ask(d.nodes[0].Replica, func(now *state.State) bool { return now.Policy().Verdict() == nil })
		})
		time.AfterFunc(time.Second, func() { close(held) })
		d.stop(0)
		asked.Store(0)

		basis = directory.Hash{2}
		d.start(0)
		d.ready()
		want("the leader with the basis before", registered)
	})
}

// Each command that may change grants has the leader decide them anew, without a further
// command: also one that is applied after its writer was told that its outcome is unknown.
//
// Requirement: TRUST-013
func TestEachChangeOfPolicyAndPeeringsIsDecidedAnew(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		secret := "secret"
		active := directory.Peering{Domain: beta, State: directory.PeeringActive, Mesh: true}

		pending := directory.Peering{Domain: beta, State: directory.PeeringPending, Mesh: true,
			Secret: directory.HashOf([]byte(secret)), Until: time.Now().Add(time.Hour).Unix()}

		decided := func(what string, before uint64) {
			t.Helper()
			eventually(t, what+": the verdict is of the present basis", func() bool {
				return ask(s.Replica, func(now *state.State) bool {
					basis, verdict := now.Policy().Basis(), now.Policy().Verdict()
					return basis > before && verdict != nil && verdict.Policy == basis
				})
			})
		}
		basis := func() uint64 {
			return ask(s.Replica, func(now *state.State) uint64 { return now.Policy().Basis() })
		}

		for _, change := range []struct {
			name string
			make func() error
		}{
			{"a peering", func() error { return s.SetPeering(t.Context(), pending) }},
			{"its redemption", func() error { return s.Redeem(t.Context(), secret, active) }},
			{"its amendment", func() error {
				was := s.Replica.Peerings()[0]
				now := was
				now.State = directory.PeeringFrozen

				return s.AmendPeering(t.Context(), was, now)
			}},
			{"a policy", func() error {
				_, err := s.SetPolicy(t.Context(), []byte("// another"), nil)
				return err
			}},
		} {
			before := basis()

			if err := change.make(); err != nil {
				t.Fatalf("%s: %v", change.name, err)
			}

			decided(change.name, before)
		}

		before := basis()
		hang := make(chan struct{})
		d.log(0).hang.Store(&hang)
		problem(t, s.SetPeering(t.Context(), active), directory.OutcomeUnknown)
		d.log(0).hang.Store(nil)
		close(hang)
		decided("a peering that came late", before)
	})
}

// A leader that doesn't know yet whether its clock is right writes nothing. What it was
// to decide anew meanwhile it decides as soon as it does: no leader comes after it.
//
// Requirement: TRUST-013
func TestALeaderDecidesAnewOnceItKnowsItsClock(t *testing.T) {
	var narrow atomic.Bool

	var asked atomic.Pointer[Store] // who forgets, when it is asked to decide

	inDomain(t, 3, func(c *Config) {
		c.Grants = func(Subject) []directory.Grant {
			if s := asked.Swap(nil); s != nil {
				s.clocks.presence.forget()
			}

			if narrow.Load() {
				return nil
			}

			return []directory.Grant{{Audience: directory.Mesh, All: true}}
		}
	}, func(t *testing.T, d *domain) {
		leader, _ := d.leader()
		s := d.nodes[leader]

		out := d.register(leader, "agent", 86400)

		narrow.Store(true)
		asked.Store(s)

		if _, err := s.SetPolicy(t.Context(), []byte("permit (principal, action, resource);"), nil); err != nil {
			t.Fatal(err)
		}

		eventually(t, "nobody has it any more", func() bool {
			_, announced := s.Replica.Current(out.RID, directory.Mesh)
			return !announced
		})

		if now, _ := d.leader(); now != leader || asked.Load() != nil {
			t.Errorf("another leads, or it was never asked: %d, %d", leader, now)
		}
	})
}

// What a leader could not put into the log doesn't count: no verdict follows grants that it has not decided, and no
// member's wait to move begins with a wish that no audit log has.
//
// Requirement: SEC-019
func TestWhatIsNotLoggedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exported atomic.Bool

		d := newDomain(t, 1, func(c *Config) {
			c.Grants = func(Subject) []directory.Grant {
				if exported.Load() {
					return []directory.Grant{{Audience: directory.Mesh, All: true}}
				}

				return nil
			}
		})
		d.ready()
		d.register(0, "agent", 600)

		l := d.nodes[0].terms.elected()
		mover := valueOf(alphaNode("n2"))
		must(t, d.nodes[0].group.raft.Shutdown().Error())
		exported.Store(true)

		rids := ask(d.nodes[0].Replica, func(now *state.State) []directory.RID {
			return now.Registrations().Share().RIDs()
		})
		if err := l.regrantThose(t.Context(), rids); err == nil || len(rids) != 1 {
			t.Errorf("decisions on %d registrations that are not in the log count", len(rids))
		}

		for range 2 {
			err := l.awaitSilence(t.Context(), mover, "10.0.0.2:1", "10.0.0.3:1")
			if _, waits := l.moves[mover]; waits || err == nil {
				t.Errorf("a wish that is not in the log waits: %v", err)
			}
		}
	})
}

package consensus

import (
	"testing"
)

// A member that was started again reads its own log first. It says so until it
// has all that the domain had, so that nobody takes its past for the present: a
// peering that was ended once and made again, a registration removed since, or
// none at all while it finds nobody to tell it what is committed.
func TestARestartedMemberIsUnsettledUntilItHasCaughtUp(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		for i, s := range d.nodes {
			if !s.Replica.Settled() {
				t.Errorf("member %d is ready and not settled", i)
			}
		}

		_, other := d.leader()

		out := d.register(other, "kept", 3600)

		for i := range d.nodes {
			d.stop(i)
		}

		d.start(0)

		if s := d.nodes[0]; s.Replica.Settled() || s.Replica.Position().Epoch != 0 {
			t.Fatalf("settled %v at %v, and nobody is there", s.Replica.Settled(), s.Replica.Position())
		}

		d.start(1)

		for i := range 2 {
			eventually(t, "a majority settles", d.nodes[i].Replica.Settled)

			if _, ok := d.nodes[i].cfg.Index.Get(out.RID); !ok {
				t.Errorf("member %d is settled without what was acknowledged", i)
			}
		}
	})
}

// A leader that is not ready to lead has not applied all that its followers may
// have: its word makes nobody caught up. It has not asked them either, so it misses nobody.
func TestALeaderThatIsNotReadyVouchesForNobody(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		d.nodes[leader].terms.leader().ready.Store(false) // as between an election and what follows

		if d.nodes[other].follower.askLeader() {
			t.Error("a follower takes an unready leader's position for the domain's")
		}

		for _, p := range d.nodes[leader].peers.Contacts() {
			if p.State == ContactSilent {
				t.Errorf("%s is missed", p.ID)
			}
		}
	})
}

package consensus

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Every member tells an operator when each was heard last, and who has taken a
// leadership over, as soon as it was; and no dead member is to take it over.
func TestEveryMemberTellsOfContacts(t *testing.T) {
	inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
		silence := func(at, of int) time.Duration {
			for _, p := range d.nodes[at].peers.Contacts() {
				if p.ID == d.members[of].ID && !p.LastContact.IsZero() {
					return time.Since(p.LastContact)
				}
			}

			return -1
		}
		leader, follower := d.leader()
		third := 3 - leader - follower

		for at := range d.nodes {
			for of := range d.nodes {
				eventually(t, fmt.Sprintf("node %d tells when node %d was heard", at, of), func() bool {
					s := silence(at, of)
					return s >= 0 && s < 10*time.Second
				})
			}
		}

		d.stop(third)
		time.Sleep(time.Minute)

		if s := silence(follower, third); s < time.Minute || s > 70*time.Second {
			t.Errorf("a node that was stopped a minute ago was heard %s ago", s)
		}

		must(t, d.nodes[follower].Transfer(t.Context(), spiffeid.ID{}))

		if l, ok := d.nodes[follower].group.Leader(); !ok || l != d.members[follower].ID {
			t.Errorf("after a transfer it knows %q as the leader", l)
		}

		eventually(t, "who leads now has heard who led", func() bool { return silence(follower, leader) >= 0 })
		d.stop(leader)
		time.Sleep(time.Minute)

		if l, ok := d.nodes[follower].group.Leader(); ok {
			t.Fatalf("%s leads alone", l)
		}

		if s := silence(follower, leader); s < time.Minute || s > 70*time.Second {
			t.Errorf("who has lost the others heard one %s ago", s)
		}
	})
}

// A member that was dead before a leader began is silent to every member, and so is the former
// leader, but none else. Else nobody misses it, until one more is dead.
func TestEveryMemberTellsOfTheSilent(t *testing.T) {
	inDomain(t, 5, quiet, func(t *testing.T, d *domain) {
		former, _ := d.leader()
		other := (former + 1) % 5
		d.stop(other)
		d.stop(former)
		time.Sleep(time.Minute)

		for at := range d.nodes {
			if at == former || at == other {
				continue
			}

			for _, p := range d.nodes[at].peers.Contacts() {
				want := ContactAlive
				if p.ID == d.members[other].ID || p.ID == d.members[former].ID {
					want = ContactSilent
				}

				if p.State != want {
					t.Errorf("node %d tells of %s: %s, heard at %s, want %s", at, p.ID, p.State, p.LastContact, want)
				}
			}
		}
	})
}

// From the death of any member, the leader too, every other one knows it within four seconds, and
// calls none dead that lives. Of two that die at once, too, though no leader is left.
//
// Requirement: FLD-028
func TestADeathIsKnownInFourSeconds(t *testing.T) {
	for name, dead := range map[string]func(leader, follower int) []int{
		"a follower":   func(_, follower int) []int { return []int{follower} },
		"the leader":   func(leader, _ int) []int { return []int{leader} },
		"two of three": func(leader, follower int) []int { return []int{leader, follower} },
	} {
		t.Run(name, func(t *testing.T) {
			inDomain(t, 3, nil, func(t *testing.T, d *domain) {
				time.Sleep(10 * time.Second)

				gone := map[spiffeid.ID]bool{}
				for _, i := range dead(d.leader()) {
					d.net.isolate(d.members[i].Address) // at once, as by a power cut
					gone[d.members[i].ID] = true
				}

				for range 40 {
					time.Sleep(100 * time.Millisecond)

					for i := range d.nodes {
						for _, p := range d.nodes[i].peers.Contacts() {
							if p.State == ContactSilent && !gone[p.ID] && !gone[d.members[i].ID] {
								t.Fatalf("%s calls %s silent", d.members[i].ID, p.ID)
							}
						}
					}
				}

				for i := range d.nodes {
					for _, p := range d.nodes[i].peers.Contacts() {
						if gone[p.ID] && !gone[d.members[i].ID] && p.State != ContactSilent {
							t.Errorf("%s says that %s is %s", d.members[i].ID, p.ID, p.State)
						}
					}
				}
			})
		})
	}
}

// Who led once, and followed another since, tells of nobody by what it heard as the
// leader: that is no time at which the others fell silent.
func TestAFormerLeaderTellsOfNoOldContacts(t *testing.T) {
	inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
		former, next := d.leader()
		eventually(t, "who leads has heard the others", func() bool {
			for _, p := range d.nodes[former].peers.RaftPeers() {
				if p.LastContact.IsZero() {
					return false
				}
			}

			return true
		})

		must(t, d.nodes[former].Transfer(t.Context(), d.members[next].ID))

		time.Sleep(2 * time.Minute)
		began := time.Now()

		for i := range d.nodes {
			if i != former {
				d.stop(i)
			}
		}

		eventually(t, "it has lost the leader", func() bool { _, led := d.nodes[former].group.Leader(); return !led })

		for _, p := range d.nodes[former].peers.Contacts() {
			if !p.LastContact.IsZero() && began.Sub(p.LastContact) > time.Minute {
				t.Errorf("%s is said to be silent for %v; all were heard until now", p.ID, began.Sub(p.LastContact))
			}
		}
	})
}

// A member that was just added has the time of any other to answer before it is silent.
//
// Requirement: OPS-005
func TestAnAddedMemberIsNotSilentYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &contacts{heard: map[raft.ServerID]time.Time{}, added: map[raft.ServerID]time.Time{}}
		node := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/4")

		c.follow(false)
		time.Sleep(time.Minute)
		c.add(raft.ServerID(node.String()))
		time.Sleep(silentAfter)

		if state, _ := c.state(node); state != ContactUnknown {
			t.Errorf("a member that was added %v ago is %s", silentAfter, state)
		}

		time.Sleep(time.Second)

		if state, _ := c.state(node); state != ContactSilent {
			t.Errorf("a member that never answered is %s", state)
		}
	})
}

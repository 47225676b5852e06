package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// newcomer starts a node that joins the domain at its first members' addresses,
// and returns its number.
func (d *domain) newcomer(tune func(*Config)) int {
	d.t.Helper()
	i := len(d.nodes)
	d.name(1)
	d.startJoining(i, tune)

	return i
}

func (d *domain) startJoining(i int, tune func(*Config)) {
	d.t.Helper()
	me, before := d.members[i], d.tune
	defer func() { d.tune = before }()
	d.tune = func(c *Config) {
		if before != nil {
			before(c)
		}

		c.Members = []Member{me}
		for _, m := range d.members[:min(i, 3)] {
			c.Join = append(c.Join, m.Address)
		}

		c.API = "https://" + me.Address
		if tune != nil {
			tune(c)
		}
	}
	d.start(i)
}

func (d *domain) admit(at int, i int) {
	d.t.Helper()

	must(d.t, d.nodes[at].Admit(d.t.Context(), Admission{ID: d.members[i].ID}))
}

// letIn lets a member with an empty disk in, as an operator does.
func (d *domain) letIn(i int) {
	d.t.Helper()
	eventually(d.t, "the node says how it is let in", func() bool {
		err := d.nodes[i].Ready()
		return err != nil && strings.Contains(err.Error(), "roster raft admit "+d.members[i].ID.String())
	})

	at := (i + 1) % len(d.nodes)
	must(d.t, d.nodes[at].Expel(d.t.Context(), d.members[i].ID))

	d.admit(at, i)
}

// voters returns who votes by a node's configuration, and who does not.
func (d *domain) voters(at int) (voters, readers int) {
	for _, p := range d.nodes[at].peers.RaftPeers() {
		if p.Voter {
			voters++
		} else {
			readers++
		}
	}

	return voters, readers
}

func (d *domain) eventuallyVoters(at, voters, readers int) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("%d voters and %d readers", voters, readers), func() bool {
		v, r := d.voters(at)
		return v == voters && r == readers
	})
}

func TestADomainGrowsFromThreeToFive(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		out := d.register(0, "before", 600)

		for _, want := range []int{4, 5} {
			i := d.newcomer(nil)
			eventually(t, "it is told that it is not admitted", func() bool {
				err := d.nodes[i].Ready()
				return err != nil && strings.Contains(err.Error(), "roster raft admit "+d.members[i].ID.String())
			})

			if v, r := d.voters(0); v+r != want-1 {
				t.Fatalf("%d members without an operator's leave", v+r)
			}

			leader, _ := d.leader()
			d.admit((leader+1)%3, i) // a follower, or one that leads
			d.eventuallyVoters(i, want, 0)
			d.ready()

			if _, ok := d.nodes[i].cfg.Index.Get(out.RID); !ok {
				t.Error("the newcomer lacks what was registered before it came")
			}

			d.register(i, fmt.Sprint("at-", i), 600)
		}

		d.settled()

		for i, s := range d.nodes {
			if api := "https://" + d.members[4].Address; !strings.Contains(fmt.Sprint(s.peers.Siblings()), api) &&
				i != 4 {
				t.Errorf("node %d has the siblings %v, without %s", i, s.peers.Siblings(), api)
			}
		}

		// Five survive the loss of two, the leader among them.
		leader, other := d.leader()
		d.stop(leader)
		d.stop(other)
		d.ready()

		next, _ := d.leader()
		d.register(next, "after", 600)
	})
}

// A domain of one grows too, and a node's leave is for once.
func TestADomainGrowsFromOne(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		for range 2 {
			i := d.newcomer(nil)
			d.admit(0, i)
			d.eventuallyVoters(i, i+1, 0)
			d.ready()
		}

		must(t, d.nodes[0].Expel(t.Context(), d.members[2].ID))

		d.eventuallyVoters(0, 2, 0)
		eventually(t, "the one that was removed knows", func() bool {
			err := d.nodes[2].Ready()
			return err != nil && strings.Contains(err.Error(), "is not admitted")
		})
		_, err := d.nodes[2].Register(t.Context(), put(t, ada, "from outside", 600))
		problem(t, err, directory.Unavailable)
		d.admit(1, 2)
		d.eventuallyVoters(2, 3, 0)
		d.ready()
	})
}

// A voter that lost its disk neither votes nor gets entries before the domain has let it in again:
// by a standing admission, or once an operator has removed and admitted it.
//
// Requirement: SEC-012
func TestAVoterThatLostItsDiskNeedsAnAdmission(t *testing.T) {
	inDomain(t, 1, quiet, func(t *testing.T, d *domain) {
		for i := 1; i < 3; i++ {
			d.admit(0, d.newcomer(nil))
			d.eventuallyVoters(i, i+1, 0)
			d.ready()
		}

		lose := func(i int) {
			t.Helper()
			d.stop(i)

			must(t, os.RemoveAll(filepath.Join(d.dir, fmt.Sprint(i))))

			d.startJoining(i, nil)
		}
		outside := func() {
			t.Helper()
			eventually(t, "the node says why it is outside", func() bool {
				err := d.nodes[2].Ready()

				return err != nil &&
					strings.Contains(err.Error(), "has lost its disk and no standing admission lets it return")
			})

			if last, err := d.nodes[2].storage.disk.Logs.LastIndex(); last != 0 || err != nil {
				t.Errorf("it has entries up to %d: %v", last, err)
			}
		}

		lose(2)
		outside()

		// It is no majority with one of the others.
		d.stop(0)
		time.Sleep(time.Minute)

		if leader, ok := d.nodes[1].Leader(); ok {
			t.Errorf("%s leads by the vote of a node that has forgotten its votes", leader)
		}

		d.start(0)
		eventually(t, "the two lead again", func() bool {
			return d.nodes[0].Ready() == nil && d.nodes[1].Ready() == nil
		})
		outside()

		// The operator's way.
		leader, _ := d.leader()
		must(t, d.nodes[leader].Expel(t.Context(), d.members[2].ID))

		d.admit(leader, 2)
		d.eventuallyVoters(2, 3, 0)
		d.ready()

		// The standing admission has room for the node itself.
		leader, _ = d.leader()
		must(t, d.nodes[leader].Admit(t.Context(),
			Admission{Pattern: "spiffe://alpha.test/roster/node/*", Max: 3}))

		lose(2)
		eventually(t, "it votes again", func() bool {
			return d.nodes[2].Ready() == nil && d.nodes[2].joiner.isSeated()
		})
		d.eventuallyVoters(2, 3, 0)
		d.equalStates()
	})
}

func TestAReaderNeverVotes(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		i := d.newcomer(func(c *Config) { c.Reader = true })
		d.admit(0, i)
		d.eventuallyVoters(i, 1, 1)
		d.ready()

		// It takes no writes, and the leader takes none from it (S14).
		_, err := d.nodes[i].Register(t.Context(), put(t, ada, "translator", 600))
		problem(t, err, directory.NotVoter)

		reply, err := d.forward(0, i, &message.Request{Remove: &message.Remove{Caller: message.Caller{Identity: ada}}})
		if err != nil || reply.Problem != directory.NotVoter {
			t.Errorf("a write that it forwards all the same: %+v %v", reply, err)
		}

		if err := d.nodes[i].reader.Linearize(t.Context()); err != nil {
			t.Errorf("a linearizable read at the reader: %v", err)
		}

		problem(t, d.nodes[0].Transfer(t.Context(), d.members[i].ID), directory.Conflict)
		d.stop(i) // without it the domain goes on

		d.register(0, "alone", 600)
	})
}

func TestADomainBeginsOnceAllThatAreExpectedAreThere(t *testing.T) {
	inDomain(t, 0, nil, func(t *testing.T, d *domain) {
		d.name(3)

		expect := func(c *Config) {
			c.Expect, c.Join = 3, nil
			for _, m := range d.members {
				c.Join = append(c.Join, m.Address)
			}
		}
		d.startJoining(2, expect)
		d.startJoining(0, expect)
		time.Sleep(time.Minute)

		for _, i := range []int{0, 2} {
			if err := d.nodes[i].Ready(); err == nil || !strings.Contains(err.Error(), "2 of the 3") {
				t.Errorf("node %d with two of three: %v", i, err)
			}
		}

		d.startJoining(1, expect)
		d.ready()
		d.settled()

		if v, _ := d.voters(1); v != 3 {
			t.Errorf("%d voters", v)
		}

		d.register(2, "first", 600)

		// One that comes later finds a domain, and needs leave.
		i := d.newcomer(expect)
		time.Sleep(10 * time.Second)

		if err := d.nodes[i].Ready(); err == nil || !strings.Contains(err.Error(), "not admitted") {
			t.Errorf("the fourth: %v", err)
		}

		// All of them start again, with the same configuration.
		for i := range 3 {
			d.stop(i)
		}

		for i := range 3 {
			d.startJoining(i, expect)
		}

		time.Sleep(10 * time.Second)

		must(t, d.nodes[0].Ready())
	})
}

// The nodes find each other by one name with the address of each, as that of a headless
// service.
//
// Requirement: OPS-027
func TestADomainBeginsWithTheNodesOfOneName(t *testing.T) {
	inDomain(t, 0, nil, func(t *testing.T, d *domain) {
		d.name(3)

		for i := range 3 {
			d.startJoining(i, func(c *Config) {
				c.Expect, c.Join = 3, []string{"nodes.alpha.test:7000"}
				c.Resolve = func(_ context.Context, host string) ([]string, error) {
					if host != "nodes.alpha.test" {
						t.Errorf("%s is resolved", host)
					}

					return []string{"n0.alpha.test", "n1.alpha.test", "n2.alpha.test"}, nil
				}
			})
		}

		d.ready()
		d.settled()

		if v, _ := d.voters(1); v != 3 {
			t.Errorf("%d voters", v)
		}
	})
}

func TestTooManyDoNotBeginADomain(t *testing.T) {
	inDomain(t, 0, nil, func(t *testing.T, d *domain) {
		d.name(4)

		d.net.isolate(d.members[0].Address) // so that none begins before all are there

		for i := range 4 {
			d.startJoining(i, func(c *Config) {
				c.Expect, c.Join = 3, nil
				for _, m := range d.members {
					c.Join = append(c.Join, m.Address)
				}

				if i == 3 {
					c.Expect = 5
				}
			})
		}

		time.Sleep(10 * time.Second)
		d.net.heal(d.members[0].Address)
		time.Sleep(20 * time.Second)

		for i := range 4 {
			if err := d.nodes[i].Ready(); err == nil || !strings.Contains(err.Error(), "bootstrap_expect") {
				t.Errorf("node %d: %v", i, err)
			}
		}
	})
}

// A member that was away while another joined and leads now takes its word on
// another member's.
func TestAMemberThatWasAwayMeetsANewLeader(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, away := d.leader()
		d.stop(away)
		i := d.newcomer(nil)
		d.admit(leader, i)
		d.eventuallyVoters(leader, 4, 0)
		d.ready()

		must(t, d.nodes[leader].Transfer(t.Context(), d.members[i].ID))

		eventually(t, "the newcomer leads", func() bool { return d.nodes[i].IsLeader() })
		all := d.members
		d.members = all[:3] // what its configuration still says
		d.start(away)
		d.members = all
		d.ready()
		d.settled()
	})
}

func TestAMemberMovesToAnotherAddress(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		_, i := d.leader()
		d.stop(i)
		d.members = append([]Member(nil), d.members...)
		d.members[i].Address = "elsewhere.alpha.test:7000"
		d.start(i)
		d.ready()
		leader, _ := d.leader()
		eventually(t, "the leader has the new address", func() bool {
			m, _ := d.nodes[leader].group.server(d.members[i].ID)
			return m.Address == "elsewhere.alpha.test:7000" && m.voter
		})
		d.settled()
	})
}

// A member that moves again and again waits, so that one key doesn't fill the log with changes of the
// group.
//
// Requirement: SEC-011
func TestAMemberMovesSeldom(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		newcomer := valueOf(alphaNode("n9"))

		must(t, d.nodes[0].Admit(t.Context(), Admission{ID: newcomer}))

		joins, leads := &d.nodes[0].joins, d.nodes[0].terms.leader()
		asked := 0

		for n := range 50 {
			request := *joins.ownRequest()
			request.Address = fmt.Sprintf("n9.alpha.test:%d", 7000+n)
			request.Empty = false

			err := leads.addMember(t.Context(), newcomer, &request)
			if directory.ProblemOf(err) == directory.RateLimited {
				break
			}

			if n > 0 {
				problem(t, err, directory.Unavailable) // its former address may still be heard of
			}

			asked++
		}

		if asked < 2 || asked > wordBurst+1 {
			t.Errorf("a member asked %d times at once, want a few and at most %d", asked, wordBurst)
		}

		if m, _ := d.nodes[0].group.server(newcomer); m.Address != "n9.alpha.test:7000" {
			t.Errorf("it has moved to %s", m.Address)
		}
	})
}

// Whoever has a member's key and says another address gets nothing while the member answers, or has
// answered of late; every member's trail names the wish and the time.
//
// Requirement: SEC-011, SEC-012
func TestAMemberMovesOnceItsFormerAddressIsSilent(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, i := d.leader()
		leads := d.nodes[leader].terms.leader()
		former := d.members[i].Address

		request := *d.nodes[i].joins.ownRequest()
		request.Address = "thief.alpha.test:7000"
		request.Process = 0
		problem(t, leads.addMember(t.Context(), d.members[i].ID, &request), directory.Forbidden) // a second process

		d.stop(i)

		wished := func() (count int) {
			for _, c := range d.nodes[leader].Commands.After(0).Commands {
				if c.Action == directory.ActionMove && c.Node &&
					strings.Contains(c.Target, "thief.alpha.test:7000 after 20s") {
					count++
				}
			}

			return count
		}

		for begun := time.Now(); ; time.Sleep(time.Second) {
			err := leads.addMember(t.Context(), d.members[i].ID, &request)
			if err == nil {
				if waited := time.Since(begun); waited < moveAfter {
					t.Errorf("it moved after %s", waited)
				}

				break
			}

			problem(t, err, directory.Unavailable)

			if m, _ := d.nodes[leader].group.server(d.members[i].ID); m.Address != former || wished() != 1 {
				t.Fatalf("it is at %s, and the log has %d wishes", m.Address, wished())
			}
		}
	})
}

func TestWhatIsRefusedOfMembers(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		third := 3 - leader - follower
		s, stranger := d.nodes[follower], valueOf(alphaNode("stranger"))
		problem(t, s.Expel(t.Context(), stranger), directory.NotFound)
		problem(t, s.Transfer(t.Context(), stranger), directory.NotFound)
		problem(t, s.Transfer(t.Context(), d.members[leader].ID), directory.Conflict)
		problem(t, s.Admit(t.Context(), Admission{ID: d.members[leader].ID}), directory.Conflict)
		problem(t, s.Admit(t.Context(), Admission{ID: spiffeid.RequireFromString("spiffe://beta.test/roster/node/n1")}),
			directory.BadRequest)
		problem(t, s.Admit(t.Context(), Admission{ID: stranger, Withdraw: true}), directory.NotFound)
		d.stop(third)
		err := s.Expel(t.Context(), d.members[follower].ID)
		problem(t, err, directory.Conflict)

		if want := "of the 2 voters that would be left only 1 answer now, and 2 must"; err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("it says %q", err)
		}

		if err := s.Expel(t.Context(), d.members[third].ID); err != nil {
			t.Errorf("the dead one: %v", err)
		}

		// The leader itself may go: it hands over first.
		if err := d.nodes[leader].Leave(t.Context()); err != nil {
			t.Errorf("the leader leaves: %v", err)
		}

		if err := d.nodes[leader].Ready(); err == nil {
			t.Error("one that has left is ready")
		}

		eventually(t, "the last one leads", func() bool { return s.IsLeader() })
		problem(t, s.Expel(t.Context(), d.members[follower].ID), directory.Conflict)

		if _, err := s.Register(t.Context(), put(t, ada, "alone", 600)); err != nil {
			t.Errorf("a domain of one: %v", err)
		}
	})
}

// A leader that has just been elected has heard none of the others yet. It asks them, so it refuses no
// removal that the domain survives, and the former leader can be removed at once.
//
// Requirement: FLD-028
func TestARemovalAfterAChangeOfLeaderIsNotRefused(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		former, next := d.leader()

		must(t, d.nodes[former].Transfer(t.Context(), d.members[next].ID))

		if err := d.nodes[next].Expel(t.Context(), d.members[former].ID); err != nil {
			t.Errorf("the former leader: %v", err)
		}

		d.eventuallyVoters(next, 2, 0)
	})
}

// A voter that died a moment ago does not count, although the leader has heard of it within the last
// seconds, and neither does one that answers but can't write.
//
// Requirement: FLD-028
func TestTheVotersThatRemainAreAskedAtTheMoment(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		third := 3 - leader - follower
		s := d.nodes[leader]

		d.net.isolate(d.members[third].Address)
		problem(t, s.Expel(t.Context(), d.members[follower].ID), directory.Conflict)
		problem(t, s.Transfer(t.Context(), d.members[third].ID), directory.Conflict)

		d.net.heal(d.members[third].Address)
		d.nodes[third].life.fail(errors.New("its disk is broken"))
		problem(t, s.Expel(t.Context(), d.members[follower].ID), directory.Conflict)

		d.register(leader, "still", 600)

		if err := s.Expel(t.Context(), d.members[third].ID); err != nil {
			t.Errorf("the broken one: %v", err)
		}
	})
}

// The key of a member that was removed speaks for the domain no longer.
func TestARemovedMembersKeyGoes(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		for _, i := range []int{leader, follower} {
			must(t, d.nodes[i].Attest(t.Context(),
				signed.SigningKey{Public: append(make([]byte, 31), byte(i)), Node: d.members[i].ID,
					Attestations: []string{"a.b.c"}}))
		}

		must(t, d.nodes[leader].Expel(t.Context(), d.members[follower].ID))

		eventually(t, "its key is gone", func() bool {
			doc := d.nodes[leader].Replica.KeyDocument()
			return len(doc.Keys) == 1 && doc.Keys[0].Node == d.members[leader].ID
		})
	})
}

func TestTheDeadAreRemovedWhereItIsWanted(t *testing.T) {
	tune := func(c *Config) { quiet(c); c.RemoveDead = 5 * time.Minute }
	inDomain(t, 3, tune, func(t *testing.T, d *domain) {
		leader, dead := d.leader()
		d.stop(dead)
		time.Sleep(4 * time.Minute)
		d.eventuallyVoters(leader, 3, 0)
		time.Sleep(2 * time.Minute)
		d.eventuallyVoters(leader, 2, 0)
		// Of two, the one that is left cannot do without the other.
		other := 3 - leader - dead
		d.net.isolate(d.members[other].Address)
		time.Sleep(10 * time.Minute)
		d.net.heal(d.members[other].Address)
		d.ready()
		d.eventuallyVoters(leader, 2, 0)
	})
}

// Leaders hand over, stop and come back while others write: no write fails.
//
// Requirement: AD-017
func TestHandingOverUnderLoadFailsNoWrite(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		var mu sync.RWMutex // stopping and starting; d.nodes

		var done, unknown atomic.Int64
		stop := d.writers(3, mu.RLocker(), func(s *Store, w, i int) {
			_, err := s.Register(t.Context(), put(t, ada, fmt.Sprintf("agent-%d-%d", w, i%50), 600))
			switch {
			case directory.ProblemOf(err) == directory.OutcomeUnknown:
				unknown.Add(1)
			case err == nil:
				done.Add(1)
			case s.life.closing.Err() == nil:
				t.Errorf("a write at a member that runs: %v", err)
			}
		})

		more := func() {
			until := done.Load() + 50
			eventually(t, "writes go on", func() bool { return done.Load() > until })
		}
		for round := range 4 {
			leader, other := d.leader()
			more()

			if round%2 == 0 {
				must(t, d.nodes[other].Transfer(t.Context(), d.members[other].ID))

				more()

				continue
			}

			mu.Lock()
			s := d.nodes[leader]
			d.nodes[leader] = nil
			mu.Unlock()

			must(t, s.Close())

			more()
			mu.Lock()
			d.start(leader)
			mu.Unlock()
		}

		stop()
		d.ready()
		d.settled()

		if n := unknown.Load(); n > 0 {
			t.Errorf("of %d writes it is not known whether they were done", n)
		}

		t.Logf("%d writes", done.Load())
	})
}

// A follower names the leader to members and to admitted nodes, and to no other.
//
// Requirement: SEC-011
func TestOnlyAdmittedNodesLearnTheLeader(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		newcomer := valueOf(alphaNode("n9"))

		ask := func(from spiffeid.ID) *message.JoinAnswer {
			request := &message.JoinRequest{Address: "n9.alpha.test:7000"}

			return d.nodes[follower].joins.answerJoin(t.Context(), from, request)
		}

		for _, from := range []spiffeid.ID{newcomer, spiffeid.RequireFromString("spiffe://beta.test/roster/node/n1")} {
			if got := ask(from); got.Leader != nil || got.Problem != directory.Forbidden {
				t.Errorf("%s is answered %+v", from, got)
			}
		}

		if got := ask(d.members[3-leader-follower].ID); got.Leader == nil {
			t.Errorf("a member is answered %+v", got)
		}

		must(t, d.nodes[follower].Admit(t.Context(), Admission{ID: newcomer}))

		eventually(t, "the follower has the admission", func() bool {
			got := ask(newcomer)
			return got.Leader != nil && got.Leader.ID == d.members[leader].ID
		})
	})
}

func TestStrangersGetNoFurtherThanTheDoor(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		stranger := d.stranger(valueOf(alphaNode("stranger")))

		for _, path := range []string{presencePath, readPath, contactsPath, termPath, vouchPath, restorePath} {
			resp, err := stranger.Guest().
				Post("https://"+d.members[0].Address+path, message.TypeCBOR, strings.NewReader("\xa0"))
			must(t, err)

			_ = resp.Body.Close()
			if resp.StatusCode != 404 {
				t.Errorf("%s answers a stranger %s", path, resp.Status)
			}
		}
	})
}

// A node declares a bounded, ordered list of addresses as its listeners.
//
// Requirement: SEC-009
func TestListenersThatNoNodeDeclares(t *testing.T) {
	must(t, checkListeners([]string{"10.0.0.1:8400", "[2001:db8::1]:8400"}))

	for _, unusable := range [][]string{{"10.0.0.2:1", "10.0.0.1:1"}, {"host:8400"}, {"10.0.0.1"}, {""},
		make([]string, MaxListeners+1)} {
		if checkListeners(unusable) == nil {
			t.Errorf("%.100q are taken", unusable)
		}
	}
}

// A member declares where clients reach it as https://HOST[:PORT], or not at all. Other text is
// refused, and what it declared before stays.
//
// Requirement: TRUST-001
func TestAMemberDeclaresABaseURL(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		store, from := d.nodes[0], d.members[0].ID
		declare := func(api string) error {
			request := d.nodes[0].joins.ownRequest()
			request.API = api

			return store.terms.leader().addMember(t.Context(), from, request)
		}

		before := store.peers.declared()[from].API

		for _, api := range []string{
			"http://n1.alpha.test:8400", "https://", "https://:8400", "n1.alpha.test:8400", "https://u:p@n1.alpha.test",
			"https://n1.alpha.test/", "https://n1.alpha.test?x", "https://n1.alpha.test#", "https://n1.alpha.test:port",
			"https://n1.alpha.test,https://evil.example", "https://a,b", "https://a b", " https://a", "https://a\n",
			"https://a\u0085", "https://\u202ea", "https://" + strings.Repeat("a", 300),
		} {
			if err := declare(api); directory.ProblemOf(err) != directory.BadRequest {
				t.Errorf("%q: %v", api, err)
			}
		}

		if got := store.peers.declared()[from].API; got != before {
			t.Errorf("%q is declared now, it was %q", got, before)
		}

		for _, api := range []string{"https://n1.alpha.test", "https://[2001:db8::1]:8400", "https://10.0.0.1:8400"} {
			if !isBaseURL(api) {
				t.Errorf("%s is refused", api)
			}
		}

		must(t, declare("https://n1.alpha.test:8400"))
	})
}

// A member is looked for where the configuration says, and not at an address that another node has named: it may have a
// stolen key.
func TestAMemberIsFoundAtListedAddressesAlone(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		const named = "named.alpha.test:7000"

		j, other := d.nodes[0].joiner, d.members[1]
		word := j.joins.ownRequest()

		d.net.mu.Lock()
		d.net.listeners[named] = d.net.listeners[other.Address]
		d.net.mu.Unlock()

		for _, listed := range [][]string{nil, {named}} {
			j.askAll(t.Context(), newSurvey(j.cfg, word.Address), []string{named}, listed, word)

			if at, _ := j.joins.found.place(other.ID); (at == named) != (listed != nil) {
				t.Errorf("with %q in the configuration, the member is found at %q", listed, at)
			}
		}
	})
}

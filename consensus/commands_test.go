package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ordered is an order with a proof, as a leader has judged it by the policy of a version.
func ordered(proof string, policy uint64) state.Command {
	request := directory.OperatorRequestOf(proven(context.Background(), proof, "/", nil))
	origin := state.OriginOf(spiffeid.RequireFromString("spiffe://alpha.test/roster/node/n0"), request)
	origin.Judged, origin.Policy = time.Now().UnixMilli(), policy

	return state.Command{Order: &state.Order{Action: directory.ActionTransferLead, Target: proof}, Origin: origin}
}

// Whoever has the key of one member leads with operators' commands that no operator has proven: no member
// acknowledges one, each reports the member, none is in force, and the domain goes on.
//
// Requirement: SEC-012, SEC-019
func TestAFalseLeadersCommandsAreRefused(t *testing.T) {
	refused := &refusalRecord{}

	inDomain(t, 3, func(c *Config) {
		c.Misconduct = refused.add
		c.CheckFarewell = func(*directory.PeeringChange, time.Time) error { return errors.New("not proven") }
		c.CheckOperator = func(command directory.OperatorCommand) error {
			if command.Request == nil || command.Request.Proof == "false" {
				return errors.New("not proven")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		ctx := proven(t.Context(), "true", "/v1/operator/policy", nil)
		d.setPolicy(ctx, 0, "the operator's")

		d.settled()

		leader, other := d.leader()
		stolen := 3 - leader - other
		thief := newThief(d, stolen)
		_, version := d.nodes[other].Replica.state.Policy().Policy()
		all := ordered("false", version)
		all.Order, all.Policy = nil, &state.Policy{Text: []byte("permit all")}
		bare := all
		bare.Origin = nil
		was := state.Peer{Domain: beta, State: directory.PeeringActive}

		for name, c := range map[string]state.Command{
			"a policy with a false proof":  all,
			"a policy without an operator": bare,
			"an order with a false proof":  ordered("false", version),
			"a policy yet to come":         ordered("true", version+1),
			"an admission":                 {Admit: &state.Admission{Pattern: "spiffe://alpha.test/*", Max: 9}},
			"a farewell of a peer": {
				Amend:  &state.Amend{Was: was, Peer: state.Peer(directory.Peering(was).Ended(true))},
				Origin: &state.Origin{From: d.members[stolen].ID},
			},
		} {
			for _, to := range []int{leader, other} {
				if err := thief.leads(to, nil, command(t, state.NewestLogVersion, c)); err == nil {
					t.Errorf("%s: member %d has acknowledged it", name, to)
				}

				refused.one(t, name, d.members[stolen], badCommand)
			}

			d.register(other, "after", 6000)
		}

		d.equalStates()

		for i := range d.nodes {
			if text, _ := d.nodes[i].Replica.state.Policy().Policy(); string(text) != "the operator's" {
				t.Errorf("member %d has the policy %q", i, text)
			}
		}
	})
}

// A command is judged by the policy that its origin names: the one in force, or one that is on its way into
// the state. Under an earlier one apply refuses it, so there is nothing to judge.
func TestACommandIsJudgedByThePolicyThatItNames(t *testing.T) {
	inDomain(t, 1, func(c *Config) {
		c.CheckOperator = func(command directory.OperatorCommand) error {
			if string(command.Policy) == "closed" {
				return errors.New("not permitted")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		d.setPolicy(proven(t.Context(), "1", "/", nil), 0, "closed")

		i := &d.nodes[0].inspector
		_, version := i.replica.state.Policy().Policy()
		policy := func(text string, by uint64) state.Command {
			c := ordered("policy", by)
			c.Order, c.Policy = nil, &state.Policy{Text: []byte(text)}

			return c
		}

		for name, c := range map[string]struct {
			named   uint64
			pending []state.Command
			want    bool
		}{
			"in force":                          {version, nil, false},
			"in force, another is coming":       {version, []state.Command{policy("open", version)}, false},
			"before":                            {version - 1, nil, true},
			"unknown":                           {version + 1, nil, false},
			"coming":                            {version + 1, []state.Command{policy("open", version)}, true},
			"coming, and closed":                {version + 1, []state.Command{policy("closed", version)}, false},
			"coming, but refused where applied": {version + 1, []state.Command{policy("open", version-1)}, false},
		} {
			batch := &state.Batch{Commands: []state.Command{ordered("order", c.named)}, Time: time.Now().UnixMilli()}
			entry := command(t, state.NewestLogVersion, c.pending...)

			err := i.checkCommands(batch, i.pendingOf(i.group.raft.LastIndex(), []*raft.Log{entry}))
			if (err == nil) != c.want {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The trust bundles of members differ for a while when the domain's authority is replaced. A command that
// most voters would not acknowledge is refused before it is in the log, and one that a single voter would
// not takes effect at all members: no honest command stops a domain.
//
// Requirement: SEC-012
func TestACommandThatSomeMembersCannotVerifyStopsNoDomain(t *testing.T) {
	var without [3]atomic.Bool // the operator's authority

	number := 0

	inDomain(t, 3, func(c *Config) {
		lacks := &without[number]
		number++
		c.CheckOperator = func(directory.OperatorCommand) error {
			if lacks.Load() {
				return errors.New("unknown authority")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		third := 3 - leader - other
		set := func(text string) error {
			_, err := d.nodes[leader].SetPolicy(proven(t.Context(), text, "/", nil), []byte(text), nil)

			return err
		}

		must(t, set("zero"))
		d.settled() // a command names the policy in force, by which each member judges it

		without[other].Store(true)
		without[third].Store(true)

		problem(t, set("one"), directory.Forbidden)

		d.register(other, "before", 6000)

		if text, _ := d.nodes[leader].Replica.state.Policy().Policy(); string(text) != "zero" {
			t.Errorf("the policy is %s", text)
		}

		without[third].Store(false)
		d.settled()

		must(t, set("two"))

		d.register(other, "after", 6000)

		d.equalStates()
	})
}

// A member that has just started, and has applied nothing yet of its log, acknowledges no operator's command
// that no operator has proven: it knows by its log that commands are to be proven, also once a leader has
// replaced that.
//
// Requirement: SEC-012
func TestAMemberThatHasJustStartedJudgesCommands(t *testing.T) {
	refused := &refusalRecord{}

	inDomain(t, 3, func(c *Config) {
		c.Misconduct = refused.add
		c.CheckFarewell = func(*directory.PeeringChange, time.Time) error { return errors.New("not proven") }
		c.CheckOperator = func(command directory.OperatorCommand) error {
			if command.Request == nil || command.Request.Proof != "true" {
				return errors.New("not proven")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		d.setPolicy(proven(t.Context(), "true", "/", nil), 0, "closed")

		d.settled()

		_, version := d.nodes[0].Replica.state.Policy().Policy()
		was := state.Peer{Domain: beta, State: directory.PeeringActive}
		commands := map[string]state.Command{
			"a policy without an operator":  {Policy: &state.Policy{Text: []byte("permit all")}},
			"an order with a false proof":   ordered("false", version),
			"an order by an earlier policy": ordered("false", 0),
			"a farewell of a peer": {
				Amend: &state.Amend{Was: was, Peer: state.Peer(directory.Peering(was).Ended(true))},
			},
		}

		for i := range d.nodes {
			d.stop(i)
		}

		d.start(0)

		thief := newThief(d, 1)
		judge := func(when string) {
			for name, c := range commands {
				if err := thief.leads(0, nil, command(t, state.FirstVersion, c)); err == nil {
					t.Errorf("%s, %s is acknowledged", when, name)
				}

				refused.one(t, when+", "+name, d.members[1], badCommand)
			}
		}
		judge("after the start")

		replaced := &raft.Log{Index: 2, Type: raft.LogNoop}
		if err := thief.leads(0, func(m *raft.AppendEntriesRequest) {
			m.PrevLogEntry, m.PrevLogTerm, m.LeaderCommitIndex = 1, 1, 0
		}, replaced); err != nil {
			t.Fatal(err)
		}

		judge("once its log is replaced")
	})
}

// A leader with an entry that the other members refuse, though they would have taken its command, steps
// down, and the log of the next one replaces the entry: the domain goes on, without a restart.
//
// Requirement: SEC-012
func TestALeaderWhoseEntryIsRefusedStepsDown(t *testing.T) {
	var (
		leading spiffeid.ID
		judged  atomic.Int32 // how often other members have judged the command
	)

	inDomain(t, 3, func(c *Config) {
		node := c.Node
		c.CheckOperator = func(command directory.OperatorCommand) error {
			// One voter besides the leader accepts it, when the leader asks.
			if command.Request.Proof == "good once" && node != leading && judged.Add(1) > 1 {
				return errors.New("the authority was replaced meanwhile")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		leader, _ := d.leader()
		leading = d.members[leader].ID
		set := func(at int, text string) error {
			_, err := d.nodes[at].SetPolicy(proven(t.Context(), text, "/", nil), []byte(text), nil)

			return err
		}

		must(t, set(leader, "zero"))

		if err := set(leader, "good once"); err == nil {
			t.Fatal("a command that the others refuse is in force")
		}

		for i := range d.nodes {
			d.register(i, fmt.Sprintf("after-%d", i), 6000)
		}

		if now, _ := d.leader(); now == leader {
			t.Error("the leader leads on")
		}

		must(t, set(leader, "one"))

		d.equalStates()

		if text, _ := d.nodes[leader].Replica.state.Policy().Policy(); string(text) != "one" {
			t.Errorf("the policy is %s", text)
		}
	})
}

// A member that was away while an operator's command came and the authority that signed its proof was
// replaced takes the command if another voter has applied it.
//
// Requirement: SEC-012
func TestAMemberThatWasAwayTakesCommandsOfReplacedAuthorities(t *testing.T) {
	var replaced atomic.Bool

	inDomain(t, 3, func(c *Config) {
		c.CheckOperator = func(directory.OperatorCommand) error {
			if replaced.Load() {
				return errors.New("unknown authority")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		leader, away := d.leader()
		d.net.isolate(d.members[away].Address)

		d.setPolicy(proven(t.Context(), "1", "/", nil), leader, "new")

		replaced.Store(true)
		d.net.heal(d.members[away].Address)
		d.ready()
		d.equalStates()
	})
}

// A member takes the word of the sender alone if no other voter answers and it was away for so long that
// authorities may have been replaced: the domain may have no majority without it.
func TestAMemberThatWasAwayForLongTakesTheLeadersWord(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		third := 3 - leader - other
		s := d.nodes[other]
		confirmed := func(replica *Replica) bool {
			never := func(*message.DecisionAnswer) bool { return false }
			asks := peers{member: &member{
				cfg: s.cfg, life: s.life, group: s.group, messenger: s.messenger, replica: replica,
			}}

			return asks.confirmed(d.members[leader].ID, &message.DecisionRequest{}, never)
		}
		past := state.New(alpha, nil)
		long := &Replica{config: s.cfg, state: past}
		long.noteAbsence(time.Now().Add(-awayFor - time.Second))

		// What others make of the committed time later doesn't matter.
		recent := &Replica{config: s.cfg, state: past}
		recent.noteAbsence(time.Now())

		present := s.Replica

		for _, c := range []struct {
			replica *Replica
			silent  bool
			want    bool
		}{
			{present, false, false}, {present, true, false}, {long, false, false}, {long, true, true},
			{recent, true, false},
		} {
			if c.silent {
				d.net.isolate(d.members[third].Address)
			}

			if got := confirmed(c.replica); got != c.want {
				t.Errorf("away %t, others silent %t: confirmed is %t", c.replica == long, c.silent, got)
			}

			d.net.heal(d.members[third].Address)
			d.ready()
			d.eventuallyAnswers(other, third)
		}
	})
}

// Policies that permit and forbid, and orders, come at once at all members: each order takes effect or is
// refused, no member reports another, and the domain goes on.
//
// Requirement: SEC-012
func TestOrdersDuringChangesOfPolicyStopNoDomain(t *testing.T) {
	refused := &refusalRecord{}

	inDomain(t, 3, func(c *Config) {
		c.Misconduct = refused.add
		c.CheckOperator = func(command directory.OperatorCommand) error {
			if command.Action != directory.ActionPolicy && string(command.Policy) == "closed" {
				return directory.Refuse(directory.Forbidden, "not permitted")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		var all sync.WaitGroup

		var done atomic.Int32

		for i, s := range d.nodes {
			all.Go(func() {
				for n := range 20 {
					text := []byte([]string{"open", "closed"}[n%2])
					if _, err := s.SetPolicy(proven(t.Context(), fmt.Sprint("policy", i, n), "/", nil), text,
						nil); err != nil && directory.ProblemOf(err) != directory.Unavailable {
						t.Error(err)
					}

					time.Sleep(20 * time.Millisecond)
				}
			})

			for w := range 4 {
				all.Go(func() {
					for n := range 20 {
						err := s.Order(proven(t.Context(), fmt.Sprint("order", i, w, n), "/", nil),
							directory.ActionRotateKey, "n")
						problem := directory.ProblemOf(err)

						switch {
						case err == nil:
							done.Add(1)
						case problem != directory.Forbidden && problem != directory.Unavailable:
							t.Error(err)
						}
					}
				})
			}
		}

		all.Wait()

		if got := refused.take(); len(got) != 0 || done.Load() == 0 {
			t.Errorf("%d orders took effect; reported are %v", done.Load(), got)
		}

		d.equalStates()
	})
}

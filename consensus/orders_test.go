package consensus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// needProof has members of a domain refuse operators' commands without a proof.
func needProof(c *Config) {
	c.CheckOperator = func(command directory.OperatorCommand) error {
		if command.Request == nil || command.Request.Proof == "" {
			return directory.Refuse(directory.Forbidden, "%s needs an operator's proof", command.Action)
		}

		return nil
	}
}

// proven is ctx with an operator's request whose proof has that name.
func proven(ctx context.Context, name, target string, body []byte) context.Context {
	return directory.WithOperatorRequest(ctx, &directory.OperatorRequest{
		By: ada, Method: "POST", Target: target, Body: body, BodyHash: sha256.Sum256(body), Proof: name,
		ProofID: directory.HashOf([]byte(name)), ProofUntil: time.Now().Unix() + 60,
	})
}

// commandsOf returns the actions that a member has applied, oldest first.
func (d *domain) commandsOf(i int) (all []directory.OperatorCommand) {
	return d.nodes[i].Commands.After(0).Commands
}

// A member's key brings no operator's command: not at the leader, not over a write stream, and
// not by leaving the request out. With the operator's request each member applies it with its
// origin (finding 6).
//
// Requirement: SEC-012, SEC-019
func TestAMemberAloneBringsNoOperatorsCommand(t *testing.T) {
	inDomain(t, 3, needProof, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		node := d.members[follower].ID

		for name, req := range map[string]*message.Request{
			"policy":   {Policy: &state.Policy{Text: []byte("permit(principal,action,resource);")}},
			"peer":     {Peer: &state.Peer{Domain: beta, State: directory.PeeringActive}},
			"amend":    {Amend: &state.Amend{Was: state.Peer{Domain: beta}, Peer: state.Peer{Domain: beta, Mesh: true}}},
			"revoke":   {Revoke: &state.Revoke{Key: directory.Hash{1}.String()}},
			"remove":   {Order: &message.Order{Verb: message.RemoveMember, ID: node}},
			"transfer": {Order: &message.Order{Verb: message.TransferLeadership}},
			"admit":    {Order: &message.Order{Verb: message.AdmitNode, Pattern: "*", Max: 9}},
			"note":     {Order: &message.Order{Verb: message.NoteOrder, Action: directory.ActionRotateKey}},
		} {
			for _, at := range []int{leader, follower} {
				_, err := d.nodes[at].forwarder.write(t.Context(), req)
				if directory.ProblemOf(err) != directory.Forbidden {
					t.Errorf("%s at node %d: %v", name, at, err)
				}
			}
		}

		if len(d.nodes[leader].RaftPeers()) != 3 || d.nodes[leader].Replica.state.Policy().Basis() != 0 {
			t.Fatal("something was changed")
		}

		ctx := proven(t.Context(), "one", "/v1/operator/policy", []byte("{}"))
		d.setPolicy(ctx, follower, "permit(principal,action,resource);")

		d.settled()

		for i := range d.nodes {
			// A node's join may follow.
			all := d.commandsOf(i)
			at := slices.IndexFunc(all, func(c directory.OperatorCommand) bool {
				return c.Action == directory.ActionPolicy
			})

			if at < 0 {
				t.Fatalf("node %d has applied %+v", i, all)
			}

			if set := all[at]; set.From != node || set.Request.By != ada || set.Request.Proof != "one" ||
				string(set.Request.Body) != "{}" || set.Index == 0 || set.Number != uint64(at+1) {
				t.Errorf("node %d has applied %+v", i, set)
			}
		}

		_, err := d.nodes[leader].SetPolicy(ctx, []byte("forbid(principal,action,resource);"), nil)
		problem(t, err, directory.Replayed)
	})
}

// A removal and a transfer of leadership are preceded by the order in the log, a leader's own
// removal too.
//
// Requirement: SEC-012
func TestARemovalIsPrecededByItsOrder(t *testing.T) {
	inDomain(t, 3, needProof, func(t *testing.T, d *domain) {
		leader, follower := d.leader()

		ctx := proven(t.Context(), "one", "/transfer", nil)
		must(t, d.nodes[follower].Transfer(ctx, d.members[follower].ID))

		d.ready()

		gone := d.members[follower].ID
		must(t, d.nodes[leader].Expel(proven(t.Context(), "two", "/remove", nil), gone))

		var orders []string

		for _, c := range d.commandsOf(leader) {
			if c.Request != nil {
				orders = append(orders, c.Action+" "+c.Target+" "+c.Request.Proof)
			}
		}

		if len(orders) != 2 || orders[0] != "raft.transfer "+gone.String()+" one" ||
			orders[1] != "raft.remove "+gone.String()+" two" {
			t.Errorf("the orders are %q", orders)
		}

		eventually(t, "the removed member is forgotten by the nodes", func() bool {
			all := d.commandsOf(leader)
			last := all[len(all)-1]

			return last.Action == directory.ActionForget && last.Target == gone.String() && last.Request == nil
		})
	})
}

// A member cannot choose the action that a removal's proof must be for: another member is removed
// by the proof of a removal alone, whatever else an operator has signed.
//
// Requirement: SEC-012
func TestARemovalNeedsTheProofOfARemoval(t *testing.T) {
	inDomain(t, 3, needProof, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		other := 3 - leader - follower

		for _, action := range []string{directory.ActionTransferLead, directory.ActionRestore, directory.ActionLeave} {
			for _, at := range []int{leader, follower} {
				_, err := d.nodes[at].forwarder.write(proven(t.Context(), action, "/transfer", nil),
					removalOf(d.members[other].ID, action))
				problem(t, err, directory.Forbidden)
			}
		}

		if n := len(d.nodes[leader].RaftPeers()); n != 3 {
			t.Errorf("%d members are left", n)
		}
	})
}

// A standing admission lets as many nodes join as it says, and no more once it is withdrawn.
//
// Requirement: SEC-012
func TestAStandingAdmission(t *testing.T) {
	inDomain(t, 1, needProof, func(t *testing.T, d *domain) {
		pattern := "spiffe://alpha.test/roster/node/*"

		ctx := proven(t.Context(), "one", "/admit", nil)
		must(t, d.nodes[0].Admit(ctx, Admission{Pattern: pattern, Max: 2}))

		first := d.newcomer(nil)
		d.eventuallyVoters(0, 2, 0)

		second := d.newcomer(nil)
		time.Sleep(10 * time.Second)

		if err := d.nodes[second].Ready(); err == nil || len(d.nodes[0].RaftPeers()) != 2 {
			t.Errorf("a third node joined: %v", err)
		}

		must(t, d.nodes[first].Admit(proven(t.Context(), "two", "/admit", nil),
			Admission{Pattern: pattern, Withdraw: true}))

		problem(t, d.nodes[0].Admit(proven(t.Context(), "three", "/admit", nil),
			Admission{Pattern: pattern, Withdraw: true}), directory.NotFound)
	})
}

// A restore is an operator's command: a member's key alone restores nothing, the backup must be
// the one of the proof, and the proof is good once (finding 18).
//
// Requirement: SEC-012, SEC-019
func TestARestoreNeedsTheOperatorsProof(t *testing.T) {
	inDomain(t, 3, needProof, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		file := d.backup(leader)

		d.register(leader, "late", 600)

		before := d.nodes[leader].Replica.Position()
		options := accepting(t, file)
		target := "/v1/operator/snapshot?accept_loss_since=" + options.AcceptLossSince + "&new_epoch=true&reason=drill"

		for _, at := range []int{leader, follower} {
			s := d.nodes[at]
			_, err := s.Restore(t.Context(), bytes.NewReader(file), options)
			problem(t, err, directory.Forbidden)

			_, err = s.Restore(proven(t.Context(), "x", target, []byte("another")), bytes.NewReader(file),
				options)
			problem(t, err, directory.Forbidden)

			// The options are those that the operator has signed.
			_, err = s.Restore(proven(t.Context(), "y", "/v1/operator/snapshot", file), bytes.NewReader(file),
				options)
			problem(t, err, directory.Conflict)
		}

		if now := d.nodes[leader].Replica.Position(); now.Epoch != before.Epoch {
			t.Fatalf("the domain is at %s, was at %s", now, before)
		}

		ctx := proven(t.Context(), "one", target, file)
		if _, err := d.nodes[follower].Restore(ctx, bytes.NewReader(file), RestoreOptions{}); err != nil {
			t.Fatal(err)
		}

		d.ready()
		d.settled()

		for i := range d.nodes {
			restores := 0

			for _, c := range d.commandsOf(i) {
				if c.Action == directory.ActionRestore && c.Request.Proof == "one" && c.From == d.members[follower].ID {
					restores++
				}
			}

			if restores != 1 {
				t.Errorf("node %d has applied %d restores", i, restores)
			}
		}

		_, err := d.nodes[leader].Restore(ctx, bytes.NewReader(file), RestoreOptions{})
		problem(t, err, directory.Replayed)
	})
}

// A member without a vote takes no operator's command to the leader.
//
// Requirement: SEC-012
func TestALearnerBringsNoOperatorsCommand(t *testing.T) {
	inDomain(t, 1, needProof, func(t *testing.T, d *domain) {
		reader := d.newcomer(func(c *Config) { c.Reader = true })

		ctx := proven(t.Context(), "one", "/admit", nil)
		must(t, d.nodes[0].Admit(ctx, Admission{ID: d.members[reader].ID}))

		d.eventuallyVoters(0, 1, 1)
		eventually(t, "the learner is ready", func() bool { return d.nodes[reader].Ready() == nil })

		ctx = proven(t.Context(), "two", "/v1/operator/policy", []byte("{}"))
		_, err := d.nodes[reader].SetPolicy(ctx, []byte("permit(principal,action,resource);"), nil)
		problem(t, err, directory.NotVoter)
	})
}

// A member's key does not replace a peer's bundle: the leader takes one from another member only if
// it has found it itself.
//
// Requirement: SEC-012, TRUST-004
func TestAMemberAloneBringsNoBundle(t *testing.T) {
	found := []byte(`{"keys":[],"spiffe_sequence":2}`)

	inDomain(t, 3, func(c *Config) {
		c.CheckBundle = func(_ spiffeid.TrustDomain, bundle []byte) error {
			if bytes.Equal(bundle, found) {
				return nil
			}

			return directory.Refuse(directory.Conflict, "not found here")
		}
	}, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		held := []byte(`{"keys":[]}`)

		err := d.nodes[leader].SetPeering(t.Context(), directory.Peering{
			Domain: beta, State: directory.PeeringActive, Bundle: held,
			Endpoint: directory.BundleEndpoint{URL: "https://beta.test/bundle", Profile: directory.ProfileSPIFFE},
		})
		must(t, err)

		problem(t, d.nodes[follower].SetBundle(t.Context(), beta, held, []byte(`{"keys":[],"spiffe_sequence":3}`)),
			directory.Conflict)

		if got := d.nodes[leader].Peerings()[0].Bundle; !bytes.Equal(got, held) {
			t.Fatalf("the bundle is %s", got)
		}

		must(t, d.nodes[follower].SetBundle(t.Context(), beta, held, found))

		d.settled()

		all := d.commandsOf(follower)
		if last := all[len(all)-1]; last.Action != directory.ActionBundle || last.Bundle == nil ||
			!bytes.Equal(last.Bundle.Was.Bundle, held) || !bytes.Equal(last.Bundle.Next, found) {
			t.Errorf("the change is traced as %+v", last)
		}

		// The leader proposes no older one, wherever it is from.
		problem(t, d.nodes[leader].SetBundle(t.Context(), beta, found, held), directory.Conflict)
	})
}

// A feed is bounded, and its numbers show what it has forgotten. An operator's command stays until
// it is checked, whatever nodes do by themselves meanwhile.
//
// Requirement: SEC-012
func TestAFeedIsBounded(t *testing.T) {
	var feed CommandFeed

	add := func(n uint64, node bool, size int) {
		feed.add([]directory.OperatorCommand{
			{OperatorChange: directory.OperatorChange{Node: node}, Number: n, Policy: make([]byte, size)},
		}, n, n)
	}

	add(1, false, 0)

	for n := uint64(2); n <= 3*maxFed; n++ {
		add(n, true, 0)
	}

	news := feed.After(0)
	if got := news.Commands; len(got) != maxFed || got[0].Number != 1 || got[1].Number != 2*maxFed+2 ||
		news.Newest != 3*maxFed {
		t.Fatalf("%d commands from %d, %d", len(got), got[0].Number, got[1].Number)
	}

	feed.After(1)
	add(3*maxFed+1, true, 0)

	if got := feed.After(1).Commands; len(got) != maxFed || feed.recent[0].Number != 2*maxFed+2 {
		t.Error("a command that was checked stays")
	}

	for n := feed.newest + 1; n < 2*maxUnchecked; n++ {
		add(n, false, maxUncheckedBytes/maxUnchecked*2)
	}

	if feed.size > maxUncheckedBytes || len(feed.recent) > maxUnchecked || len(feed.recent) < maxUnchecked/4 {
		t.Errorf("%d unchecked commands of %d bytes", len(feed.recent), feed.size)
	}

	if feed.After(0).InState != 0 {
		t.Error("commands that were applied here count as those of a snapshot")
	}

	feed.restored(50_000)

	feed.logged = 7
	feed.add([]directory.OperatorCommand{{Number: 50_000}}, 7, 50_000)
	feed.add([]directory.OperatorCommand{{Number: 50_000}}, 8, 50_000)

	if all := feed.After(49_999).Commands; len(all) != 2 || !all[0].Again || all[1].Again {
		t.Error("commands of the log with which the member started are not marked")
	}

	feed = CommandFeed{}
	feed.restored(50_000)

	if news := feed.After(40_000); len(news.Commands) != 0 || news.Newest != 50_000 || news.InState != 50_000 {
		t.Error("the commands of a snapshot are not counted")
	}
}

// After a restore the commands behind the backup have numbers that the reader has seen before: they are
// new to it, and they stay until it has asked for them.
//
// Requirement: SEC-012
func TestAFeedBeginsAgainAfterARestore(t *testing.T) {
	var feed CommandFeed

	add := func(n uint64) { feed.add([]directory.OperatorCommand{{Number: n}}, n, n) }
	for n := uint64(1); n <= 100; n++ {
		add(n)
	}

	// Up to a lower number than that of before, and up to a higher one.
	for _, until := range []uint64{20, 120} {
		feed.After(100)
		feed.restored(10)

		for n := uint64(11); n <= until; n++ {
			add(n)
		}

		news := feed.After(100)
		if news.After != 10 || uint64(len(news.Commands)) != until-10 || news.Commands[0].Number != 11 {
			t.Errorf("up to %d the reader gets %d commands behind %d", until, len(news.Commands), news.After)
		}

		for n := until + 1; n <= until+2*maxFed; n++ {
			add(n)
		}

		if news := feed.After(until); len(news.Commands) != 2*maxFed {
			t.Errorf("%d of %d commands are left", len(news.Commands), 2*maxFed)
		}
	}
}

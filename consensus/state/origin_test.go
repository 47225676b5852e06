package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// operatorOrigin is the origin of a command that an operator ordered at node n0.
func operatorOrigin(target string) *Origin {
	return &Origin{From: must(alphaNode("n0")), Mark: []byte{1, 2}, Operator: &OperatorRequest{
		By: ada, Method: "POST", Target: target, Body: []byte(`{"id":"n3"}`), BodyHash: directory.Hash{5},
		Proof: "a.b.c", ProofID: directory.HashOf([]byte(target)), ProofUntil: genesis/1000 + 60,
	}}
}

// applies applies a command that is not refused.
func (d *drive) applies(seconds int64, c Command) {
	d.t.Helper()

	if r := d.at(seconds, c); r.Err != nil {
		d.t.Fatal(r.Err)
	}
}

// judgedOrigin is operatorOrigin, judged by the policy of version 7.
func judgedOrigin(target string) *Origin {
	origin := operatorOrigin(target)
	origin.Judged, origin.Policy = genesis, 7

	return origin
}

// An operator's command is a leaf of type 6 that names the operator, the member that brought
// it, its position and the hash of its proof.
//
// Requirement: SEC-012, LOG-020
func TestAnOperatorsCommandIsALeaf(t *testing.T) {
	d := newDrive(t)
	before := d.state.history.ledger
	before.Edges = slices.Clone(before.Edges)

	r := d.at(2, Command{Policy: &Policy{Text: []byte("permit (principal, action, resource);")},
		Origin: operatorOrigin("/v1/operator/policy")})
	if r.Err != nil {
		t.Fatal(r.Err)
	}

	proof, body := directory.HashOf([]byte("a.b.c")), directory.Hash{5}
	before.Append(ledger.EntryOf(6, []byte(`{"v":1,"iss":"spiffe://alpha.test","epoch":1793491200,"rev":2,"at":1793491202,`+
		`"action":"policy.write","target":"","by":"spiffe://alpha.test/agent/ada",`+
		`"from":"spiffe://alpha.test/roster/node/n0","bh":"`+body.String()+`","proof":"`+proof.String()+`"}`)))

	if got := d.state.history.ledger; got.Size != before.Size || got.Root() != before.Root() {
		t.Errorf("the ledger has %d leaves and another root, want %d", got.Size, before.Size)
	}

	traced := d.state.Traced()
	if len(traced) != 1 || traced[0].Number != 1 || traced[0].Request.By != ada ||
		traced[0].Position != r.Outcome.Position ||
		traced[0].PolicyVersion != 0 || traced[0].Action != directory.ActionPolicy {
		t.Errorf("traced is %+v", traced)
	}
}

// A proof is used up by a command that succeeds, on every member.
//
// Requirement: SEC-019
func TestAnOperatorsProofIsUsedOnce(t *testing.T) {
	d := newDrive(t)
	order := Command{Order: &Order{directory.ActionRemoveMember, "n3"},
		Origin: operatorOrigin("/v1/operator/raft/remove")}

	// A refused command uses up nothing, because the leader prepares it again.
	amend := Command{Amend: &Amend{Was: Peer{Domain: beta, State: directory.PeeringActive}, Peer: peerBeta},
		Origin: order.Origin}
	problem(t, d.at(1, amend).Err, directory.Conflict)

	d.applies(2, order)

	size := d.state.history.ledger.Size
	problem(t, d.at(3, order).Err, directory.Replayed) // the second use

	if d.state.history.ledger.Size != size || len(d.state.Traced()) != 0 {
		t.Error("a refused command left a trace")
	}

	problem(t, d.at(179, order).Err, directory.Replayed) // a use while a leader may still have judged it in time

	// A leader moves the committed time ahead, so that the proof has ended, and back.
	for _, seconds := range []int64{181, 90_000, 2} {
		if r := d.at(seconds, order); directory.ProblemOf(r.Err) != directory.Replayed {
			t.Errorf("a use at %d s: %v", seconds, r.Err)
		}
	}
}

// A state remembers so many operators' proofs that have ended, and refuses those that are older: also a
// state that was read from a snapshot, a state by which a backup succeeds it, and one that an outline
// begins.
//
// Requirement: SEC-019
func TestAForgottenProofIsRefused(t *testing.T) {
	d := newDrive(t)
	order := func(n int) Command {
		origin := operatorOrigin(fmt.Sprintf("/v1/operator/raft/remove?%d", n))
		origin.Operator.ProofUntil += int64(n)

		return Command{Order: &Order{directory.ActionRemoveMember, "n3"}, Origin: origin}
	}

	for n := range maxOrdered + 2 {
		d.applies(int64(n), order(n))
	}

	const ahead = 90_000
	d.applies(ahead, order(maxOrdered+2)) // 3 more than are remembered, and all have ended

	back := restore(t, d.state)
	restored := New(alpha, nil)
	restored.Succeed(d.state, "a backup was restored", nil)

	for name, s := range map[string]*State{"applied": d.state, "restored": back, "succeeded": restored,
		"outlined": d.state.Outline()} {
		if n := len(s.ordered.known); n != maxOrdered || s.ordered.queue.Len() != n {
			t.Errorf("%s: %d proofs are remembered, want %d", name, n, maxOrdered)
		}

		for _, n := range []int{0, 1, 2, 3, maxOrdered + 2} {
			problem(t, s.CheckProof(order(n).Origin), directory.Replayed)
		}

		if err := s.CheckProof(order(maxOrdered + 3).Origin); err != nil {
			t.Errorf("%s: a new proof: %v", name, err)
		}

		if err := s.Follows(d.state); s != restored && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A false leader's snapshot, in which proofs were not used.
	for name, forget := range map[string]func(*ordered){
		"the mark":  func(o *ordered) { o.forgotten-- },
		"one proof": func(o *ordered) { delete(o.known, o.queue.Pop().Proof) },
	} {
		forged := restore(t, d.state)
		if forget(&forged.ordered); forged.Follows(d.state) == nil {
			t.Errorf("a snapshot without %s is taken", name)
		}
	}
}

// What a node does by itself is traced if it changes something, and is a leaf of type 6 if it
// is no other leaf. A change of a peering beyond its state is an operator's.
//
// Requirement: SEC-012
func TestANodesOwnCommandIsTraced(t *testing.T) {
	d := newDrive(t)
	accepted := Peer{Domain: beta, State: directory.PeeringPending, Bundle: []byte("{}"),
		Addresses: []string{"https://b"}}
	d.at(1, Command{Amend: &Amend{Was: Peer{Domain: beta}, Peer: accepted},
		Origin: operatorOrigin("/v1/operator/peers")})

	from := must(alphaNode("n1"))
	change := func(was, next Peer, action string, own bool) {
		t.Helper()

		c := Command{Amend: &Amend{Was: was, Peer: next}, Origin: &Origin{From: from}}
		if got, _ := c.Change(); got.Action != action || got.Node != own {
			t.Errorf("%s to %s: %+v", was.State, next.State, got)
		}

		d.applies(2, c)

		if traced := d.state.Traced(); len(traced) != 1 || traced[0].From != from || traced[0].Action != action {
			t.Errorf("%s to %s: %+v", was.State, next.State, traced)
		}
	}

	active, frozen := accepted, accepted
	active.State, frozen.State = directory.PeeringActive, directory.PeeringFrozen
	change(accepted, active, directory.ActionConfirm, true)
	change(active, frozen, directory.ActionFreeze, true)
	change(frozen, active, directory.ActionPeering, false)

	other := active
	other.Addresses = []string{"https://evil"}
	other.State = directory.PeeringFrozen
	change(active, other, directory.ActionPeering, false)
	other.State = directory.PeeringActive
	d.at(3, Command{Amend: &Amend{Was: Peer{}, Peer: other}})

	ended := other
	ended.State, ended.ByPeer = directory.PeeringTerminated, true
	d.at(4, Command{Peer: &other})
	change(other, ended, directory.ActionFarewell, true)

	size := d.state.history.ledger.Size
	d.at(5, Command{Rebundle: &Rebundle{Domain: beta, Held: directory.Hash{1}, Bundle: []byte("{}")}})

	if len(d.state.Traced()) != 0 || d.state.history.ledger.Size != size {
		t.Error("a bundle that was not taken left a trace")
	}
}

// A restore keeps who may be a member of the domain now, and not who was when the backup was made.
func TestARestoreKeepsTheLiveAdmissions(t *testing.T) {
	d := newDrive(t)
	withdrawn, present := "spiffe://alpha.test/roster/node/r*", "spiffe://alpha.test/roster/node/s*"
	admit := func(at int64, pattern string, most uint32) {
		d.at(at, Command{Admit: &Admission{Pattern: pattern, Max: most},
			Origin: operatorOrigin(fmt.Sprint("/v1/operator/raft/admit?", at))})
	}

	admit(1, withdrawn, 3)

	backup := restore(t, d.state)

	admit(2, withdrawn, 0)
	admit(3, present, 2)
	backup.Succeed(d.state, "a test", nil)

	if got := backup.members.Standing(); len(got) != 1 || got[0].Pattern != present || got[0].Max != 2 {
		t.Errorf("after the restore nodes are admitted by %+v", got)
	}
}

// The number of traced commands and the standing admissions are in snapshots.
//
// Requirement: SEC-012
func TestTracesAreCountedInSnapshots(t *testing.T) {
	d := newDrive(t)
	pattern := "spiffe://alpha.test/roster/node/r*"
	d.at(1, Command{Admit: &Admission{Pattern: pattern, Max: 1}, Origin: operatorOrigin("/v1/operator/raft/admit")})

	back := restore(t, d.state)
	if back.history.commands != d.state.history.commands {
		t.Errorf("%d commands are counted, want %d", back.history.commands, d.state.history.commands)
	}

	one, two := must(alphaNode("r1")), must(alphaNode("r2"))
	if got, ok := back.members.AdmittedByPattern(one, nil); !ok || got != pattern {
		t.Error("a node that matches is not admitted")
	}

	if _, ok := back.members.AdmittedByPattern(two, []spiffeid.ID{one}); ok {
		t.Error("one more than the maximum is admitted")
	}

	if _, ok := back.members.AdmittedByPattern(must(alphaNode("x")), nil); ok {
		t.Error("a node that does not match is admitted")
	}

	d.at(2, Command{Admit: &Admission{Pattern: pattern}, Origin: operatorOrigin("/v1/operator/raft/admit?again")})

	if _, ok := d.state.members.AdmittedByPattern(one, nil); ok {
		t.Error("a withdrawn admission holds")
	}
}

// An operator's command is applied under the policy by which it was judged, and no other: the leader judges
// it again.
//
// Requirement: SEC-012
func TestACommandIsAppliedUnderThePolicyThatJudgedIt(t *testing.T) {
	d := newDrive(t)
	d.applies(1, Command{Policy: &Policy{Text: []byte("one")}, Origin: operatorOrigin("/v1/operator/policy")})
	_, version := d.state.Policy().Policy()

	next := Command{Order: &Order{directory.ActionRemoveMember, "n3"},
		Origin: operatorOrigin("/v1/operator/raft/remove")}
	for _, other := range []uint64{0, version - 1, version + 1} {
		next.Origin.Policy = other
		if r := d.at(2, next); !errors.Is(r.Err, ErrMoved) || len(d.state.Traced()) != 0 {
			t.Errorf("judged by version %d under version %d: %v", other, version, r.Err)
		}
	}

	next.Origin.Policy = version
	d.applies(3, next)
}

// A command is judged at the leader's time, unless that is far from the committed one: then at that, at
// which no old proof is in force.
func TestTheTimeOfAJudgementIsNearTheCommittedOne(t *testing.T) {
	committed := genesis
	for judged, want := range map[int64]int64{
		0: committed, committed: committed, committed - 5000: committed - 5000, committed - 121_000: committed,
		committed + 121_000: committed,
	} {
		if got := (&Origin{Judged: judged}).JudgedAt(committed, JudgedFor).UnixMilli(); got != want {
			t.Errorf("judged at %d: %d, want %d", judged, got, want)
		}
	}

	if got := (*Origin)(nil).JudgedAt(committed, JudgedFor).UnixMilli(); got != committed {
		t.Errorf("without an origin: %d", got)
	}
}

// A transfer names the registration's name, for which the operator's request may be.
//
// Requirement: SEC-012
func TestATransferNamesItsRegistration(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)

	move := d.transferring(tool, rid, bob)

	move.Agent = "printer"
	if r := d.at(2, Command{Transfer: move}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("by another name: %v", r.Err)
	}

	move.Agent = "translator"
	d.applies(3, Command{Transfer: move})
}

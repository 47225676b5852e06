package consensus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

// A text that is too large, or that the checker refuses, is not proposed.
//
// Requirement: TRUST-013
func TestABadLawIsNotProposed(t *testing.T) {
	p := &preparer{&member{cfg: &Config{CheckPolicy: func([]byte) error {
		return directory.Refuse(directory.BadRequest, "no")
	}}}}
	problem(t, p.checkPolicy(&state.Policy{Text: []byte("permit")}), directory.BadRequest)
	problem(t, p.checkPolicy(&state.Policy{Text: []byte(strings.Repeat(" ", state.MaxPolicy+1))}), directory.TooLarge)

	if err := p.checkPolicy(&state.Policy{}); err != nil {
		t.Errorf("back to what is built in: %v", err)
	}
}

// A follower that sends nonsense for a document is refused, and nothing is proposed.
func TestADamagedDocumentFromAFollower(t *testing.T) {
	cfg := &Config{Domain: alpha, Clock: directory.NewCheckedClock(func() time.Time { return time.UnixMilli(genesis) })}
	p := &preparer{&member{cfg: cfg, replica: newReplica(cfg, newLifecycle(nil))}}
	resting := directory.LoadDocument(directory.KindAD, directorytest.Weighty(1)).Compressed().StoredBytes()

	_, err := p.prepareRegister(&message.Register{Agent: "translator", Kind: directory.KindAD,
		Document: resting[:len(resting)-3]}, true)
	if directory.ProblemOf(err) != directory.BadRequest {
		t.Error(err)
	}
}

// A node doesn't sign by another's key, nor by one that the other had a moment ago.
func TestAKeyIsOneNodes(t *testing.T) {
	t.Parallel()
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		key := func(node string, b byte) signed.SigningKey {
			return signed.SigningKey{Public: append(make([]byte, 31), b), Node: valueOf(alphaNode(node)),
				Attestations: []string{"a.b.c"}}
		}
		for _, tc := range []struct {
			key     signed.SigningKey
			problem directory.Problem
		}{
			{key("n0", 1), ""}, {key("n1", 1), directory.Conflict}, {key("n0", 2), ""},
			{key("n1", 1), directory.Conflict}, {key("n1", 3), ""}, {key("n0", 1), ""},
		} {
			err := d.nodes[0].Attest(t.Context(), tc.key)
			if (err == nil) != (tc.problem == "") || err != nil && directory.ProblemOf(err) != tc.problem {
				t.Errorf("%s by key %d: %v", tc.key.Node, tc.key.Public[31], err)
			}
		}

		if keys := d.nodes[0].Replica.KeyDocument().Keys; len(keys) != 3 || keys[2].Public[31] != 2 {
			t.Errorf("the document lists %v", keys)
		}
	})
}

// A member's key brings no text as an attestation, and changes the node's key a few times at once. To
// repeat a change is free (finding 38).
func TestKeysChangeSeldomAndAttested(t *testing.T) {
	t.Parallel()
	inDomain(t, 1, func(c *Config) {
		c.CheckAttestation = func(key signed.SigningKey) error {
			if key.Attestations[0] == "any text" {
				return directory.Refuse(directory.BadRequest, "no attestation")
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		attest := func(node string, b byte, attestation string) error {
			return d.nodes[0].Attest(t.Context(), signed.SigningKey{Public: append(make([]byte, 31), b),
				Node: valueOf(alphaNode(node)), Attestations: []string{attestation}})
		}
		problem(t, attest("n0", 1, "any text"), directory.BadRequest)

		var last byte

		rotate := func(count int) (taken int) {
			for i := range count {
				err := attest("n0", byte(i), "a.b.c")
				if err == nil {
					taken++
					last = byte(i)
				} else if directory.ProblemOf(err) != directory.RateLimited {
					t.Fatal(err)
				}
			}

			return taken
		}
		if taken := rotate(150); taken != keyChangeBurst {
			t.Errorf("%d of 150 rotations are taken, want %d", taken, keyChangeBurst)
		}

		if err := attest("n0", last, "a.b.c"); err != nil {
			t.Errorf("what is in force is refused: %v", err)
		}

		if err := attest("n1", 200, "a.b.c"); err != nil {
			t.Errorf("another node waits for it: %v", err)
		}

		time.Sleep(2 * keyChangeEvery)

		if taken := rotate(5); taken != 2 {
			t.Errorf("%d changes are taken after two intervals, want 2", taken)
		}
	})
}

// What apply would refuse is refused before it is in the log: else who has used up a
// quota could fill the log with documents.
//
// Requirement: FORM-005
func TestWhatExceedsAQuotaIsNotLogged(t *testing.T) {
	inDomain(t, 1, func(c *Config) { c.Rules = Rules{BytesPerOwner: 1000} }, func(t *testing.T, d *domain) {
		s := d.nodes[0]
		large := func(agent string) directory.RegisterRequest {
			r := put(t, ada, agent, 600)
			r.Document = directorytest.DocumentOf(t, 900)

			return r
		}

		_, err := s.Register(t.Context(), large("one"))
		must(t, err)

		before := s.group.raft.LastIndex()
		for i := range 20 {
			_, err := s.Register(t.Context(), large(fmt.Sprint("agent-", i)))
			directorytest.WantQuota(t, err, "limits.bytes_per_owner", 900, 1000)
		}

		if added := s.group.raft.LastIndex() - before; added > 5 {
			t.Errorf("20 refusals left %d entries in the log", added)
		}

		if got := s.Replica.Quotas(); got.Registrations != 1 || got.Bytes != 900 || got.Owners != 1 ||
			got.LargestShare != float64(57)/64 {
			t.Errorf("the quotas are said to be %+v", got)
		}
	})
}

// A change that was permitted by a policy which is in force no more is asked about
// anew, at whatever member it was permitted.
//
// Requirement: TRUST-008, TRUST-013
func TestWhatAnOldPolicyPermittedIsAskedAnew(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		version := uint64(0)
		judged := func(r directory.RegisterRequest) directory.RegisterRequest {
			r.Caller.PolicyVersion = &version
			return r
		}

		out, err := d.nodes[other].Register(t.Context(), judged(put(t, ada, "translator", 600)))
		must(t, err)

		give := directory.TransferRequest{Caller: directory.Caller{Identity: ada, PolicyVersion: &version},
			RID: out.RID, Step: directory.TransferForce, To: bob, Statement: out.Position.Revision}

		d.setPolicy(t.Context(), leader, "permit (principal, action, resource);")

		_, err = d.nodes[other].Register(t.Context(), judged(put(t, ada, "translator", 600)))
		problem(t, err, directory.Overtaken)
		_, err = d.nodes[other].TransferOwner(t.Context(), give)
		problem(t, err, directory.Overtaken)

		version = d.nodes[leader].Replica.Position().Revision
		give.Statement++
		_, err = d.nodes[other].TransferOwner(t.Context(), give)
		problem(t, err, directory.Overtaken)

		give.Statement--
		_, err = d.nodes[other].TransferOwner(t.Context(), give)
		must(t, err)

		_, err = d.nodes[leader].Refresh(t.Context(),
			directory.RefreshRequest{Caller: directory.Caller{Identity: ada}, RID: out.RID})
		problem(t, err, directory.Forbidden)

		if _, err := d.nodes[leader].Refresh(t.Context(),
			directory.RefreshRequest{Caller: directory.Caller{Identity: bob}, RID: out.RID}); err != nil {
			t.Errorf("its new owner: %v", err)
		}
	})
}

// Ownership is offered and accepted at any members, and policy is asked about what is accepted.
// The word of an owner alone moves nothing, though a member of an older release sends it.
//
// Requirement: SEC-007, TRUST-008
func TestOwnershipIsOfferedAtOneMemberAndAcceptedAtAnother(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()

		version := uint64(0)
		step := func(at int, who directory.Identity, rid directory.RID, r directory.TransferRequest) (directory.Outcome,
			error) {
			r.Caller, r.RID = directory.Caller{Identity: who, PolicyVersion: &version}, rid
			return d.nodes[at].TransferOwner(t.Context(), r)
		}

		out := d.register(other, "translator", 600)

		rid, statement := out.RID, out.Position.Revision
		offer := directory.TransferRequest{Step: directory.TransferOffer, To: bob, Lifetime: 300, Statement: statement}
		offered, err := step(other, ada, rid, offer)

		if err != nil || offered.OfferUntil == 0 || offered.Position.Revision != statement {
			t.Fatalf("an offer gave %+v, %v", offered, err)
		}

		offer.Statement--
		_, err = step(other, ada, rid, offer)
		problem(t, err, directory.Overtaken)

		eventually(t, "each member has the offer", func() bool {
			for _, s := range d.nodes {
				if o, ok := s.Offer(rid); !ok || o.To != bob || len(s.Offers(bob, directory.RID{}, 9)) != 1 {
					return false
				}
			}

			return true
		})

		accept := directory.TransferRequest{Step: directory.TransferAccept, Statement: statement}
		_, err = step(other, ada, rid, accept)
		problem(t, err, directory.NotFound)

		stale := accept
		stale.Statement--
		_, err = step(other, bob, rid, stale)
		problem(t, err, directory.Overtaken)

		d.setPolicy(t.Context(), leader, "permit (principal, action, resource);")

		_, err = step(other, bob, rid, accept)
		problem(t, err, directory.Overtaken)

		version = d.nodes[leader].Replica.Position().Revision

		if _, err = step(other, bob, rid, accept); err != nil {
			t.Fatal(err)
		}

		if e, ok := d.nodes[other].cfg.Index.Get(rid); !ok || e.Owner != bob || e.Provenance != nil {
			t.Errorf("it is %+v", e)
		}

		statement = d.nodes[leader].Replica.Position().Revision
		if _, err := step(leader, bob, rid, directory.TransferRequest{Step: directory.TransferOffer, To: ada,
			Lifetime: 300, Statement: statement}); err != nil {
			t.Fatal(err)
		}

		if _, err := step(other, ada, rid, directory.TransferRequest{Step: directory.TransferDecline}); err != nil {
			t.Fatal(err)
		}

		_, err = step(other, ada, rid, directory.TransferRequest{Step: directory.TransferAccept, Statement: statement})
		problem(t, err, directory.NotFound)
		eventually(t, "no member has an offer", func() bool { // which takes no revision
			return !slices.ContainsFunc(d.nodes, func(s *Store) bool {
				return len(s.Offers(bob, directory.RID{}, 9)) > 0
			})
		})
		d.equalStates()
	})
}

// Any member takes a list, and each member has it afterwards.
func TestManyAreRefreshedOnAnyMember(t *testing.T) {
	t.Parallel()
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()

		mine := d.register(leader, "mine", 600)

		others, err := d.nodes[leader].Register(t.Context(), put(t, bob, "others", 600))
		must(t, err)

		for _, at := range []int{leader, follower} {
			out, err := d.nodes[at].RefreshMany(t.Context(), directory.RefreshBatch{
				Caller: directory.Caller{Identity: ada},
				Items:  []directory.Renewal{{RID: mine.RID, Lifetime: 700 + uint32(at)}, {RID: others.RID}},
			})
			if err != nil || len(out.Each) != 2 {
				t.Fatalf("at %d: %+v, %v", at, out, err)
			}

			if out.Each[0] != (directory.RenewalResult{Granted: 700 + uint32(at)}) ||
				directory.ProblemOf(out.Each[1].Err) != directory.Forbidden {
				t.Errorf("at %d: %+v", at, out.Each)
			}

			if e, _ := d.nodes[at].cfg.Index.Get(mine.RID); e.Lifetime != 700+uint32(at) {
				t.Errorf("the member that was asked doesn't show it: %+v", e)
			}
		}

		var none *directory.Error
		if _, err := d.nodes[follower].RefreshMany(t.Context(),
			directory.RefreshBatch{Caller: directory.Caller{Identity: ada}}); !errors.As(err, &none) ||
			none.Problem != directory.BadRequest {
			t.Errorf("an empty list: %v", err)
		}
	})
}

// A log entry, and a message to the leader, end where they have changes enough, and one
// change waits for no list that is not in its entry.
func TestAnEntryHasBoundedChanges(t *testing.T) {
	b := newBatcher[state.Result](nil, maxBatch, state.MaxBatchBytes)
	add := func(weight int) {
		_, err := b.add(t.Context(), nil, weight)
		must(t, err)
	}

	for range 5 {
		add(directory.MaxRenewals)
	}

	single := func() { add(1) }
	weights := func(first *proposal) (ws []int) {
		for _, p := range b.gather(first) {
			ws = append(ws, p.weight)
		}

		return ws
	}
	single()
	single()

	if got, want := weights(<-b.lists), []int{directory.MaxRenewals, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("an entry that begins with a list has %d, want %d", got, want)
	}

	single()
	single()

	if got, want := weights(<-b.singles), []int{1, 1, directory.MaxRenewals}; !slices.Equal(got, want) {
		t.Errorf("an entry that begins with one change has %d, want %d", got, want)
	}
}

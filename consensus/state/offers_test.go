package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// offer has who offer a registration as it is.
func (d *drive) offer(seconds int64, who directory.Identity, rid directory.RID, to directory.Identity,
	lifetime uint32) Result {
	d.t.Helper()

	return d.at(seconds, Command{Offer: &Offer{RID: rid, Caller: who, To: to, Statement: d.entry(rid).Statement,
		Lifetime: lifetime}})
}

// accepting is an accept command as a leader makes it.
func (d *drive) accepting(who directory.Identity, rid directory.RID) *Accept {
	d.n++
	g := meshGrant(who)
	g.Policy = d.state.policy.basis

	return &Accept{Format: signed.StatementFormat, RID: rid, Salt: signed.Salt{byte(d.n)}, Caller: who,
		Statement: d.entry(rid).Statement, Granted: g}
}

// An offer changes nothing: it takes no revision and is no leaf. Its acceptance is one change
// with one leaf, which makes the new owner the registrant of the contents.
//
// Requirement: SEC-007, TRUST-008, AD-002
func TestOwnershipIsOfferedAndAccepted(t *testing.T) {
	d := newDrive(t)
	rid := d.registerFor(1, ada, "translator", true)
	before, history := d.entry(rid), d.state.history
	history.ledger.Edges = slices.Clone(history.ledger.Edges)

	r := d.offer(2, ada, rid, bob, 600)
	if r.Err != nil || r.Outcome.RID != rid || r.Outcome.OfferUntil != genesis/1000+602 {
		t.Fatalf("an offer gave %+v", r)
	}

	if d.state.history.revision != history.revision || d.state.history.ledger.Root() != history.ledger.Root() ||
		d.entry(rid).Owner != ada || d.provenance(rid).RegisteredBy != tool {
		t.Error("an offer changed something")
	}

	want := directory.Offer{RID: rid, Agent: "translator", Owner: ada, To: bob, Statement: before.Statement,
		ExpiresAt: genesis + 602_000}
	for _, party := range []directory.Identity{ada, bob} {
		if got := d.state.offers.Involving(party, directory.RID{}, 9); len(got) != 1 || got[0] != want {
			t.Errorf("%s sees %+v, want %+v", party, got, want)
		}
	}

	problem(t, d.at(3, Command{Accept: d.accepting(tool, rid)}).Err, directory.NotFound)
	problem(t, d.at(3, Command{Accept: d.accepting(ada, rid)}).Err, directory.NotFound)

	forged := d.accepting(bob, rid)

	forged.Granted.Owner = ada
	if r := d.at(3, Command{Accept: forged}); r.Err == nil || d.entry(rid).Owner != ada {
		t.Errorf("with grants of another owner: %v", r.Err)
	}

	r = d.at(100, Command{Accept: d.accepting(bob, rid)})
	after := d.entry(rid)

	if r.Err != nil || after.Owner != bob || after.Revision != before.Revision+1 ||
		d.state.history.ledger.Size != history.ledger.Size+1 || after.ExpiresAt != before.ExpiresAt {
		t.Fatalf("an acceptance gave %+v of %+v", r, after)
	}

	if got := d.provenance(rid); !got.IsZero() {
		t.Errorf("the accepter registered the contents, and its statement says %+v", got)
	}

	if _, open := d.state.offers.Of(rid); open || len(d.state.offers.parties) != 0 || len(d.state.offers.each) != 0 {
		t.Error("an accepted offer is still open")
	}

	problem(t, d.at(101, Command{Accept: d.accepting(bob, rid)}).Err, directory.NotFound)
}

// Requirement: SEC-007
func TestWhatEndsAnOffer(t *testing.T) {
	for name, test := range map[string]struct {
		does func(d *drive, rid directory.RID)
		want directory.Problem // of an acceptance; none if that succeeds
	}{
		"nothing":   {func(*drive, directory.RID) {}, ""},
		"a refresh": {func(d *drive, rid directory.RID) { d.refresh(10, ada, rid, 900) }, ""},
		"other contents": {func(d *drive, _ directory.RID) { d.register(10, ada, "translator", 900) },
			directory.OfferChanged},
		"an operator": {func(d *drive, rid directory.RID) {
			d.at(10, Command{Transfer: d.transferring(otto, rid, tool)})
		}, directory.NotFound},
		"its owner": {func(d *drive, rid directory.RID) {
			d.at(10, Command{CloseOffer: &CloseOffer{RID: rid, Caller: ada}})
		}, directory.NotFound},
		"its recipient": {func(d *drive, rid directory.RID) {
			d.at(10, Command{CloseOffer: &CloseOffer{RID: rid, Caller: bob}})
		}, directory.NotFound},
		"a third party": {func(d *drive, rid directory.RID) {
			problem(d.t, d.at(10, Command{CloseOffer: &CloseOffer{RID: rid, Caller: tool}}).Err, directory.NotFound)
		}, ""},
		"its time": {func(d *drive, rid directory.RID) { d.refresh(62, ada, rid, 900) }, directory.NotFound},
		"another offer": {func(d *drive, rid directory.RID) { d.offer(10, ada, rid, tool, 60) },
			directory.NotFound},
		"its owner's removal": {func(d *drive, rid directory.RID) {
			d.at(10, Command{Remove: &Remove{Format: 1, RID: rid, Caller: ada}})
			d.register(11, ada, "translator", 600)
		}, directory.NotFound},
		"a backup": {func(d *drive, _ directory.RID) {
			d.state = restore(t, d.state)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive(t)
			rid := d.register(1, ada, "translator", 600)

			if r := d.offer(2, ada, rid, bob, 60); r.Err != nil {
				t.Fatal(r.Err)
			}

			accept := d.accepting(bob, rid)
			test.does(d, rid)

			if reg := d.state.registrations.regs.get(rid); reg != nil {
				accept = d.accepting(bob, rid)
			}

			r := d.at(61, Command{Accept: accept})
			if got := r.Err; test.want == "" && (got != nil || d.entry(rid).Owner != bob) {
				t.Errorf("it is not accepted: %v", got)
			} else if test.want != "" {
				problem(t, got, test.want)
			}

			left := 0
			if test.want == directory.OfferChanged || name == "another offer" {
				left = 1
			}

			if len(d.state.offers.open) != left {
				t.Errorf("%d offers are open, want %d", len(d.state.offers.open), left)
			}
		})
	}
}

// Requirement: SEC-007
func TestWhichOffersAreRefused(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)

	problem(t, d.offer(2, bob, rid, bob, 60).Err, directory.Forbidden)
	problem(t, d.offer(2, tool, rid, bob, 60).Err, directory.Forbidden)
	problem(t, d.offer(2, ada, rid, ada, 60).Err, directory.BadRequest)
	problem(t, d.offer(2, ada, rid, bob, 0).Err, directory.BadRequest)
	problem(t, d.offer(2, ada, rid, bob, directory.MaxOfferLifetime+1).Err, directory.BadRequest)

	stale := &Offer{RID: rid, Caller: ada, To: bob, Statement: 1, Lifetime: 60}
	if r := d.at(2, Command{Offer: stale}); r.Err == nil {
		t.Error("an offer of other contents is taken")
	}

	d.offer(2, ada, rid, bob, 60)
	d.at(3, Command{Rules: &Rules{PerOwner: 1}})
	d.register(3, bob, "summarizer", 600)
	problem(t, d.at(4, Command{Accept: d.accepting(bob, rid)}).Err, directory.QuotaExceeded)

	moved := d.accepting(bob, rid)
	d.at(5, Command{Policy: &Policy{Text: []byte("forbid (principal, action, resource);")}})

	if r := d.at(6, Command{Accept: moved}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("under another policy: %v", r.Err)
	}

	if len(d.state.offers.open) != 1 || d.entry(rid).Owner != ada {
		t.Error("a refusal changed something")
	}
}

// Offers are bounded, and a bound is no refusal to replace one's own.
//
// Requirement: SEC-007
func TestOffersAreBounded(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)
	reg := d.state.registrations.regs.get(rid)
	offer := &Offer{RID: rid, Caller: ada, To: bob, Statement: reg.entry.Statement, Lifetime: 60}

	fill := func(n int, owner func(i int) directory.Identity) {
		for i := range n {
			d.state.offers.put(openOffer{directory.NewRID(7, [10]byte{byte(i >> 8), byte(i), 1}), owner(i), bob, 1,
				genesis/1000 + 60})
		}
	}
	fill(maxOffersEach, func(int) directory.Identity { return ada })
	problem(t, d.state.offers.Check(offer, reg), directory.QuotaExceeded)
	d.state.offers.put(openOffer{rid, ada, bob, 1, genesis/1000 + 60})

	if err := d.state.offers.Check(offer, reg); err != nil {
		t.Errorf("an offer in the place of another: %v", err)
	}

	d.state.offers.drop(rid)
	fill(maxOffers, func(i int) directory.Identity {
		return must(directory.ParseIdentity(fmt.Sprintf("spiffe://alpha.test/agent/n%d", i%1000)))
	})
	problem(t, d.state.offers.Check(offer, reg), directory.Unavailable)

	// An owner that replaces its offer at any pace takes no more memory.
	d = newDrive(t)
	rid = d.register(1, ada, "translator", 600)

	for range 10_000 {
		d.offer(2, ada, rid, bob, 600)
	}

	if n := d.state.offers.ends.Len(); n > 100 {
		t.Errorf("one offer has %d places in the queue", n)
	}
}

// Whatever is done, the open offers are those of a model, a snapshot has them, and the lists
// of the parties agree with them.
//
// Requirement: SEC-007
func TestOffersAreThoseOfAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDrive(t)
		people := []directory.Identity{ada, bob, tool}
		person := rapid.SampledFrom(people)

		type open struct {
			owner, to directory.Identity
			until     int64
		}

		model := map[directory.RID]open{}
		rids := []directory.RID{d.register(1, ada, "one", 100_000), d.register(1, bob, "two", 100_000)}
		now := int64(1)

		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += int64(rapid.IntRange(0, 30).Draw(rt, "pause"))
			maps.DeleteFunc(model, func(_ directory.RID, o open) bool { return o.until <= now })

			rid, who := rapid.SampledFrom(rids).Draw(rt, "rid"), person.Draw(rt, "who")
			owner := d.entry(rid).Owner
			o, has := model[rid]

			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				to, lifetime := person.Draw(rt, "to"), uint32(rapid.IntRange(1, 60).Draw(rt, "lifetime"))

				r := d.offer(now, who, rid, to, lifetime)
				if may := who == owner && to != owner; may != (r.Err == nil) {
					rt.Fatalf("%s offers to %s what %s owns: %v", who, to, owner, r.Err)
				} else if may {
					model[rid] = open{owner, to, now + int64(lifetime)}
				}
			case 1:
				r := d.at(now, Command{Accept: d.accepting(who, rid)})
				if may := has && o.to == who; may != (r.Err == nil) || may && d.entry(rid).Owner != who {
					rt.Fatalf("%s accepts: %v", who, r.Err)
				} else if may {
					delete(model, rid)
				}
			case 2:
				r := d.at(now, Command{CloseOffer: &CloseOffer{RID: rid, Caller: who}})
				if may := has && (o.to == who || o.owner == who); may != (r.Err == nil) {
					rt.Fatalf("%s ends an offer: %v", who, r.Err)
				} else if may {
					delete(model, rid)
				}
			case 3:
				d.refresh(now, owner, rid, 100_000)
			}

			if len(d.state.offers.open) != len(model) {
				rt.Fatalf("%d are open, want %d", len(d.state.offers.open), len(model))
			}

			for _, who := range people {
				want := 0
				for _, o := range model {
					if o.owner == who || o.to == who {
						want++
					}
				}

				if got := d.state.offers.Involving(who, directory.RID{}, 9); len(got) != want {
					rt.Fatalf("%s sees %d offers, want %d", who, len(got), want)
				}
			}
		}

		if !maps.Equal(restore(t, d.state).offers.open, d.state.offers.open) {
			rt.Fatal("a snapshot has other offers")
		}
	})
}

// The source that an imported document names is a part of its statement, until the contents
// are others.
//
// Requirement: SEC-006
func TestAStatementNamesTheSourceOfAnImport(t *testing.T) {
	d := newDrive(t)
	c := d.registering(ada, "imported", 600)
	c.Made, c.ImportedFrom = nil, "https://registry.example"

	rid := d.at(1, Command{Register: c}).Outcome.RID
	if got := d.provenance(rid); got != (directory.Provenance{ImportedFrom: "https://registry.example"}) {
		t.Errorf("it says %+v", got)
	}

	d.offer(2, ada, rid, bob, 60)
	d.at(3, Command{Accept: d.accepting(bob, rid)})

	if got := d.provenance(rid).ImportedFrom; got != "https://registry.example" || d.entry(rid).Owner != bob {
		t.Errorf("after an acceptance it says %q", got)
	}

	d.register(4, bob, "imported", 600)

	if got := d.provenance(rid); !got.IsZero() {
		t.Errorf("with other contents it says %+v", got)
	}
}

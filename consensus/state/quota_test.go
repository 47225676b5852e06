package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

var (
	documentOf = directorytest.DocumentOf
	wantQuota  = directorytest.WantQuota
)

// sized is a register command with a document of that many bytes, compressed as a leader
// has it where that is worth it.
func (d *drive) sized(who directory.Identity, agent string, lifetime uint32, size int) *Register {
	d.t.Helper()
	c := d.registering(who, agent, lifetime)
	doc := documentOf(d.t, size)
	c.Document, c.Made = doc.Compressed().StoredBytes(), nil

	return c
}

// Requirement: FORM-005
func TestNobodysDocumentsAreLargerTogetherThanTheRulesAllow(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{BytesPerOwner: 10_000}})
	register := func(second int64, who directory.Identity, agent string, size int) error {
		return d.at(second, Command{Register: d.sized(who, agent, 600, size)}).Err
	}

	for _, err := range []error{register(1, ada, "one", 4000), register(1, ada, "two", 6000),
		register(1, bob, "bobs", 10_000)} {
		if err != nil {
			t.Fatalf("within the quota: %v", err)
		}
	}

	before := d.state.history.revision
	wantQuota(t, register(2, ada, "three", 100), "limits.bytes_per_owner", 10_000, 100)
	wantQuota(t, register(2, ada, "one", 4001), "limits.bytes_per_owner", 10_000, 1)

	if d.state.history.revision != before {
		t.Error("a refused change changed something")
	}

	if err := register(3, ada, "one", 200); err != nil {
		t.Errorf("a smaller document in the place of a larger one: %v", err)
	}

	if err := register(3, ada, "three", 3800); err != nil {
		t.Errorf("what the smaller document gave back: %v", err)
	}

	wantQuota(t, register(3, ada, "one", 201), "limits.bytes_per_owner")

	large := &Update{
		Format: signed.StatementFormat, RID: d.state.registrations.regs.named("one").entry.RID, Caller: ada,
		Document: documentOf(t, 300).Bytes(), Granted: meshGrant(ada),
	}
	large.Statement = d.state.registrations.regs.named("one").entry.Statement
	wantQuota(t, d.at(4, Command{Update: large}).Err, "limits.bytes_per_owner", 100)
}

// Requirement: FORM-005
func TestTheDomainHoldsNoMoreThanItsRulesAllow(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{Registrations: 2, Bytes: 1000}})
	d.at(1, Command{Register: d.sized(ada, "one", 600, 400)})
	wantQuota(t, d.at(2, Command{Register: d.sized(bob, "two", 600, 601)}).Err, "limits.bytes_per_domain", 400,
		1000, 601)

	d.applies(2, Command{Register: d.sized(bob, "two", 60, 600)})

	wantQuota(t, d.at(3, Command{Register: d.sized(tool, "three", 600, 100)}).Err,
		"limits.registrations_per_domain", 2)

	// What has expired and was not swept makes room for another under its name.
	d.applies(90, Command{Register: d.sized(tool, "two", 600, 600)})

	if got := d.state.owners.holdings.total; got != (usage{2, 1000}) {
		t.Errorf("the domain is said to hold %+v", got)
	}

	unbound := d.sized(tool, "four", 600, 100)
	unbound.Commissioning = true
	// which holds for everybody
	wantQuota(t, d.at(91, Command{Register: unbound}).Err, "limits.registrations_per_domain")
}

// What has expired and was not swept makes room in its own owner's quota alone.
func TestAnExpiredRegistrationOfAnotherMakesNoRoom(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{PerOwner: 1}})
	d.at(1, Command{Register: d.sized(ada, "one", 600, 100)})
	d.at(1, Command{Register: d.sized(bob, "two", 60, 100)})
	wantQuota(t, d.at(90, Command{Register: d.sized(ada, "two", 600, 100)}).Err, "limits.registrations_per_owner")

	d.applies(90, Command{Register: d.sized(bob, "two", 600, 100)})
}

// Some owners have other quotas than the rest, of the first rule that matches each, after a snapshot as before.
//
// Requirement: FORM-005
func TestSomeOwnersHaveOtherQuotas(t *testing.T) {
	d := newDrive(t)
	all := must(directory.ParseIdentityPattern("spiffe://alpha.test/*"))
	one := must(directory.ParseIdentityPattern(ada.String()))
	d.at(0, Command{Rules: &Rules{PerOwner: 1, Owners: []OwnerRule{{one, 2}, {all, 0}},
		BytesPerOwner: 100, OwnersBytes: []OwnerRule{{one, 2000}, {all, 0}}}})

	d.applies(1, Command{Register: d.sized(ada, "one", 600, 1500)})
	wantQuota(t, d.at(1, Command{Register: d.sized(ada, "two", 600, 501)}).Err, "limits.bytes_per_owner", 2000)
	d.applies(1, Command{Register: d.sized(ada, "two", 600, 300)})

	for i := range 3 {
		d.applies(1, Command{Register: d.sized(bob, fmt.Sprint("bob-", i), 600, 60_000)})
	}

	d.state = restore(t, d.state)
	wantQuota(t, d.at(2, Command{Register: d.sized(ada, "three", 600, 100)}).Err, "limits.registrations_per_owner", 2)

	stranger := must(directory.ParseIdentity("spiffe://beta.test/eve"))
	wantQuota(t, d.at(2, Command{Register: d.sized(stranger, "eves", 600, 101)}).Err, "limits.bytes_per_owner", 100)
	d.applies(2, Command{Register: d.sized(stranger, "eves", 600, 100)})
	wantQuota(t, d.at(2, Command{Register: d.sized(stranger, "more", 600, 60)}).Err,
		"limits.registrations_per_owner", 1)
}

// A tool's own have no quota, and what it registers for others has theirs.
//
// Requirement: FORM-005
func TestACommissioningToolKeepsToTheQuotasOfOthers(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{BytesPerOwner: 1000}})
	own := d.sized(tool, "own", 600, 5000)

	own.Commissioning = true
	d.applies(1, Command{Register: own})

	behalf := d.sized(ada, "adas", 600, 900)
	behalf.Caller = tool
	behalf.Commissioning = true

	behalf.For = ada
	d.applies(1, Command{Register: behalf})

	replaced := d.sized(ada, "adas", 600, 1001)
	replaced.Caller, replaced.Commissioning = tool, true
	wantQuota(t, d.at(1, Command{Register: replaced}).Err, "limits.bytes_per_owner", 1000)
}

// How much somebody has, hidden or not, is not for somebody else to find out.
//
// Requirement: FORM-005
func TestATransferIsRefusedWithoutRoomAndTellsNothing(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{BytesPerOwner: 1000}})
	given := d.at(1, Command{Register: d.sized(ada, "given", 600, 500)}).Outcome.RID
	d.at(1, Command{Register: d.sized(bob, "bobs", 600, 777)})
	r := d.at(2, Command{Transfer: d.transferring(ada, given, bob)})
	wantQuota(t, r.Err, "limits.bytes_per_owner", 500, 1000)

	if strings.Contains(r.Err.Error(), "777") {
		t.Errorf("it tells what %s has: %v", bob, r.Err)
	}

	d.at(3, Command{Register: d.sized(bob, "bobs", 600, 500)})

	d.applies(4, Command{Transfer: d.transferring(ada, given, bob)})

	if got := d.state.owners.holdings.byOwner; len(got) != 1 || got[bob].usage != (usage{2, 1000}) {
		t.Errorf("after it they have %v", got)
	}
}

// A quota that is lowered below what is there removes nothing, lets nothing grow, and
// doesn't keep a living agent from living.
//
// Requirement: FORM-005
func TestALoweredQuotaRemovesNothing(t *testing.T) {
	d := newDrive(t)
	rid := d.at(1, Command{Register: d.sized(ada, "one", 600, 5000)}).Outcome.RID
	d.at(1, Command{Register: d.sized(ada, "two", 600, 5000)})
	d.at(2, Command{Rules: &Rules{PerOwner: 1, BytesPerOwner: 3000, Registrations: 1, Bytes: 3000}})

	if d.state.registrations.regs.len() != 2 {
		t.Fatal("something is gone")
	}

	if got := d.state.owners.holdings.largestShare(); got != 1 {
		t.Errorf("the largest share is said to be %v", got)
	}

	d = &drive{t: t, state: restore(t, d.state), n: d.n} // which doesn't ask for quotas
	if d.state.registrations.regs.len() != 2 {
		t.Fatal("a snapshot lacks something")
	}

	if r := d.refresh(3, ada, rid, 600); r.Err != nil {
		t.Errorf("a refresh: %v", r.Err)
	}

	for _, size := range []int{5000, 4000} {
		d.applies(4, Command{Register: d.sized(ada, "one", 600, size)})
	}

	wantQuota(t, d.at(5, Command{Register: d.sized(ada, "one", 600, 4001)}).Err, "limits.bytes_per_owner")
	wantQuota(t, d.at(5, Command{Register: d.sized(bob, "bobs", 600, 100)}).Err, "limits.registrations_per_domain")
}

// What one log entry has of registrations is judged one by the other's result.
//
// Requirement: FORM-005
func TestRegistrationsOfOneEntryShareTheRoom(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{BytesPerOwner: 1000}})

	b := &Batch{Version: FirstVersion, Time: genesis + 1000}
	for i := range 10 {
		b.Commands = append(b.Commands, Command{Register: d.sized(ada, fmt.Sprint("agent-", i), 600, 300)})
	}

	taken := 0
	for _, r := range must(d.state.Apply(must(DecodeBatch(must(Marshal(b)))))) {
		if r.Err == nil {
			taken++
		} else {
			wantQuota(t, r.Err, "limits.bytes_per_owner", 900)
		}
	}

	if taken != 3 {
		t.Errorf("%d of 300 bytes were taken by a quota of 1000", taken)
	}
}

// tally is a naive model of what is registered: by agent name.
type tally map[string]tallied

type tallied struct {
	owner directory.Identity
	size  int64
}

// of sums up what an owner has; of nobody, what all have.
func (m tally) of(owner directory.Identity) (sum usage) {
	for _, t := range m {
		if owner.IsZero() || t.owner == owner {
			sum = sum.plus(usage{1, t.size})
		}
	}

	return sum
}

// fits is what a change of one registration comes to by the rules: nothing is larger
// afterwards that is over its quota then.
func (m tally) fits(r *Rules, after tally) bool {
	for owner := range owners(m, after) {
		limit := quota{uint64(r.PerOwner), r.BytesPerOwner}
		if owner.IsZero() {
			limit = quota{r.Registrations, r.Bytes}
		}

		was, is := m.of(owner), after.of(owner)
		if is.records > was.records && limit.records > 0 && uint64(is.records) > limit.records ||
			is.bytes > was.bytes && limit.bytes > 0 && uint64(is.bytes) > limit.bytes {
			return false
		}
	}

	return true
}

func owners(all ...tally) map[directory.Identity]bool {
	found := map[directory.Identity]bool{{}: true}
	for _, m := range all {
		for _, t := range m {
			found[t.owner] = true
		}
	}

	return found
}

// The counts are exact whatever happens, also through snapshots, and what is refused is
// what a naive model refuses.
//
// Requirement: FORM-005
func TestQuotasAreCountedExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDrive(t)
		model := tally{}
		rules := &Rules{}
		now := int64(0)
		living := func() []string { return slices.Sorted(maps.Keys(model)) }

		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			who := rapid.SampledFrom([]directory.Identity{ada, bob, tool}).Draw(rt, "who")
			size := rapid.SampledFrom([]int{60, 100, 500, 3000}).Draw(rt, "size")
			after := maps.Clone(model)

			var c Command
			switch step := rapid.IntRange(0, 9).Draw(rt, "step"); {
			case step < 4:
				agent := fmt.Sprint("agent-", rapid.IntRange(0, 9).Draw(rt, "agent"))
				if had, taken := model[agent]; taken {
					who = had.owner
				}

				after[agent] = tallied{who, int64(size)}
				c.Register = d.sized(who, agent, 600, size)
			case step < 6 && len(model) > 0:
				agent := rapid.SampledFrom(living()).Draw(rt, "agent")
				had := model[agent]
				reg := d.state.registrations.regs.named(agent)
				after[agent] = tallied{had.owner, int64(size)}
				c.Update = &Update{
					Format: signed.StatementFormat, RID: reg.entry.RID, Caller: had.owner, Lifetime: 600,
					Statement: reg.entry.Statement,
					Document:  documentOf(t, size).Bytes(), Granted: meshGrant(had.owner),
				}
			case step == 6 && len(model) > 0:
				agent := rapid.SampledFrom(living()).Draw(rt, "agent")
				had := model[agent]
				after[agent] = tallied{who, had.size}
				c.Transfer = d.transferring(had.owner, d.state.registrations.regs.named(agent).entry.RID, who)
			case step == 7 && len(model) > 0:
				agent := rapid.SampledFrom(living()).Draw(rt, "agent")
				delete(after, agent)
				reg := d.state.registrations.regs.named(agent)
				c.Remove = &Remove{Format: signed.StatementFormat, RID: reg.entry.RID, Caller: reg.entry.Owner}
			case step == 8:
				some := func(name string, numbers ...int) uint64 {
					return uint64(rapid.SampledFrom(numbers).Draw(rt, name))
				}
				rules = &Rules{
					PerOwner: uint32(some("owned", 0, 2, 4)), BytesPerOwner: some("owned bytes", 0, 600, 4000),
					Registrations: some("all", 0, 3, 8), Bytes: some("all bytes", 0, 1000, 9000),
				}
				c.Rules = rules
			default: // everything expires, and is swept or is not, or a member begins with a snapshot
				now += 1000

				var due []directory.RID
				for _, agent := range living() {
					due = append(due, d.state.registrations.regs.named(agent).entry.RID)
				}

				d.at(now, Command{Expire: &Sweep{1, due}})
				model = tally{}
				d.state = restore(t, d.state)

				continue
			}

			now++
			r := d.at(now, c)

			refused := directory.ProblemOf(r.Err) == directory.QuotaExceeded
			if r.Err != nil && !refused {
				rt.Fatalf("%+v: %v", c, r.Err)
			}

			if fits := model.fits(rules, after); refused == fits {
				rt.Fatalf("by the model it fits: %v; it gave %v", fits, r.Err)
			}

			if !refused {
				model = after
			}

			if got := d.state.owners.holdings.total; got != model.of(directory.Identity{}) {
				rt.Fatalf("the domain is said to hold %+v; it holds %+v", got, model.of(directory.Identity{}))
			}

			shares := 0

			for owner, held := range d.state.owners.holdings.byOwner {
				if held.usage != model.of(owner) || held.records == 0 {
					rt.Fatalf("%s is said to hold %+v; it holds %+v", owner, held.usage, model.of(owner))
				}
			}

			for _, n := range d.state.owners.holdings.shares {
				shares += n
			}

			if n := len(owners(model)) - 1; len(d.state.owners.holdings.byOwner) != n || shares != n {
				rt.Fatalf("%d owners are said to be %d, with %d shares", n, len(d.state.owners.holdings.byOwner),
					shares)
			}
		}
	})
}

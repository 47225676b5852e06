package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// Many refreshes in one command: each does what it would do alone.
//
// Requirement: AD-020, AD-055
func TestManyAreRefreshedByOneCommand(t *testing.T) {
	d := newDrive(t)
	one, two := d.register(0, ada, "one", 600), d.register(0, ada, "two", 600)
	others := d.register(0, bob, "others", 600)
	gone := d.register(0, ada, "gone", 60)
	revision, size := d.state.history.revision, d.state.history.ledger.Size
	ask := PackRenewals([]directory.Renewal{{RID: one}, {RID: two, Lifetime: 3600}, {RID: others}, {RID: gone},
		{RID: one, Lifetime: 300}})

	r := d.at(100, Command{Renew: &Renew{Caller: ada, Renewals: ask}})
	if r.Err != nil || len(r.Outcome.Each) != 5 {
		t.Fatalf("%+v", r)
	}

	for i, want := range []struct {
		granted uint32
		problem directory.Problem
	}{{600, ""}, {3600, ""}, {0, directory.Forbidden}, {0, directory.RegistrationExpired}, {300, ""}} {
		got := r.Outcome.Each[i]
		if got.Granted != want.granted || (got.Err != nil) != (want.problem != "") ||
			got.Err != nil && directory.ProblemOf(got.Err) != want.problem {
			t.Errorf("item %d: %+v, want %+v", i, got, want)
		}
	}

	for rid, want := range map[directory.RID]int64{one: 400, two: 3700, others: 600} {
		if e, _ := d.state.registrations.index.Get(rid); e.ExpiresAt != genesis+want*1000 {
			t.Errorf("%s ends %d s after the beginning, want %d", e.Agent, (e.ExpiresAt-genesis)/1000, want)
		}
	}

	if d.state.history.revision != revision+3 {
		t.Errorf("%d revisions, want one for each that was refreshed", d.state.history.revision-revision)
	}

	if d.state.history.ledger.Size != size+1 { // the lower deadline of one is announced (X1)
		t.Errorf("%d leaves for the whole command, want 1", d.state.history.ledger.Size-size)
	}

	if r := d.at(101, Command{Renew: &Renew{Caller: bob, Commissioning: true,
		Renewals: PackRenewals([]directory.Renewal{{RID: one, Lifetime: 700}})}}); r.Outcome.Each[0].Granted != 700 {
		t.Errorf("a commissioning tool gets %+v", r.Outcome.Each)
	}
}

// Who waits for the state is let in within a long list, and never sees what is announced
// without its leaf in the ledger.
func TestOthersAreLetInWithinAList(t *testing.T) {
	d := newDrive(t)
	rids := make([]directory.RID, 3*atOneGo)

	items := make([]directory.Renewal, len(rids))
	for i := range rids {
		rids[i] = d.register(0, ada, fmt.Sprint("agent-", i), 600)
		items[i].RID = rids[i]
	}

	apply := func(seconds int64, cs ...Command) (seen []uint64) {
		t.Helper()

		entry := d.state.Begin(&Batch{FirstVersion, genesis + seconds*1000, cs})
		for must(entry.Next()) {
			seen = append(seen, d.state.history.revision)
			if len(d.state.streams.uncovered) > 0 {
				t.Error("others see what is announced and not pinned yet")
			}
		}

		if rs := entry.Results(); rs[0].Err != nil {
			t.Fatal(rs)
		}

		return seen
	}
	often := func(what string, from uint64, seen []uint64) {
		t.Helper()

		for _, at := range append(seen, d.state.history.revision) {
			if at-from > atOneGo+1 {
				t.Errorf("%s: %d changes before others are let in, of %d at most", what, at-from, atOneGo)
			}

			from = at
		}
	}
	base := d.state.history.revision
	often("refreshed", base, apply(1, Command{Renew: &Renew{Caller: ada, Renewals: PackRenewals(items)}}))

	var announces, regrants []Command
	for part := range slices.Chunk(rids, atOneGo) {
		announces = append(announces, Command{Announce: &Sweep{signed.StatementFormat, part}})

		c := &Regrant{} // nothing any more
		for _, rid := range part {
			c.Items = append(c.Items, RegrantItem{rid, d.state.registrations.regs.get(rid).entry.Statement,
				Granted{Policy: d.state.policy.basis}, nil})
		}

		regrants = append(regrants, Command{Regrant: c})
	}

	each := func(what string, cs []Command) {
		t.Helper()
		base = d.state.history.revision
		seen := apply(2, cs...)

		if d.state.history.revision != base+uint64(len(rids)) {
			t.Fatalf("%s: %d of %d", what, d.state.history.revision-base, len(rids))
		}

		often(what, base, seen)
	}
	each("announced", announces)

	for i := range items {
		items[i].Lifetime = 60 // sooner than was announced
	}

	if seen := apply(2, Command{Renew: &Renew{Caller: ada, Renewals: PackRenewals(items)}}); len(seen) > 0 {
		t.Errorf("others are let in at %v, before the new deadlines are pinned", seen)
	}

	each("granted", regrants)
	base = d.state.history.revision
	often("ended", base, apply(100, Command{Expire: &Sweep{signed.StatementFormat, rids}}))

	if d.state.registrations.regs.len() != 0 {
		t.Errorf("%d are left", d.state.registrations.regs.len())
	}
}

// What a log or a member says must make sense before anything is changed.
func TestRenewalsThatMakeNoSense(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "one", 600)

	many := make([]directory.Renewal, directory.MaxRenewals+1)
	for i := range many {
		many[i].RID = rid
	}

	for name, r := range map[string]Renewals{
		"none": {}, "half of one": {RIDs: make([]byte, 8)}, "too many": PackRenewals(many),
		"lifetimes of others": {RIDs: rid.AppendBinary(nil), Lifetimes: []uint32{60, 60}},
	} {
		before := d.state.history.revision

		got := d.at(1, Command{Renew: &Renew{Caller: ada, Renewals: r}})
		if directory.ProblemOf(got.Err) != directory.BadRequest || d.state.history.revision != before {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

package consensus

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
)

// Many refreshes in one command: each does what it would do alone.
//
// Requirement: AD-020, AD-055
func TestManyAreRefreshedByOneCommand(t *testing.T) {
	d := newDrive(t)
	one, two := d.register(0, ada, "one", 600), d.register(0, ada, "two", 600)
	others := d.register(0, bob, "others", 600)
	gone := d.register(0, ada, "gone", 60)
	revision, size := d.state.revision, d.state.ledger.size
	ask := packRenewals([]directory.Renewal{{RID: one}, {RID: two, Lifetime: 3600}, {RID: others}, {RID: gone}, {RID: one, Lifetime: 300}})
	r := d.at(100, command{Renew: &renew{Caller: ada, Renewals: ask}})
	if r.err != nil || len(r.outcome.Each) != 5 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []struct {
		granted uint32
		problem directory.Problem
	}{{600, ""}, {3600, ""}, {0, directory.Forbidden}, {0, directory.RegistrationExpired}, {300, ""}} {
		got := r.outcome.Each[i]
		if got.Granted != want.granted || (got.Err != nil) != (want.problem != "") || got.Err != nil && directory.ProblemOf(got.Err) != want.problem {
			t.Errorf("item %d: %+v, want %+v", i, got, want)
		}
	}
	for rid, want := range map[directory.RID]int64{one: 400, two: 3700, others: 600} {
		if e, _ := d.state.index.Get(rid); e.ExpiresAt != genesis+want*1000 {
			t.Errorf("%s ends %d s after the beginning, want %d", e.Agent, (e.ExpiresAt-genesis)/1000, want)
		}
	}
	if d.state.revision != revision+3 {
		t.Errorf("%d revisions, want one for each that was refreshed", d.state.revision-revision)
	}
	if d.state.ledger.size != size+1 { // the lower deadline of one is announced (X1)
		t.Errorf("%d leaves for the whole command, want 1", d.state.ledger.size-size)
	}
	if r := d.at(101, command{Renew: &renew{Caller: bob, Commissioning: true, Renewals: packRenewals([]directory.Renewal{{RID: one, Lifetime: 700}})}}); r.outcome.Each[0].Granted != 700 {
		t.Errorf("a commissioning tool gets %+v", r.outcome.Each)
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
	apply := func(seconds int64, cs ...command) (seen []uint64) {
		t.Helper()
		rs, err := d.state.apply(&batch{firstVersion, genesis + seconds*1000, cs}, func() {
			seen = append(seen, d.state.revision)
			if len(d.state.uncovered) > 0 {
				t.Error("others see what is announced and not pinned yet")
			}
		})
		if err != nil || rs[0].err != nil {
			t.Fatal(err, rs)
		}
		return seen
	}
	often := func(what string, from uint64, seen []uint64) {
		t.Helper()
		for _, at := range append(seen, d.state.revision) {
			if at-from > atOneGo+1 {
				t.Errorf("%s: %d changes before others are let in, of %d at most", what, at-from, atOneGo)
			}
			from = at
		}
	}
	base := d.state.revision
	often("refreshed", base, apply(1, command{Renew: &renew{Caller: ada, Renewals: packRenewals(items)}}))
	var announces, regrants []command
	for part := range slices.Chunk(rids, atOneGo) {
		announces = append(announces, command{Announce: &sweep{directory.StatementFormat, part}})
		c := &regrant{} // nothing any more
		for _, rid := range part {
			c.Items = append(c.Items, regrantItem{rid, d.state.regs.get(rid).entry.Statement, granted{Policy: d.state.policy}, nil})
		}
		regrants = append(regrants, command{Regrant: c})
	}
	each := func(what string, cs []command) {
		t.Helper()
		base = d.state.revision
		seen := apply(2, cs...)
		if d.state.revision != base+uint64(len(rids)) {
			t.Fatalf("%s: %d of %d", what, d.state.revision-base, len(rids))
		}
		often(what, base, seen)
	}
	each("announced", announces)
	for i := range items {
		items[i].Lifetime = 60 // sooner than was announced
	}
	if seen := apply(2, command{Renew: &renew{Caller: ada, Renewals: packRenewals(items)}}); len(seen) > 0 {
		t.Errorf("others are let in at %v, before the new deadlines are pinned", seen)
	}
	each("granted", regrants)
	base = d.state.revision
	often("ended", base, apply(100, command{Expire: &sweep{directory.StatementFormat, rids}}))
	if d.state.regs.len() != 0 {
		t.Errorf("%d are left", d.state.regs.len())
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
	for name, r := range map[string]renewals{
		"none": {}, "half of one": {RIDs: make([]byte, 8)}, "too many": packRenewals(many),
		"lifetimes of others": {RIDs: rid.AppendBinary(nil), Lifetimes: []uint32{60, 60}},
	} {
		before := d.state.revision
		got := d.at(1, command{Renew: &renew{Caller: ada, Renewals: r}})
		if directory.ProblemOf(got.err) != directory.BadRequest || d.state.revision != before {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Any member takes a list, and each member has it afterwards.
func TestManyAreRefreshedOnAnyMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, follower := d.leader()
		mine, err := d.nodes[leader].Register(t.Context(), put(t, ada, "mine", 600))
		if err != nil {
			t.Fatal(err)
		}
		others, err := d.nodes[leader].Register(t.Context(), put(t, bob, "others", 600))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{leader, follower} {
			out, err := d.nodes[at].RefreshMany(t.Context(), directory.RefreshingMany{
				Caller: directory.Caller{Identity: ada}, Items: []directory.Renewal{{RID: mine.RID, Lifetime: 700 + uint32(at)}, {RID: others.RID}},
			})
			if err != nil || len(out.Each) != 2 {
				t.Fatalf("at %d: %+v, %v", at, out, err)
			}
			if out.Each[0] != (directory.Renewed{Granted: 700 + uint32(at)}) || directory.ProblemOf(out.Each[1].Err) != directory.Forbidden {
				t.Errorf("at %d: %+v", at, out.Each)
			}
			if e, _ := d.nodes[at].cfg.Index.Get(mine.RID); e.Lifetime != 700+uint32(at) {
				t.Errorf("the member that was asked doesn't show it: %+v", e)
			}
		}
		var none *directory.Error
		if _, err := d.nodes[follower].RefreshMany(t.Context(), directory.RefreshingMany{Caller: directory.Caller{Identity: ada}}); !errors.As(err, &none) || none.Problem != directory.BadRequest {
			t.Errorf("an empty list: %v", err)
		}
	})
}

// A log entry, and a message to the leader, end where they have changes enough, and one
// change waits for no list that is not in its entry.
func TestAnEntryHasBoundedChanges(t *testing.T) {
	b, c := newBatcher(), newCourier()
	for range 5 {
		list := &proposal{weight: directory.MaxRenewals}
		b.fits(list) <- list
		parcel := &parcel{weight: directory.MaxRenewals}
		c.fits(parcel) <- parcel
	}
	single := func() {
		one := &proposal{weight: 1}
		b.fits(one) <- one
	}
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
	if got, want := weights(<-b.queue), []int{1, 1, directory.MaxRenewals}; !slices.Equal(got, want) {
		t.Errorf("an entry that begins with one change has %d, want %d", got, want)
	}
	for range 2 {
		c.queue <- &parcel{weight: 1}
	}
	for i, want := range []int{3, 1} {
		if n := len(c.gather(<-c.lists)); n != want {
			t.Errorf("message %d, which begins with a list, has %d writes, want %d", i, n, want)
		}
	}
}

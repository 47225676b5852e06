package state

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// Requirement: AD-034
func TestAHeldNameIsItsFormerOwners(t *testing.T) {
	for how, end := range map[string]func(d *drive, rid directory.RID){
		"removed": func(d *drive, rid directory.RID) {
			d.at(60, Command{Remove: &Remove{Format: 1, RID: rid, Caller: ada}})
		},
		"swept":     func(d *drive, rid directory.RID) { d.at(65, Command{Expire: &Sweep{1, []directory.RID{rid}}}) },
		"not swept": func(*drive, directory.RID) {},
	} {
		t.Run(how, func(t *testing.T) {
			d := newDrive(t)
			d.at(0, Command{Rules: &Rules{Hold: 100}})
			rid := d.register(0, ada, "translator", 60)
			end(d, rid) // in each case the name is nobody's from second 60 on

			r := d.at(159, Command{Register: d.registering(bob, "translator", 60)})
			problem(t, r.Err, directory.NameTaken)

			if !strings.Contains(r.Err.Error(), "'translator' is held for its former registrant until ") {
				t.Errorf("the detail is %q", r.Err)
			}

			ct := d.registering(tool, "translator", 60)
			ct.Commissioning = true
			problem(t, d.at(159, Command{Register: ct}).Err, directory.NameTaken)

			restored := restore(t, d.state)
			for _, s := range []*State{d.state, restored} {
				d.state = s

				again := d.at(159, Command{Register: d.registering(ada, "translator", 60)})
				if again.Err != nil || !again.Outcome.Created || again.Outcome.RID == rid {
					t.Errorf("its former owner gets %+v", again)
				}
			}

			if len(d.state.owners.holds.names) != 0 {
				t.Error("a name that is registered is still held")
			}
		})
	}
}

// Requirement: AD-034
func TestAHoldEnds(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{Hold: 100}})
	d.register(0, ada, "expired", 60)
	d.register(0, ada, "freed", 60)
	d.register(160, bob, "expired", 60)

	// the committed time is 160 already
	d.applies(159, Command{Register: d.registering(bob, "freed", 60)})

	d.register(200, ada, "third", 60)
	d.at(201, Command{Remove: &Remove{Format: 1, RID: d.state.registrations.regs.named("third").entry.RID,
		Caller: ada}})
	problem(t, d.at(202, Command{Register: d.registering(bob, "third", 60)}).Err, directory.NameTaken)
	d.at(203, Command{Rules: &Rules{}})
	d.register(204, bob, "third", 60)
}

// What is done with takes no room, whatever becomes of the names.
func TestHoldsAreBounded(t *testing.T) {
	h := newHolds()
	for i := range 3 * maxHolds {
		h.add(hold{Agent: fmt.Sprint("agent-", i), Until: 1000, Revision: uint64(i)}, 0)

		if i%3 == 0 {
			delete(h.names, fmt.Sprint("agent-", i))
		}
	}

	if len(h.names) > maxHolds || len(h.queue) > 2*len(h.names)+64 {
		t.Errorf("%d are held, %d wait", len(h.names), len(h.queue))
	}

	if _, newest := h.names[fmt.Sprint("agent-", 3*maxHolds-1)]; !newest {
		t.Error("the newest was freed before the oldest")
	}

	for i := range 10_000 { // one name, taken and freed
		h.add(hold{Agent: "again", Until: 1000, Revision: uint64(3*maxHolds + i)}, 0)
		delete(h.names, "again")
	}

	if len(h.queue) > 2*len(h.names)+64 {
		t.Errorf("%d wait for %d that are held", len(h.queue), len(h.names))
	}
}

func TestNobodyOwnsMoreThanTheRulesAllow(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{PerOwner: 2}})
	first := d.register(1, ada, "one", 60)
	d.register(1, ada, "two", 60)
	three := d.registering(ada, "three", 60)
	problem(t, d.at(2, Command{Register: three}).Err, directory.QuotaExceeded)

	never := *three // as in a dry run: quotas are judged before a condition that never holds
	never.IfMatch = []uint64{0}
	problem(t, d.at(2, Command{Register: &never}).Err, directory.QuotaExceeded)

	d.register(2, ada, "two", 60) // a replace adds nothing
	d.register(2, bob, "three", 60)
	problem(t, d.at(2, Command{Register: d.registering(ada, "three", 60)}).Err, directory.NameTaken)
	ct := d.registering(ada, "four", 60)

	ct.Commissioning = true
	d.applies(2, Command{Register: ct})

	d.state = restore(t, d.state)
	problem(t, d.at(3, Command{Register: d.registering(ada, "five", 60)}).Err, directory.QuotaExceeded)
	d.at(3, Command{Remove: &Remove{Format: 1, RID: first, Caller: ada}})
	// still two and four
	problem(t, d.at(3, Command{Register: d.registering(ada, "five", 60)}).Err, directory.QuotaExceeded)
	// in the place of what expired, not swept
	d.register(70, ada, "four", 60)
}

// Requirement: AD-079
func TestIfMatchAndIfNoneMatchOfAName(t *testing.T) {
	d := newDrive(t)
	present := d.registering(ada, "one", 60)
	absent := d.registering(ada, "one", 60)
	present.Present, absent.Absent = true, true
	problem(t, d.at(1, Command{Register: present}).Err, directory.PreconditionFailed)

	if r := d.at(1, Command{Register: absent}); r.Err != nil || !r.Outcome.Created {
		t.Fatalf("If-None-Match: * on a free name gave %+v", r)
	}

	if r := d.at(2, Command{Register: present}); r.Err != nil || r.Outcome.Created {
		t.Errorf("If-Match: * on a name that one has gave %+v", r)
	}

	problem(t, d.at(2, Command{Register: absent}).Err, directory.PreconditionFailed)
	others := d.registering(bob, "one", 60)
	others.Absent = true
	problem(t, d.at(2, Command{Register: others}).Err, directory.NameTaken) // which comes first
	problem(t, d.at(62, Command{Register: present}).Err, directory.PreconditionFailed)

	if r := d.at(62, Command{Register: absent}); r.Err != nil || !r.Outcome.Created {
		t.Errorf("If-None-Match: * on a name whose registration has expired gave %+v", r)
	}
}

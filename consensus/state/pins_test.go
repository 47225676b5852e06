package state

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
)

// lastLeaf returns the entry that the last change has appended, if it has.
func (d *drive) lastLeaf() (entry ledger.Entry) {
	if entries, _ := d.state.history.Logged(); len(entries) > 0 {
		entry = entries[len(entries)-1]
	}

	return entry
}

// A bundle and the head of an audit log are leaves once, each member's audit log once a day, and again in a new epoch.
// Every member records them with their payload, and not by a second leaf.
//
// Requirement: MESH-020
func TestFactsArePinnedOnce(t *testing.T) {
	d := newDrive(t)
	bundle := []byte(`{"keys":[]}`)
	node, other := must(alphaNode("n0")), must(alphaNode("n1"))
	head := directory.Hash{7}
	payload := func(lines int, at int64) []byte {
		return fmt.Appendf(nil, `{"v":1,"iss":"spiffe://alpha.test","epoch":%d,"at":%d,"node":"%s","lines":%d,"head":"%s"}`,
			d.state.history.epoch, genesis/1000+at, node, lines, head)
	}

	const day = 24 * 60 * 60

	for _, step := range []struct {
		name string
		at   int64
		pin  Pin
		want ledger.Entry // zero if the pin is refused
	}{
		{"a bundle", 2, Pin{Bundle: bundle}, ledger.EntryOf(ledger.Bundle, bundle)},
		{"the same bundle", 3, Pin{Bundle: bundle}, ledger.Entry{}},
		{"an audit log", 4, Pin{Node: node, Lines: 5, Head: head}, ledger.EntryOf(ledger.AuditHead, payload(5, 4))},
		{"the audit log of the same day", 5, Pin{Node: node, Lines: 9, Head: head}, ledger.Entry{}},
		{"nothing", 5, Pin{}, ledger.Entry{}},
		{"an audit log without lines", 5, Pin{Node: other}, ledger.Entry{}},
		{"a bundle beyond the bound", 5, Pin{Bundle: make([]byte, maxBundle+1)}, ledger.Entry{}},
		{"the audit log of the next day", 4 + day, Pin{Node: node, Lines: 9, Head: head},
			ledger.EntryOf(ledger.AuditHead, payload(9, 4+day))},
		{"the audit log after the clocks were set back", 4 - 30*day, Pin{Node: node, Lines: 10, Head: head},
			ledger.EntryOf(ledger.AuditHead, payload(10, 4-30*day))},
	} {
		t.Run(step.name, func(t *testing.T) {
			before, _ := d.state.history.Ledger()
			out := d.at(step.at, Command{Pin: &step.pin})
			size, _ := d.state.history.Ledger()
			logged := !bytes.Equal(step.want[:], make([]byte, len(step.want)))

			switch traced := d.state.Traced(); {
			case (out.Err == nil) != logged || size-before > 1 || (size > before) != logged:
				t.Fatalf("%d leaves, %v", size-before, out.Err)
			case logged && d.lastLeaf() != step.want:
				t.Errorf("the leaf is %x, want %x", d.lastLeaf(), step.want)
			case logged && (len(traced) != 1 || ledger.EntryOf(step.want[0], traced[0].Logged) != step.want):
				t.Errorf("members record %+v", traced)
			}
		})
	}

	if len(d.state.pins.audited) != 1 {
		t.Errorf("%v are kept", d.state.pins.audited)
	}

	next := restore(t, d.state)
	if !next.pins.HasBundle(directory.HashOf(bundle)) || next.pins.AuditDue(node) || !next.pins.AuditDue(other) {
		t.Errorf("a snapshot has %+v", next.pins)
	}

	next.Succeed(d.state.Outline(), "a test", nil)
	next.begin(&Epoch{next.history.epoch + 1, "a test"})

	if next.pins.HasBundle(directory.HashOf(bundle)) || !next.pins.AuditDue(node) {
		t.Errorf("a new epoch has %+v", next.pins)
	}
}

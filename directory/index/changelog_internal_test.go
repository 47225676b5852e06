package index

import (
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// However large the documents are that are replaced, what is kept of them for those who
// watch is bounded, and who is too far behind is told so.
//
// Requirement: FORM-005
func TestTheLogOfChangesIsBoundedInBytes(t *testing.T) {
	l := newChangeLog()
	l.subscribe()
	begin := l.position()
	entry := func(size int) *directory.Entry {
		return &directory.Entry{Document: directory.LoadDocument(directory.KindAD, []byte(strings.Repeat("a", size)))}
	}

	for range logSize + 10 {
		l.append(change{new: entry(10)}) // which takes nothing from the log
	}

	if l.weight != 0 || l.contains(begin) || !l.contains(begin+10) {
		t.Errorf("%d bytes weigh %d additions, from %d", l.weight, logSize, l.first-begin)
	}

	large := entry(directory.MaxDocument)
	for range 2 * logSize {
		l.append(change{old: large, new: large})
	}

	sum := 0
	for i := range l.ring {
		sum += l.ring[i].weight()
	}

	kept := int(l.next - l.first)
	if sum != l.weight || sum > logBytes || sum < logBytes/2 || kept != sum/(&change{old: large}).weight() {
		t.Errorf("%d changes of %d bytes are kept, said to be %d", kept, sum, l.weight)
	}

	var buf [8]change
	if _, there := l.read(buf[:], l.first-1, l.next); there {
		t.Error("what is forgotten is read")
	}

	if n, there := l.read(buf[:], l.first, l.next); n != len(buf) || !there || buf[0].old != large {
		t.Errorf("%d of what is kept are read", n)
	}

	l.unsubscribe()
	l.idle = l.idle.Add(-2 * logIdle)
	l.append(change{}) // it ends the log
	l.subscribe()

	if l.weight != 0 {
		t.Errorf("changes that are kept no more weigh %d bytes", l.weight)
	}
}

// Each refresh is held against what was before while somebody watches, as discovery does
// for good: no document is awakened for it.
func TestARefreshAwakesNoDocument(t *testing.T) {
	d := directory.LoadDocument(directory.KindAD,
		[]byte(`{"base":"https://a.example","description":"`+strings.Repeat("An agent. ", 100)+`"}`))

	projection, err := kinds.Reproject("agent", d)
	if err != nil {
		t.Fatal(err)
	}

	before := &directory.Entry{Agent: "agent", Document: d, Packed: directory.Pack(d, projection)}
	before.Compact()

	after := *before
	again := *before
	other := *before
	after.ExpiresAt++
	again.Document = d // says the same, and is not at rest
	other.Document = directory.LoadDocument(directory.KindAD, []byte(`{"base":"https://b.example"}`))

	if n := testing.AllocsPerRun(10, func() {
		if !sameForWatchers(before, &after) {
			t.Error("a refresh is a change of what is watched")
		}
	}); n > 0 {
		t.Errorf("a refresh takes %.0f allocations", n)
	}

	if !sameForWatchers(before, &again) || sameForWatchers(before, &other) {
		t.Error("documents are told apart by their form")
	}

	for name, change := range map[string]func(*directory.Entry){
		"statement":          func(e *directory.Entry) { e.Statement++ },
		"time":               func(e *directory.Entry) { e.UpdatedAt++ },
		"first registration": func(e *directory.Entry) { e.RegisteredAt++ },
		"name":               func(e *directory.Entry) { e.Agent = "other" },
		"owner": func(e *directory.Entry) {
			e.Owner = directory.IdentityOf(spiffeid.RequireFromString("spiffe://a.test/b"))
		},
		"redaction":  func(e *directory.Entry) { e.Redacted = true },
		"provenance": func(e *directory.Entry) { e.Provenance = &directory.Provenance{} },
		"kind":       func(e *directory.Entry) { e.Document = directory.LoadDocument(directory.KindAIDIP, d.Bytes()) },
	} {
		changed := *before
		if change(&changed); sameForWatchers(before, &changed) {
			t.Errorf("another %s is no change of what is watched", name)
		}
	}
}

// A watcher that is as many changes behind as are kept resumes and misses none. One that is
// one change further behind is refused, whatever it asks.
func TestTheLogHasExactlyItsSize(t *testing.T) {
	l := newChangeLog()
	l.subscribe()

	begin := l.position()
	for range logSize {
		l.append(change{})
	}

	var buf [8]change
	if _, there := l.read(buf[:], begin, l.next); !there || !l.contains(begin) {
		t.Errorf("with %d changes kept, the first of them is gone", logSize)
	}

	l.append(change{})

	if _, there := l.read(buf[:], begin, l.next); there || l.contains(begin) {
		t.Error("a change that was dropped is missed without a word")
	}

	if _, there := l.read(buf[:], begin+1, l.next); !there || !l.contains(begin+1) {
		t.Error("the first change that is kept is gone")
	}

	if !l.contains(l.next) || l.contains(l.next+1) {
		t.Error("the next position is the last one")
	}
}

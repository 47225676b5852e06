package probe

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/gateway"
)

func rid(n int) directory.RID {
	return directory.NewRID(int64(1000+n), [10]byte{byte(n), byte(n >> 8), 9: byte(n)})
}

// The finding of a registration stays as long as the registration, however old it is.
//
// Requirement: AD-044
func TestAFindingStaysAsLongAsItsRegistration(t *testing.T) {
	d, _ := newDomain(t, nil)
	fs, is := NewFindings(), d.register(2, strings.ReplaceAll(helloCard, "URL/a", "http://agent.example/"), nil).RID

	fs.put(is, pack(directory.Probe{State: directory.ProbeVerified, At: 1}, 1))
	fs.put(rid(1), pack(directory.Probe{State: directory.ProbeVerified, At: 1}, 1))
	fs.prune(d.index, 1000)

	if _, ok := fs.byRID[is]; !ok || len(fs.byRID) != 1 {
		t.Errorf("kept are %d findings, and that of the registration %t", len(fs.byRID), ok)
	}
}

// What was found comes out as it was put in, for the statement that was compared.
func TestFindingsAreWhatWasFound(t *testing.T) {
	fs := NewFindings()
	for i, p := range []directory.Probe{
		{State: directory.ProbeVerified, At: 1},
		{State: directory.ProbeMismatch, Members: Compared, At: 2},
		{State: directory.ProbeMismatch, Members: []string{"schemas"}, At: 3},
		{State: directory.ProbeUnreachable, Reason: string(gateway.RuleCertificate), At: 4},
	} {
		fs.put(rid(i), pack(p, 7))

		if f, ok := fs.get(&directory.Entry{RID: rid(i), Statement: 7}); !ok || !reflect.DeepEqual(f.probe(), p) {
			t.Errorf("%+v came out as %+v, %t", p, f.probe(), ok)
		}

		if _, ok := fs.get(&directory.Entry{RID: rid(i), Statement: 8}); ok {
			t.Errorf("%+v is said of another statement", p)
		}
	}

	fs.put(rid(0), pack(directory.Probe{State: directory.ProbeMismatch, At: 0}, 7))

	if f, _ := fs.get(&directory.Entry{RID: rid(0), Statement: 7}); f.At != 1 {
		t.Error("an older finding takes a newer one's place")
	}

	// Of the own domain's registrations as they are, and not of those without a source.
	fs.put(rid(9), pack(directory.Probe{At: 4}, 7))

	for i, want := range map[int]bool{0: true, 3: true, 9: false, 10: false} {
		entry := &directory.Entry{RID: rid(i), Statement: 7}
		if got, ok := fs.Of(entry); ok != want || ok && got.At == 0 {
			t.Errorf("of registration %d there is %+v, %t", i, got, ok)
		}

		entry.Received = &directory.Received{}
		if _, ok := fs.Of(entry); ok {
			t.Errorf("a finding for the registration %d of another domain", i)
		}
	}

	fs.prune(index.New(), 3)

	if n := fs.Count(); n[directory.ProbeMismatch]+n[directory.ProbeVerified] != 0 ||
		n[directory.ProbeUnreachable] != 1 {
		t.Errorf("what was found of late of what is not here yet is forgotten, or more is left: %v", n)
	}

	fs.prune(index.New(), 4)

	if n := fs.Count(); n[directory.ProbeMismatch]+n[directory.ProbeVerified]+n[directory.ProbeUnreachable] != 0 {
		t.Errorf("of no registrations there are %v findings", n)
	}
}

// A member that copies has all in the end, whatever is found meanwhile, and again
// from another leader.
func TestFindingsAreCopied(t *testing.T) {
	leader, copy, last := NewFindings(), NewFindings(), page{}
	at := int64(0)
	find := func(n int) {
		at++
		leader.put(rid(n), pack(directory.Probe{State: directory.ProbeVerified, At: at}, 1))
	}
	catchUp := func(from *Findings) (pages int) {
		for full := true; full; pages++ {
			question, err := json.Marshal(last)

			var got page
			if err == nil {
				err = json.Unmarshal(from.Answer(question), &got)
			}

			must(t, err)

			for rid, f := range got.each() {
				copy.put(rid, f)
			}

			full = len(got.Items) == maxItems
			got.Items, last = nil, got
		}

		return pages
	}
	same := func(what string, from *Findings) {
		t.Helper()

		for rid, f := range from.byRID {
			if got, ok := copy.byRID[rid]; !ok || got.At != f.At {
				t.Fatalf("%s: of %s the copy has %+v, %t", what, rid, got, ok)
			}
		}
	}

	for n := range 2*maxItems + 5 {
		find(n)
	}

	if pages := catchUp(leader); pages != 3 {
		t.Errorf("it took %d pages", pages)
	}

	same("at first", leader)

	for range 10 { // the order is written anew now and then
		for n := range maxItems {
			find(n)
		}

		catchUp(leader)
		same("later", leader)
	}

	if pages := catchUp(leader); pages != 1 {
		t.Errorf("where nothing is new it took %d pages", pages)
	}

	if again := leader.after(last); len(again.Items) > 0 || again.Mark != last.Mark {
		t.Errorf("after that %d are sent again", len(again.Items))
	}

	if n := len(leader.log); n > 3*len(leader.byRID)+1024 {
		t.Errorf("the order has %d marks of %d registrations", n, len(leader.byRID))
	}

	next := NewFindings()
	next.put(rid(1), pack(directory.Probe{State: directory.ProbeUnreachable, Reason: "network", At: at + 1}, 1))
	catchUp(next)
	same("from another leader", next)
}

// What another release says and this one doesn't know is passed over.
func TestUnknownFindingsArePassedOver(t *testing.T) {
	foreign := page{Items: []item{{finding: finding{State: 99}}, {finding: finding{Reason: 99}}, {RID: rid(1)}}}

	var got []string
	for rid := range foreign.each() {
		got = append(got, rid.String())
	}

	if want := []string{rid(1).String()}; !reflect.DeepEqual(got, want) {
		t.Errorf("taken are %v, want %v", got, want)
	}
}

// Agents are asked in the time that is configured, and not all at once.
func TestAgentsAreAskedInTurn(t *testing.T) {
	fs, every, since := NewFindings(), time.Hour, int64(1e12)

	times := map[int64]bool{}
	for n := range 500 {
		e := &directory.Entry{RID: rid(n), Statement: 1, UpdatedAt: since - 1}

		first := fs.due(e, every, since)
		if first < since || first >= since+every.Milliseconds() {
			t.Errorf("asked first %d ms after this node leads", first-since)
		}

		times[first] = true
		fs.put(e.RID, pack(directory.Probe{State: directory.ProbeVerified, At: first}, 1))

		if again := time.Duration(fs.due(e, every, since)-first) * time.Millisecond; again < every*3/4 ||
			again > every*5/4 {
			t.Errorf("asked again after %s", again)
		}

		changed := &directory.Entry{RID: e.RID, Statement: 2, UpdatedAt: first + 5}
		if due := fs.due(changed, every, since); due != first+5 {
			t.Errorf("what changed is asked %d ms later", due-first-5)
		}

		added := &directory.Entry{RID: rid(1000 + n), Statement: 1, UpdatedAt: since}
		if due := fs.due(added, every, since); due != since {
			t.Errorf("what is new is asked %d ms later", due-since)
		}
	}

	if len(times) < 50 {
		t.Error(fmt.Sprint("all are asked at ", len(times), " times"))
	}
}

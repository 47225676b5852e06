package state

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/kinds"
)

// What the leader makes is what every member would have made itself: statement,
// streams and projection.
func TestWhatTheLeaderMakesChangesNothing(t *testing.T) {
	r := newDrive(t).registering(ada, "translator", 600)
	r.Granted.Grants = append(r.Granted.Grants, grant{directory.Only(beta), false, []string{"agent", "kind"},
		[]string{"base"}})
	plain := *r
	plain.Made = nil

	whole := must(r.prepared(t))
	for name, m := range map[string]*Made{"whole": whole,
		"of other grants": {Reg: whole.Reg, Doc: whole.Doc, Shown: whole.Shown[:32], Packed: whole.Packed},
		"of another release": {Reg: whole.Reg, Doc: whole.Doc, Shown: whole.Shown,
			Packed: &Packed{directory.PackedVersion + 1, []byte("?")}}} {
		with, without := newDrive(t), newDrive(t)
		r.Made = m
		with.applies(1, Command{Register: r})
		without.applies(1, Command{Register: &plain})

		sameContents(t, name, with, without, r.RID)
	}
}

// sameContents fails unless two states are one, with the same contents of a registration.
func sameContents(t *testing.T, name string, a, b *drive, rid directory.RID) {
	t.Helper()

	if !bytes.Equal(freeze(t, a.state), freeze(t, b.state)) ||
		a.state.history.ledger.Root() != b.state.history.ledger.Root() {
		t.Errorf("%s: the states differ", name)
	}

	if x, y := a.entry(rid), b.entry(rid); x.Packed != y.Packed ||
		!bytes.Equal(x.Document.Bytes(), y.Document.Bytes()) {
		t.Errorf("%s: the entries differ", name)
	}
}

// A document may come from the log at rest, or as it was written: the states are one.
func TestADocumentAtRestInTheLog(t *testing.T) {
	with, without := newDrive(t), newDrive(t)
	resting := with.registering(ada, "translator", 600)
	plain := *with.registering(ada, "translator", 600)
	plain.RID, plain.Salt, plain.Document = resting.RID, resting.Salt, directorytest.Weighty(1)

	resting.Document = directory.LoadDocument(resting.Kind, plain.Document).Compressed().StoredBytes()
	if len(resting.Document) >= len(plain.Document) {
		t.Fatal("it does not rest")
	}

	for _, made := range []*Made{nil, must(plain.prepared(t))} {
		resting.Made, plain.Made = made, made
		with.applies(1, Command{Register: resting})
		without.applies(1, Command{Register: &plain})

		sameContents(t, fmt.Sprint("made ", made != nil), with, without, resting.RID)
	}
}

// A follower that sends nonsense for a projection is refused, and nothing is
// proposed.
func TestAProjectionThatIsNone(t *testing.T) {
	doc := document(t, "translator")

	good := Pack(doc, must(kinds.Reproject("translator", doc)))
	for n := range good.Code {
		bad := &Packed{good.Version, good.Code[:n]}
		if _, _, err := Project("translator", doc, bad); directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("%d of %d bytes: %v", n, len(good.Code), err)
		}
	}

	for _, code := range [][]byte{append(bytes.Clone(good.Code), 0), bytes.Repeat([]byte{0xff}, 40)} {
		if _, _, err := Project("translator", doc,
			&Packed{good.Version, code}); directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("%x: %v", code, err)
		}
	}
}

package federation

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// looked takes a page of alpha's mesh stream through the gate, and gets its records.
func (b *bench) looked() receivedPage {
	b.Helper()
	o := b.beta.origins.Get(alpha)
	made, err := b.alpha.publisher.Page(directory.Mesh, o.Since(&o.Mesh), 100, false)
	must(b.T, err)
	p := b.beta.receiver.receive(b.Context(), replica.Sender{Domain: alpha}, b.giver(), made.Text, replica.Ahead{})
	b.beta.receiver.prefetch(b.Context(), &p)
	must(b.T, p.err)

	return p
}

// accepted is the rest of a page's way.
func (b *bench) accepted(p receivedPage) (protocol.Code, error) {
	b.beta.receiver.open(b.Context(), &p)
	code := p.accept(b.Context())

	return code, p.err
}

// A page that passed the gate is nobody's any more once its peering has ended, or its
// origin began another epoch.
//
// Requirement: MESH-019, MESH-025
func TestAPageThatIsLateForItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		b := newPeering(t, &p)
		b.origin.register("agent", 600)
		b.pull()
		b.origin.register("another", 600)
		late := b.looked()
		time.Sleep(time.Minute)

		for range 2 { // the second is the next of which the stream isn't shown yet
			b.origin.restore()
			b.origin.listKeys(nil, b.alpha.keys)
		}

		b.origin.register("restored", 600)
		made, err := b.alpha.publisher.Page(directory.Mesh, 0, 100, false)
		must(t, err)

		b.applies(made.Text)

		if code, err := b.accepted(late); err != nil || code != protocol.CodeEpochOld {
			t.Errorf("of an epoch that is over: %s %v", code, err)
		}

		b.origin.register("last", 600)
		late = b.looked()
		p.State = directory.PeeringTerminated
		b.beta.reconcile()

		if code, err := b.accepted(late); !errors.Is(err, replica.ErrPeeringEnd) {
			t.Errorf("of a peering that has ended: %s %v", code, err)
		}

		if streams, _ := b.beta.onDiskOf(t); streams != 0 || len(b.beta.shown(alpha)) != 0 {
			t.Errorf("%d streams are on disk", streams)
		}
	})
}

// Records that were asked for and come late are of no use where their entry has ended, has
// another record or has this one already, where the stream is another, or the peering has
// ended.
//
// Requirement: MESH-010, MESH-025
func TestRecordsThatAreLate(t *testing.T) {
	withhold := func(b *bench, yes bool) {
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if yes && r.URL.Path == protocol.PathRecords {
				return nil
			}

			return body
		}
	}
	for what, change := range map[string]func(b *bench, p *directory.Peering, rid directory.RID){
		"in time": func(*bench, *directory.Peering, directory.RID) {},
		"ended":   func(b *bench, _ *directory.Peering, rid directory.RID) { b.origin.remove(rid); b.pull() },
		"changed": func(b *bench, _ *directory.Peering, rid directory.RID) {
			withhold(b, true)
			b.origin.replace(rid, 600)
			b.pull()
		},
		"replaced": func(b *bench, _ *directory.Peering, rid directory.RID) { b.origin.replace(rid, 600); b.pull() },
		"here": func(b *bench, _ *directory.Peering, _ directory.RID) {
			b.beta.follower.backlog(b.Context(), b.beta.origins.Get(alpha))
		},
		"a new epoch": func(b *bench, _ *directory.Peering, _ directory.RID) {
			b.origin.restore()
			b.origin.listKeys(nil, b.alpha.keys)
			b.origin.register("restored", 600)
			b.pull()
		},
		"no peer's": func(b *bench, p *directory.Peering, _ directory.RID) {
			p.State = directory.PeeringTerminated
			b.beta.reconcile()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := active(alpha, 1)
			b := newPeering(t, &p)
			withhold(b, true)
			rid := b.origin.register("agent", 600)
			b.pull()
			withhold(b, false)
			o := b.beta.origins.Get(alpha)
			st, wanted := o.Mesh.Cur, b.origin.regs[rid].announced

			records := b.beta.receiver.fetch(t.Context(), alpha, []protocol.RecordName{protocol.NameOf(wanted)},
				[]protocol.Node{b.giver()}, maxAnswers)
			if len(records) != 1 {
				t.Fatalf("%d records came", len(records))
			}

			time.Sleep(time.Minute)
			change(b, &p, rid)
			streams, kept := b.beta.onDiskOf(t)
			shown := fmt.Sprint(b.beta.shown(alpha))
			must(t, o.AcceptRecords(t.Context(), st, []signed.Digest{wanted}, records))

			if what == "in time" {
				if len(b.beta.shown(alpha)) != 1 || b.beta.Peers()[0].Records != 1 {
					t.Error("a record that is in time isn't shown")
				}

				return
			}

			if after := fmt.Sprint(b.beta.shown(alpha)); after != shown {
				t.Errorf("%s: %s is shown and then %s", what, shown, after)
			}

			if n, records := b.beta.onDiskOf(t); n != streams || records != kept {
				t.Errorf("%s: %d streams with %d records are on disk, and then %d with %d", what, streams, kept, n,
					records)
			}
		})
	}
}

// A page is word of its origin: of where it is, and that it is there.
//
// Requirement: MESH-008
func TestAPageIsASignOfLife(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(3, 600)

		o := b.beta.origins.Get(alpha)
		must(t, b.beta.receiver.refreshKeys(t.Context(), o, b.giver()))
		o.Complain(errNoNews)
		time.Sleep(time.Minute)
		made, err := b.alpha.publisher.Page(directory.Mesh, 0, 2, false)
		must(t, err)

		if _, err := b.take(gamma, made.Text); err != nil {
			t.Fatal(err)
		}

		if s := b.beta.Peers()[0]; s.LastHeard != time.Now() || s.LastError != "" {
			t.Errorf("%+v", s)
		}
	})
}

// A change that panics in the index ends with its entry: the page's other changes are shown, and what is counted in
// memory agrees with the disk.
//
// Requirement: FORM-006
func TestAChangeThatPanicsInTheIndexEndsWithItsEntry(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.beta.origins.Get(alpha)

		rid, other := b.origin.register("agent", 86400), b.origin.register("other", 86400)
		b.pull()

		b.beta.shown(alpha)[rid].Packed = directory.LoadPacked([]byte{0xff}) // can't be taken out of the index
		b.origin.remove(rid)
		b.origin.remove(other)

		err := b.beta.pulls(o, &o.Mesh, b.giver())
		if used := o.Mesh.Cur.Used; err != nil || used != (store.Usage{}) || o.Since(&o.Mesh) != b.origin.rev {
			t.Errorf("after %v it is at %d, and counts %+v", err, o.Since(&o.Mesh), used)
		}

		if b.beta.shown(alpha)[other] != nil {
			t.Error("the other end of the page is not shown")
		}
	})
}

package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Requirement: FORM-001, FORM-002
func TestFormatsInWhichADomainIsWritten(t *testing.T) {
	d, publisher := newDomain(t)
	d.announce(directory.Mesh, 1, signed.OpPut)
	d.announce(privateOfOne, 1, signed.OpPut)

	// The mesh's are in the format in force, whatever this node or the peer reads. A private stream's are in the
	// highest that its audience reads and this node writes.
	for _, c := range []struct {
		reader              *signed.KeyDocument // nil for one that isn't known here
		inForce             map[signed.Structure]uint
		mesh, head, private uint
	}{
		{nil, nil, 1, 1, 1},
		{nil, map[signed.Structure]uint{signed.StructurePage: 2}, 2, 1, 1},
		{&signed.KeyDocument{}, map[signed.Structure]uint{signed.StructureHead: 2}, 1, 2, 1},
		{&signed.KeyDocument{Formats: signed.Formats{signed.StructurePage: {1, 2}}}, nil, 1, 1, 2},
		{&signed.KeyDocument{Formats: signed.Formats{signed.StructurePage: {1, 2, 3, 4}}}, nil, 1, 1, 3},
	} {
		d.formats = c.inForce
		delete(d.readers, directorytest.Beta)

		if c.reader != nil {
			d.readers[directorytest.Beta] = c.reader
		}

		mesh, err := publisher.Page(directory.Mesh, 0, 10, true)
		must(t, err)
		private, err := publisher.Page(privateOfOne, 0, 10, true)
		must(t, err)
		head, err := publisher.Head()
		must(t, err)
		parts, err := protocol.SplitJWS(head)
		must(t, err)

		if mesh.Format != c.mesh || private.Format != c.private ||
			!bytes.HasPrefix(parts.Payload, fmt.Appendf(nil, `{"v":%d,`, c.head)) {
			t.Errorf("%+v: page %d, private page %d, head %s", c, mesh.Format, private.Format, parts.Payload)
		}
	}
}

// headOf returns the head of a domain, which its listed key signed.
func headOf(t *testing.T, d *domain, publisher *Publisher) *signed.Head {
	t.Helper()

	text, err := publisher.Head()
	must(t, err)

	parts, err := protocol.SplitJWS(text)
	must(t, err)

	head, err := signed.OwnDialect().ParseHead(parts.Payload)
	must(t, err)

	if !d.isListed(text) {
		t.Error("the head isn't signed by a listed key")
	}

	return head
}

// A head says where the domain is. If registrations come while it is made, it doesn't name a tip beyond its
// position: peers would refuse it.
//
// Requirement: MESH-005
func TestAHeadSaysWhereTheDomainIs(t *testing.T) {
	d, publisher := newDomain(t)
	d.announce(directory.Mesh, 1, signed.OpPut)
	d.announce(privateOfOne, 1, signed.OpPut)

	if head := headOf(t, d, publisher); head.Tip != 1 || head.At != 2 || head.Epoch != 5 || head.Size != 7 ||
		head.Keys != directory.HashOf(d.doc.Payload()) || head.IssuedAt != time.Now().Unix() {
		t.Errorf("got %+v", head)
	}

	d.moves = func() { d.announce(directory.Mesh, 2, signed.OpPut) }
	headOf(t, d, publisher)
}

// A page that was made for one asker serves others as long as the position and the epoch stay, unless a step of the
// clock has left its time in the future. Pages of many lengths take a bounded memory.
func TestAKeptPageIsOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, publisher := newDomain(t)
		d.announce(directory.Mesh, 1, signed.OpPut)

		page := func(limit int) *Page {
			t.Helper()

			made, err := publisher.Page(directory.Mesh, 0, limit, false)
			must(t, err)

			if made.At != d.at.Revision || made.Epoch != d.at.Epoch || made.IssuedAt > time.Now().Unix() {
				t.Errorf("at %v and %d a page is %+v", d.at, time.Now().Unix(), made.Page)
			}

			return made
		}

		first := page(10)
		if page(10).Text != first.Text || d.made[signed.TypePage] != 1 {
			t.Error("a page is made twice")
		}

		first.Page.IssuedAt += 600

		page(10)

		d.announce(directory.Mesh, 2, signed.OpPut)

		if made := page(10); len(made.Digests) != 2 {
			t.Errorf("a page is %+v", made.Page)
		}

		d.at.Epoch++
		page(10)

		for limit := range 100 {
			page(limit + 1)
		}

		if n := len(publisher.Pages); n > maxMade {
			t.Errorf("%d pages are kept", n)
		}
	})
}

// A page is answered while the stream goes beyond what the asker has. An empty page states the tip of a private
// stream alone: in the mesh's, heads do, and it would show each change that isn't for the mesh.
//
// Requirement: MESH-003
func TestTheMeshIsToldNothingOfPrivateChanges(t *testing.T) {
	d, publisher := newDomain(t)
	d.announce(directory.Mesh, 1, signed.OpPut)
	d.announce(privateOfOne, 1, signed.OpPut)
	d.announce(directory.Mesh, 1, signed.OpEnd) // which leaves nothing else in the stream
	d.announce(privateOfOne, 1, signed.OpDrop)
	d.at.Revision++ // by what no stream announces

	for _, c := range []struct {
		aud     directory.Audience
		since   uint64
		tell    bool
		answer  bool
		digests int
	}{
		{directory.Mesh, 0, false, true, 1},
		{directory.Mesh, 3, false, false, 0},
		{directory.Mesh, 3, true, false, 0},
		{privateOfOne, 3, false, true, 1},
		{privateOfOne, 4, false, false, 0},
		{privateOfOne, 4, true, true, 0},
		{privateOfOne, 5, true, false, 0},
	} {
		made, err := publisher.Page(c.aud, c.since, 10, c.tell)
		must(t, err)

		if (made != nil) != c.answer || made != nil && len(made.Digests) != c.digests {
			t.Errorf("%+v: %+v", c, made)
		}
	}
}

// A page of one entry is of that entry or none: at a revision that the entry has left behind there is another's.
func TestAPageOfAnEntryThatChanged(t *testing.T) {
	d, publisher := newDomain(t)
	d.announce(directory.Mesh, 1, signed.OpPut)
	d.announce(directory.Mesh, 2, signed.OpPut)

	made, err := publisher.EntryPage(directory.Mesh, 1)
	if err != nil || made == nil || made.From != 0 || made.To != 1 || made.At != 2 || !d.isListed(made.Text) ||
		made.Digests[0].RID != directorytest.RID(1) {
		t.Fatalf("its page is %+v, %v", made, err)
	}

	d.announce(directory.Mesh, 1, signed.OpPut)

	for _, revision := range []uint64{1, 4} {
		if made, err := publisher.EntryPage(directory.Mesh, revision); err != nil || made != nil {
			t.Errorf("after a change the page of revision %d is %+v, %v", revision, made, err)
		}
	}
}

// A gossiped page has the newest digests, as many as a message takes, and says from where on it is complete. The
// next one continues it, and there is none while nothing is new.
//
// Requirement: MESH-006
func TestGossipTellsTheNewest(t *testing.T) {
	for _, old := range []int{0, 1, GossipDigests, GossipDigests + 1, protocol.MaxDigests, 2*protocol.MaxDigests + 10} {
		d, publisher := newDomain(t)

		var (
			cursor GossipCursor
			all    []signed.Digest
		)

		for i := range old {
			all = append(all, signed.Digest{RID: directorytest.RID(1), Revision: uint64(i + 1), Op: signed.OpDrop})
		}

		d.streams[directory.Mesh], d.at.Revision = all, uint64(old)

		for range 2 {
			made, err := publisher.GossipPage(&cursor)
			must(t, err)

			if old == 0 {
				if made != nil {
					t.Errorf("of nothing: %+v", made)
				}

				break
			}

			n := len(made.Digests)
			if n == 0 || n > GossipDigests || old <= protocol.MaxDigests && n < min(old, GossipDigests) ||
				made.From != uint64(old-n) || made.Digests[0].Revision != made.From+1 || made.To != uint64(old) ||
				made.At != made.To || !d.isListed(made.Text) {
				t.Fatalf("of %d: %+v", len(all), made)
			}
		}

		cursor.From = d.at.Revision
		if made, err := publisher.GossipPage(&cursor); err != nil || made != nil {
			t.Errorf("again: %+v, %v", made, err)
		}

		d.announce(directory.Mesh, 200, signed.OpPut)

		if made, err := publisher.GossipPage(&cursor); err != nil || made == nil || len(made.Digests) != 1 {
			t.Errorf("after a change: %+v, %v", made, err)
		}
	}
}

// Until the domain's key document lists this node's key, and again after a rotation, nothing that it signs leaves
// it: peers would refuse it. What was signed before isn't given out either.
//
// Requirement: TRUST-010
func TestNothingIsSignedByAKeyThatIsNotListed(t *testing.T) {
	d, publisher := newDomain(t)
	name := d.announce(directory.Mesh, 1, signed.OpPut)
	doc := d.doc

	publishes := func() map[string]error {
		record, _, recordErr := publisher.Record(directory.Mesh, name)
		page, pageErr := publisher.EntryPage(directory.Mesh, 1)
		head, headErr := publisher.Head()

		for what, text := range map[string]string{"head": head, "page": textOf(page),
			"record": protocol.JoinJWS(record.Header, record.Payload, record.Signature)} {
			if text != "" && text != ".." && !d.isListed(text) {
				t.Errorf("the %s is by a key that isn't listed", what)
			}
		}

		return map[string]error{"record": recordErr, "page": pageErr, "head": headErr}
	}
	all := func(when string, want error) {
		t.Helper()

		for range 2 {
			for what, err := range publishes() {
				if !errors.Is(err, want) {
					t.Errorf("%s: %s: %v", when, what, err)
				}
			}
		}
	}

	d.doc = nil
	all("without a key document", ErrNotReady)

	d.doc = doc
	all("with one", nil)

	before := d.private
	d.rotate()
	d.issue()

	listed := d.private
	d.private = before // this node hasn't its new key yet
	all("by the key before", ErrNotReady)

	d.private = listed
	all("by the key that is listed", nil)

	broken := errors.New("broken")
	d.signing = func(string) error { return broken }
	name = d.announce(directory.Mesh, 1, signed.OpPut)

	if _, _, err := publisher.Record(directory.Mesh, name); !errors.Is(err, broken) {
		t.Errorf("without a signature: %v", err)
	}
}

func textOf(page *Page) string {
	if page == nil {
		return ""
	}

	return page.Text
}

// A record is given to a stream that may have it, is signed once however many ask for it, and again once the
// domain's key document has another key.
//
// Requirement: MESH-014, TRUST-010
func TestARecordIsSignedOnceForAll(t *testing.T) {
	d, publisher := newDomain(t)
	name := d.announce(privateOfOne, 1, signed.OpPut)

	if _, known, err := publisher.Record(directory.Mesh, name); known || err != nil {
		t.Errorf("to the mesh: %t, %v", known, err)
	}

	for round := range 3 {
		if round == 1 {
			headOf(t, d, publisher) // which shows that this node's key is listed still
		}

		before := d.signatures()

		for range 3 {
			record, known, err := publisher.Record(privateOfOne, name)
			text := protocol.JoinJWS(record.Header, record.Payload, record.Signature)

			if !known || err != nil || !d.isListed(text) || len(record.Disclosures) != 1 {
				t.Fatalf("round %d: %t, %v, %+v", round, known, err, record)
			}
		}

		if n := d.signatures() - before; n != (round+1)%2 {
			t.Errorf("round %d: %d signatures", round, n)
		}

		if round == 1 {
			d.rotate()
		}

		d.issue()
	}
}

// A signature that is made while the key document changes may be by a key that is listed no more. It isn't kept.
//
// Requirement: TRUST-010
func TestASignatureOfTheKeyBeforeIsNotKept(t *testing.T) {
	d, publisher := newDomain(t)
	d.announce(directory.Mesh, 1, signed.OpPut)
	headOf(t, d, publisher)

	name := d.announce(directory.Mesh, 2, signed.OpPut)
	before := d.private

	var once sync.Once

	d.signing = func(typ string) error {
		if typ != signed.TypeRecord {
			return nil
		}

		once.Do(func() {
			d.rotate()
			d.issue()
			headOf(t, d, publisher) // by the key that is listed now

			listed := d.private
			d.private = before
			d.signing = func(string) error { d.private = listed; return nil } // for the next signature
		})

		return nil
	}

	_, _, err := publisher.Record(directory.Mesh, name)
	must(t, err)

	record, _, err := publisher.Record(directory.Mesh, name)
	if err != nil || !d.isListed(protocol.JoinJWS(record.Header, record.Payload, record.Signature)) {
		t.Errorf("the next asker gets the signature by the key before (%v)", err)
	}
}

// Records are signed before a peer requests them, those of all streams. A change or another issue of the key
// document leaves the others signed; another key or another epoch signs all of them again.
//
// Requirement: MESH-014
func TestRecordsAreSignedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 3 * aheadBatch

		d, publisher := newDomain(t)
		doc := d.doc
		d.doc = nil
		audiences := []directory.Audience{directory.Mesh, privateOfOne}

		for n := range byte(many) {
			d.announce(audiences[n%2], n, signed.OpPut)
		}

		d.announce(directory.Mesh, 2*many/2, signed.OpEnd)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			publisher.SignAhead(ctx, func() []directory.Audience { return audiences })
		}()

		before := 0
		check := func(when string, want int) {
			t.Helper()

			time.Sleep(time.Minute)
			synctest.Wait()

			if made := d.signatures() - before; made != want {
				t.Errorf("%s: %d signatures, want %d", when, made, want)
			}

			before = d.signatures()
			d.everyRecord(t, publisher)

			if made := d.signatures() - before; made != 0 {
				t.Errorf("%s: requests made %d signatures", when, made)
			}
		}

		time.Sleep(time.Minute)

		if n := d.signatures(); n > 0 {
			t.Errorf("%d signatures without a key document", n)
		}

		d.mu.Lock()
		d.doc = doc
		d.mu.Unlock()

		check("at first", many)
		d.announce(directory.Mesh, 0, signed.OpPut)
		check("after a change", 1)
		d.issue()
		check("after another issue", 0)
		d.announce(directory.Mesh, 1, signed.OpPut)
		check("after a change", 1)
		d.rotate()
		d.announce(directory.Mesh, 2, signed.OpPut)
		time.Sleep(time.Minute)
		d.issue()
		check("after another key", many+1)

		d.mu.Lock()
		d.at = directory.Position{Epoch: d.at.Epoch + 1}
		d.streams = map[directory.Audience][]signed.Digest{}
		d.mu.Unlock()

		d.announce(directory.Mesh, 3, signed.OpPut)
		check("after another epoch", 1)

		d.mu.Lock()
		d.doc = nil
		d.mu.Unlock()

		d.announce(directory.Mesh, 3, signed.OpPut)
		time.Sleep(time.Minute)
		cancel() // while it can't sign
		<-done
	})
}

// everyRecord requests each record of each stream.
func (d *domain) everyRecord(t *testing.T, publisher *Publisher) {
	t.Helper()

	for aud, digests := range d.streams {
		for _, digest := range slices.Clone(digests) {
			if !digest.Live() {
				continue
			}

			record, known, err := publisher.Record(aud, protocol.NameOf(digest))
			if !known || err != nil || !d.isListed(protocol.JoinJWS(record.Header, record.Payload, record.Signature)) {
				t.Fatalf("%t, %v, %+v", known, err, record)
			}
		}
	}
}

// When the memory for signatures is full, those of records that are gone make room, and once no peer is left all
// of them are removed.
func TestSignaturesOfRecordsThatAreGoneAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, publisher := newDomain(t)

		signatures := func() int {
			publisher.mu.Lock()
			defer publisher.mu.Unlock()

			return len(publisher.known.byHash)
		}

		var mu sync.Mutex

		audiences := []directory.Audience{directory.Mesh}
		kept := d.announce(directory.Mesh, 1, signed.OpPut)
		gone := d.announce(directory.Mesh, 2, signed.OpPut)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			publisher.SignAhead(ctx, func() []directory.Audience {
				mu.Lock()
				defer mu.Unlock()

				return audiences
			})
		}()

		time.Sleep(time.Minute)

		publisher.mu.Lock()
		for i := range spareSignatures {
			publisher.known.byHash[directory.Hash{1, byte(i), byte(i >> 8), 1}] = [64]byte{}
		}

		publisher.mu.Unlock()

		d.announce(directory.Mesh, 2, signed.OpEnd)
		time.Sleep(time.Minute)

		if !publisher.isSigned(kept.H) || publisher.isSigned(gone.H) || signatures() != 1 {
			t.Errorf("signed: the one that is there %t, the one that is gone %t, %d in all",
				publisher.isSigned(kept.H), publisher.isSigned(gone.H), signatures())
		}

		mu.Lock()
		audiences = nil
		mu.Unlock()

		d.announce(directory.Mesh, 3, signed.OpPut)
		time.Sleep(time.Minute)

		if n := signatures(); n != 0 {
			t.Errorf("%d signatures are kept for no peer", n)
		}

		cancel()
		<-done
	})
}

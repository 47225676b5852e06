package store

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Whatever pages and records come in which order, and whatever quotas are in force, a stream has on disk what a
// naive model of it has, counts it exactly, and has it after a restart too.
//
// Requirement: FORM-005
func TestAStreamIsWhatItsModelIs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		m := &streamModel{T: rt, store: open(t, dir), entries: map[directory.RID]modelEntry{}, owners: Owners{},
			now: directorytest.Noon}

		defer func() { must(t, m.store.Close()) }()

		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			m.now += rapid.Int64Range(0, 30).Draw(rt, "pause")

			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				m.apply(m.store.RemoveAll(meshOfAlpha, m.some(func(rid directory.RID) { delete(m.entries, rid) })))
			case 1, 2:
				m.requestAgain()
			case 3, 4:
				m.keepRecords()
			case 5:
				must(t, m.store.Close())
				m.store = open(t, dir)
			default:
				m.page()
			}

			m.check()
		}
	})
}

var meshOfAlpha = StreamID{Origin: directorytest.Alpha, Audience: directory.Mesh, Epoch: 1}

func open(t *testing.T, dir string) *Store {
	t.Helper()

	store, err := Open(dir, true, NewDisk(func() {}, func(time.Duration) {}))
	must(t, err)

	return store
}

// A streamModel is a stream, and what it should be.
type streamModel struct {
	*rapid.T
	store *Store
	now   int64

	watermark uint64
	entries   map[directory.RID]modelEntry

	used   Usage // the sums of the changes that the store returned
	owners Owners
}

// A modelEntry is an entry with the record that is held of it.
type modelEntry struct {
	digest signed.Digest
	record uint8
	owner  OwnerKey
	size   int64
	format Format
	came   Arrival // the record, if it is held
}

// neighbour is the usage of the other stream of the origin, which is Ada's.
var neighbour = Usage{Records: 1, Bytes: 100}

// counted returns the usage of the model.
func (m *streamModel) counted() (sum Usage, owners Owners) {
	owners = Owners{}

	for _, e := range m.entries {
		switch e.record {
		case RecordHeld:
			sum.Records++
			sum.Bytes += e.size
			owners.Add(e.owner, Share{1, e.size})

			if e.format != 0 {
				sum.Unopened[e.format]++
			}
		case RecordMissing:
			sum.Missing++
		case RecordOverQuota:
			sum.OverQuota++
		}
	}

	return sum, owners
}

// room draws the quotas of a step.
func (m *streamModel) room() Room {
	used, owners := m.counted()

	return Room{
		All: Quota{rapid.Uint64Range(0, 5).Draw(m.T, "records"), rapid.Uint64Range(0, 9).Draw(m.T, "bytes") * 100},
		Each: Quota{rapid.Uint64Range(0, 3).Draw(m.T, "records of each"),
			rapid.Uint64Range(0, 5).Draw(m.T, "bytes of each") * 100},
		Used:        used.Plus(neighbour),
		Owners:      [2]Owners{owners, {ownerOf(directorytest.Ada): {neighbour.Records, neighbour.Bytes}}},
		MostMissing: rapid.Int64Range(1, 3).Draw(m.T, "most missing"),
		MostEntries: rapid.Uint64Range(0, 5).Draw(m.T, "entries"),
	}
}

func ownerOf(id directory.Identity) OwnerKey { return OwnerKeyOf(&directory.Entry{Owner: id}) }

// judge returns the state of a record that came in place of old's.
func (m *streamModel) judge(room Room, old modelEntry, came Arrival) uint8 {
	if came.Err != nil {
		return RecordRefused
	}

	used, owners := m.counted()
	owner := OwnerKeyOf(came.Entry)
	all, each := used.Plus(neighbour), owners[owner].Usage()

	if owner == ownerOf(directorytest.Ada) {
		each = each.Plus(neighbour)
	}

	// The record that is replaced makes room for the one that came, but only within its owner's share.
	size := int64(came.Stored.Size())
	moreRecords, moreBytes, ofOwner, bytesOfOwner := int64(1), size, int64(1), size

	if old.record == RecordHeld {
		moreRecords, moreBytes = 0, size-old.size

		if old.owner == owner {
			ofOwner, bytesOfOwner = moreRecords, moreBytes
		}
	}

	if fits(room.All.Records, all.Records, moreRecords) && fits(room.All.Bytes, all.Bytes, moreBytes) &&
		fits(room.Each.Records, each.Records, ofOwner) && fits(room.Each.Bytes, each.Bytes, bytesOfOwner) {
		return RecordHeld
	}

	return RecordOverQuota
}

// fits reports whether a limit, 0 for none, allows more. What replaces as much always fits.
func fits(limit uint64, used, more int64) bool {
	return limit == 0 || more <= 0 || used+more <= int64(limit)
}

// keep notes a record that came for an entry.
func (m *streamModel) keep(room Room, e modelEntry, old modelEntry, came Arrival) modelEntry {
	e.record = m.judge(room, old, came)
	if e.record == RecordHeld {
		e.owner, e.size, e.format, e.came = OwnerKeyOf(came.Entry), int64(came.Stored.Size()), came.Format, came
	}

	return e
}

// arrival draws a record that came by that name.
func (m *streamModel) arrival(name protocol.RecordName) Arrival {
	record := Record{Header: "h", Payload: []byte(fmt.Sprint(name.H[0], name.M[0])), Signature: "s",
		Disclosures: []string{strings.Repeat("d", int(name.M[0])*100+rapid.IntRange(0, 99).Draw(m.T, "size"))}}
	came := Arrival{Asked: name, Stored: record.Stored(name), From: directorytest.Beta, At: time.UnixMilli(m.now)}

	switch rapid.IntRange(0, 5).Draw(m.T, "record") {
	case 0:
		came.Err = errors.New("refused by the record gate")
	case 1:
		came.Format = 2
	case 2, 3:
		came.Entry = &directory.Entry{Owner: directorytest.Ada}
	default:
		came.Entry = &directory.Entry{Owner: directorytest.Bob}
	}

	return came
}

func drawName(t *rapid.T) protocol.RecordName {
	return protocol.RecordName{H: directory.Hash{rapid.ByteRange(0, 2).Draw(t, "h")},
		M: directory.Hash{rapid.ByteRange(0, 2).Draw(t, "m")}}
}

// some calls f with some registrations, each once, and returns them.
func (m *streamModel) some(f func(directory.RID)) []directory.RID {
	ns := rapid.SliceOfNDistinct(rapid.ByteRange(0, 5), 1, 3, rapid.ID).Draw(m.T, "registrations")

	var rids []directory.RID

	for _, n := range ns {
		f(directorytest.RID(n))
		rids = append(rids, directorytest.RID(n))
	}

	return rids
}

// page has the store apply a page that continues the stream.
func (m *streamModel) page() {
	page := &NewPage{Page: &signed.Page{From: m.watermark, To: m.watermark}, Text: "page", Key: directory.Hash{9},
		VerifiedAt: time.UnixMilli(m.now), Records: map[directory.RID]Arrival{}, Room: m.room(),
		Now: time.Unix(m.now, 0)}

	var want []Effect

	m.some(func(rid directory.RID) {
		page.To++
		digest := signed.Digest{RID: rid, Revision: page.To,
			Op: rapid.SampledFrom([]signed.Op{signed.OpPut, signed.OpPut, signed.OpRenew, signed.OpEnd, signed.OpDrop}).
				Draw(m.T, "operation")}
		name := drawName(m.T)

		if digest.Live() {
			digest.H, digest.M, digest.Lifetime = name.H, name.M, 60
			digest.Deadline = m.now - 70 + rapid.Int64Range(0, 200).Draw(m.T, "deadline")
		}

		if rapid.Bool().Draw(m.T, "comes with its record") {
			page.Records[rid] = m.arrival(name)

			// A page may name a registration twice; what was fetched is of one of its digests.
			if rapid.IntRange(0, 4).Draw(m.T, "of another digest") == 0 {
				page.Records[rid] = m.arrival(protocol.RecordName{H: directory.Hash{200}})
			}
		}

		page.Digests = append(page.Digests, digest)
		want = append(want, m.digest(page, digest))
	})

	changes, err := m.store.ApplyPage(meshOfAlpha, page)
	m.watermark = page.To
	m.apply(changes, err)
	m.effects(changes.Effects, want)

	saved, err := m.store.Origins()
	if err != nil || saved[directorytest.Alpha].Floor != page.Now.UnixMilli() {
		m.Fatalf("saved with the page: %+v, %v", saved, err)
	}
}

// digest applies one digest to the model.
func (m *streamModel) digest(page *NewPage, digest signed.Digest) Effect {
	rid := digest.RID
	old, known := m.entries[rid]

	if !digest.Live() || digest.Deadline+int64(directory.Skew.Seconds()) <= m.now {
		delete(m.entries, rid)
		return Effect{Ended: old.digest.Deadline}
	}

	if !known && !fits(page.Room.MostEntries, int64(len(m.entries)), 1) {
		return Effect{LeftOut: true}
	}

	came, here := page.Records[rid]
	here = here && came.Asked == protocol.NameOf(digest)
	same := known && protocol.NameOf(old.digest) == protocol.NameOf(digest)
	next := modelEntry{digest: digest}
	effect := Effect{Held: &Entry{}}

	switch used, _ := m.counted(); {
	case same && (old.record != RecordMissing || came.Stored == nil):
		next = old
		next.digest = digest
		effect.Renewed = true
	case here:
		next = m.keep(page.Room, next, old, came)
		effect.Refused = came.Err

		if next.record == RecordHeld {
			effect.Entry = came.Entry
		}
	case old.record != RecordHeld && (!fits(page.Room.All.Records, used.Records+neighbour.Records, 1) ||
		!fits(page.Room.All.Bytes, used.Bytes+neighbour.Bytes, 1)), used.Missing >= page.Room.MostMissing:
		next.record = RecordOverQuota
	}

	m.entries[rid] = next

	return effect
}

// keepRecords has the store keep records that were requested, and such that nobody needs.
func (m *streamModel) keepRecords() {
	records := map[directory.RID]Arrival{}
	room := m.room()
	kept := 0

	m.some(func(rid directory.RID) {
		if kept > 0 {
			return // the order in which several are judged is not defined
		}

		e, known := m.entries[rid]
		name := protocol.NameOf(e.digest)

		if !known || rapid.IntRange(0, 4).Draw(m.T, "of another digest") == 0 {
			name = drawName(m.T)
		}

		came := m.arrival(name)
		records[rid] = came

		if known && e.record == RecordMissing && name == protocol.NameOf(e.digest) {
			m.entries[rid] = m.keep(room, e, modelEntry{}, came)
			kept++
		}
	})

	changes, err := m.store.KeepRecords(meshOfAlpha, records, room)
	m.apply(changes, err)

	if len(changes.Effects) != kept {
		m.Fatalf("%d of %d records are kept", len(changes.Effects), kept)
	}
}

// requestAgain has the store request what is over the quota.
func (m *streamModel) requestAgain() {
	m.apply(m.store.RequestAgain(meshOfAlpha, m.some(func(rid directory.RID) {
		if e, known := m.entries[rid]; known && e.record == RecordOverQuota {
			e.record = RecordMissing
			m.entries[rid] = e
		}
	})))
}

// apply adds the changes of a step.
func (m *streamModel) apply(changes Changes, err error) {
	m.Helper()

	if err != nil {
		m.Fatal(err)
	}

	m.used = m.used.Plus(changes.Delta)
	m.owners.Absorb(changes.Owners)

	if changes.State.Live != uint64(len(m.entries)) || changes.State.Watermark != m.watermark {
		m.Fatalf("got the state %+v with %d entries", changes.State, len(m.entries))
	}
}

// effects compares what a page did with what it should do.
func (m *streamModel) effects(got, want []Effect) {
	m.Helper()

	for i, effect := range got {
		if (effect.Held == nil) != (want[i].Held == nil) || effect.Renewed != want[i].Renewed ||
			effect.Entry != want[i].Entry || effect.Ended != want[i].Ended || effect.LeftOut != want[i].LeftOut ||
			!errors.Is(effect.Refused, want[i].Refused) ||
			effect.Missing() != (effect.Held != nil && m.entries[effect.Digest.RID].record == RecordMissing) {
			m.Fatalf("got %+v; want %+v", effect, want[i])
		}
	}
}

// check compares the stream on disk with the model.
func (m *streamModel) check() {
	m.Helper()

	used, owners := m.counted()
	if m.used != used || !maps.Equal(m.owners, owners) {
		m.Fatalf("counted are %+v of %v; want %+v of %v", m.used, m.owners, used, owners)
	}

	m.store.Places = newPlaces() // as after a start

	found, sum := 0, Usage{}
	if err := m.store.Scan(meshOfAlpha, func(tx *Tx, rid directory.RID, held *Entry) bool {
		found++
		sum = sum.Plus(tx.UsageOf(held))

		if want := m.entries[rid]; held.Record != want.record || !Agree(held.Digest(rid), want.digest) ||
			!tx.Has(rid) {
			m.Fatalf("%s: got %+v; want %+v", rid, held, want)
		}

		return true
	}, func(stored []StoredEntry) {
		for _, s := range stored {
			want := m.entries[s.RID]
			if !slices.Equal(s.Record.Stored(s.Entry.Name()), want.came.Stored) || s.Entry.Owner != want.owner ||
				s.Entry.Format != want.format || int64(s.Entry.Size) != want.size ||
				s.Entry.At != want.came.At.UnixMilli() || s.Entry.From != want.came.From.Name() {
				m.Fatalf("got %+v; want %+v", s, want)
			}
		}
	}); err != nil || found != len(m.entries) || sum != used {
		m.Fatalf("%d entries of %+v, want %d of %+v: %v", found, sum, len(m.entries), used, err)
	}

	m.checkDeadlines()
	m.checkNames()
	m.checkChain()
}

// checkDeadlines compares what is due with the model.
func (m *streamModel) checkDeadlines() {
	m.Helper()

	var all []int64
	for _, e := range m.entries {
		all = append(all, e.digest.Deadline)
	}

	slices.Sort(all)

	due := slices.DeleteFunc(slices.Clone(all), func(deadline int64) bool { return deadline >= m.now })
	for limit := range len(all) + 1 {
		var (
			rids []directory.RID
			next int64
		)

		if err := m.store.Read(meshOfAlpha, func(tx *Tx) (err error) {
			rids, next, err = tx.DueBefore(m.now, limit)
			return err
		}); err != nil {
			m.Fatal(err)
		}

		var got []int64
		for _, rid := range rids {
			got = append(got, m.entries[rid].digest.Deadline)
		}

		if want := due[:min(limit, len(due))]; !slices.Equal(got, want) ||
			next != append(all[len(want):], 0)[0] {
			m.Fatalf("due are %v and next %d, of %v by %d", got, next, all, m.now)
		}
	}
}

// checkNames asks for records by all names, in one request and one by one.
func (m *streamModel) checkNames() {
	m.Helper()

	var names []protocol.RecordName

	for h := range byte(4) {
		for disclosed := range byte(3) {
			names = append(names, protocol.RecordName{H: directory.Hash{h}, M: directory.Hash{disclosed}})
		}
	}

	all, err := m.store.Find(meshOfAlpha, names, 1<<20)
	if err != nil || len(all) != len(names) {
		m.Fatalf("%d records: %v", len(all), err)
	}

	for i, name := range names {
		held := slices.ContainsFunc(slices.Collect(maps.Values(m.entries)), func(e modelEntry) bool {
			return e.record == RecordHeld && protocol.NameOf(e.digest) == name
		})
		if got := all[i]; (got != nil) != held ||
			held && !reflect.DeepEqual(got.Payload, []byte(fmt.Sprint(name.H[0], name.M[0]))) {
			m.Fatalf("held: %t, found: %+v", held, got)
		}
	}

	if one, err := m.store.Find(meshOfAlpha, names, 1); err != nil {
		m.Fatal(err)
	} else if i := slices.IndexFunc(all, func(r *Record) bool { return r != nil }); i >= 0 && len(one) != i+1 {
		m.Fatalf("%d names were looked up for one byte; the first record is at %d", len(one), i)
	}
}

// checkChain follows the chain from 0 to the watermark.
func (m *streamModel) checkChain() {
	m.Helper()

	if err := m.store.Read(meshOfAlpha, func(tx *Tx) error {
		at, links := uint64(0), uint64(0)

		for ; at < m.watermark; links++ {
			page, err := tx.PageAfter(at)
			if err != nil || page == nil || page.From != at {
				return fmt.Errorf("after %d comes %+v: %w", at, page, err)
			}

			_, at, err = tx.PageOf(at + 1)
			if err != nil {
				return err
			}
		}

		if page, _, err := tx.PageOf(at + 1); page != nil || err != nil {
			return fmt.Errorf("behind the watermark: %+v, %w", page, err)
		}

		if page, err := tx.PageAfter(at); page != nil || err != nil || tx.Links() != links {
			return fmt.Errorf("after the last of %d of %d links: %+v, %w", links, tx.Links(), page, err)
		}

		return nil
	}); err != nil {
		m.Fatal(err)
	}
}

package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// secret stands in a record; nothing else on disk has it.
const secret = "a secret of 32 bytes in a record"

var secretName = protocol.RecordName{H: directory.Hash{7}, M: directory.Hash{8}}

// bring has a stream apply a page of one registration and its secret record, signed by a key.
func bring(t *testing.T, s *Store, id StreamID, rid directory.RID, name protocol.RecordName, key directory.Hash) {
	t.Helper()

	record := Record{Header: "h", Payload: []byte(secret), Signature: "s"}

	streams, err := s.Streams(id.Origin)
	must(t, err)

	from := uint64(0)

	for _, stream := range streams {
		if stream.Id == id {
			from = stream.State.Watermark
		}
	}

	jws := protocol.JoinJWS(directory.B64.EncodeToString([]byte(`{"kid":"`+key.String()+`"}`)), []byte("{}"),
		directory.B64.EncodeToString(make([]byte, 64)))
	digest := signed.Digest{RID: rid, Revision: from + 1, Op: signed.OpPut, H: name.H, M: name.M,
		Deadline: directorytest.Noon}
	_, err = s.ApplyPage(id, &NewPage{Page: &signed.Page{From: from, To: from + 1, Digests: []signed.Digest{digest}},
		Key: key, Text: jws, Room: Room{MostMissing: 100},
		Records: map[directory.RID]Arrival{rid: {Asked: name, Stored: record.Stored(name)}}})
	must(t, err)
}

// shows reports whether a stream gives out the record of a name.
func shows(t *testing.T, s *Store, id StreamID, name protocol.RecordName) bool {
	t.Helper()

	found, err := s.Find(id, []protocol.RecordName{name}, 1000)
	must(t, err)

	return found[0] != nil
}

// However a record goes, it is no longer given out, other streams keep theirs, and the loop that wipes takes its
// bytes from the file.
//
// Requirement: MESH-025
func TestWhatIsRemovedIsGoneFromDisk(t *testing.T) {
	private := StreamID{meshOfAlpha.Origin, directory.Only(directorytest.Beta), 1}
	fresh := StreamID{meshOfAlpha.Origin, directory.Mesh, 2}
	longer := StreamID{spiffeid.RequireTrustDomainFromString("alpha.test.of.another"), directory.Mesh, 1}
	rid, other := directorytest.RID(1), directorytest.RID(2)

	for name, remove := range map[string]func(s *Store) error{
		"by a page": func(s *Store) error {
			_, err := s.ApplyPage(meshOfAlpha, &NewPage{Page: &signed.Page{From: 1, To: 2,
				Digests: []signed.Digest{{RID: rid, Revision: 2, Op: signed.OpEnd}}}})

			return err
		},
		"by another record": func(s *Store) error {
			record := Record{Payload: []byte("another")}
			renamed := protocol.RecordName{H: directory.Hash{1}}
			_, err := s.ApplyPage(meshOfAlpha, &NewPage{Page: &signed.Page{From: 1, To: 2, Digests: []signed.Digest{
				{RID: rid, Revision: 2, Op: signed.OpPut, H: renamed.H, Deadline: directorytest.Noon}}},
				Records: map[directory.RID]Arrival{rid: {Asked: renamed, Stored: record.Stored(renamed)}}})

			return err
		},
		"alone": func(s *Store) error {
			_, err := s.RemoveAll(meshOfAlpha, []directory.RID{rid, other})
			return err
		},
		"with its stream":   func(s *Store) error { return s.DropStream(meshOfAlpha) },
		"with its audience": func(s *Store) error { return s.DropStreams(meshOfAlpha.Origin, directory.Mesh) },
		"with its epoch":    func(s *Store) error { return s.Swap(meshOfAlpha, fresh, Origin{Epoch: 2}) },
		"with its origin":   func(s *Store) error { return s.Forget(meshOfAlpha.Origin) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir)

				defer func() { must(t, s.Close()) }()

				onDisk := func() bool {
					data, err := os.ReadFile(filepath.Join(dir, "federation.db"))
					must(t, err)

					return bytes.Contains(data, []byte(secret))
				}

				for _, neighbour := range []StreamID{private, longer} {
					_, err := s.Change(neighbour, func(*Tx) error { return nil })
					must(t, err)
				}

				bring(t, s, meshOfAlpha, rid, secretName, directory.Hash{1})

				if !shows(t, s, meshOfAlpha, secretName) || !onDisk() {
					t.Fatal("it never was there")
				}

				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					s.Wiping(ctx, true, slog.New(slog.DiscardHandler))
				}()

				time.Sleep(time.Minute) // the run at the beginning has ended
				must(t, remove(s))

				if shows(t, s, meshOfAlpha, secretName) || len(s.Places.Of(meshOfAlpha, secretName)) > 0 {
					t.Error("it is given out, or its place is kept in memory")
				}

				time.Sleep(time.Minute)

				if onDisk() {
					t.Error("it is in the file")
				}

				for _, neighbour := range []StreamID{private, longer} {
					streams, err := s.Streams(neighbour.Origin)
					must(t, err)

					if kept := slices.ContainsFunc(streams, func(saved SavedStream) bool {
						return saved.Id == neighbour
					}); kept == (name == "with its origin" && neighbour == private) {
						t.Errorf("%v is kept: %t", neighbour, kept)
					}
				}

				cancel()
				<-stopped
			})
		})
	}
}

// A start wipes what the stop before has left, and what a stalled disk refuses to wipe is wiped once it answers.
//
// Requirement: MESH-025
func TestWipingGoesOnAfterAStartAndAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir)
		bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{1})
		must(t, s.DropStream(meshOfAlpha))
		must(t, s.Close())

		s = open(t, dir)

		defer func() { must(t, s.Close()) }()

		release := hang(t, s.Disk.Change)
		time.Sleep(StallAfter)

		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.Wiping(ctx, true, slog.New(slog.DiscardHandler))
		}()

		time.Sleep(time.Minute)
		release()
		time.Sleep(time.Minute)

		data, err := os.ReadFile(filepath.Join(dir, "federation.db"))
		if err != nil || bytes.Contains(data, []byte(secret)) {
			t.Errorf("it is in the file (%v)", err)
		}

		cancel()
		<-stopped
	})
}

// A run of the wiper ends when its rest between two steps is cut short.
func TestWipingRestsBetweenSteps(t *testing.T) {
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	must(t, s.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(BucketMeta).Put([]byte("large"), make([]byte, wipeStep*os.Getpagesize()))
	}))

	rests := 0
	must(t, s.Wipe(true, func(time.Duration) bool { rests++; return false }))

	if rests != 1 {
		t.Errorf("%d rests", rests)
	}
}

// What is stored of an origin beside its streams is there after a restart, apart from that of others, until the
// origin is forgotten.
func TestAnOriginIsKeptUntilItIsForgotten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := Origin{Epoch: 2, Floor: 5, Head: "head", Keys: "keys", Distrusted: []byte{1}}

	must(t, s.SaveKeys(directorytest.Alpha, []string{"newer", "older"}, want))
	must(t, s.SaveOrigin(directorytest.Beta, Origin{Epoch: 9}))
	must(t, s.SetDialect("dialect"))

	for _, epoch := range []uint64{300, 2} {
		id := StreamID{directorytest.Alpha, directory.Mesh, epoch}
		_, err := s.Change(id, func(tx *Tx) error { tx.State.Watermark = epoch; return nil })
		must(t, err)
	}

	must(t, s.Close())
	s = open(t, dir)

	defer func() { must(t, s.Close()) }()

	origins, err := s.Origins()
	must(t, err)
	past, err := s.PastKeys(directorytest.Alpha)
	must(t, err)
	streams, err := s.Streams(directorytest.Alpha)
	must(t, err)
	dialect, err := s.Dialect()
	must(t, err)

	if got := origins[directorytest.Alpha]; len(origins) != 2 || got.Head != want.Head || got.Keys != want.Keys ||
		got.Epoch != want.Epoch || got.Floor != want.Floor || !bytes.Equal(got.Distrusted, want.Distrusted) ||
		!slices.Equal(past, []string{"newer", "older"}) || dialect != "dialect" {
		t.Errorf("origins %+v, past keys %v, dialect %q", origins, past, dialect)
	}

	if len(streams) != 2 || streams[0].State.Watermark != 2 || streams[1].Id.Epoch != 300 {
		t.Errorf("streams %+v, not by ascending epoch", streams)
	}

	must(t, s.Forget(directorytest.Alpha))

	origins, err = s.Origins()
	must(t, err)
	past, err = s.PastKeys(directorytest.Alpha)
	must(t, err)

	if _, known := origins[directorytest.Alpha]; known || len(origins) != 1 || past != nil {
		t.Errorf("once forgotten: origins %+v, past keys %v", origins, past)
	}
}

// A new epoch takes the place of the old one, with what is stored of the origin, even if nothing was announced in
// it.
func TestAnEpochTakesThePlaceOfAnother(t *testing.T) {
	for _, announced := range []bool{true, false} {
		s := open(t, t.TempDir())
		fresh := StreamID{meshOfAlpha.Origin, directory.Mesh, 2}

		bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{1})

		if announced {
			bring(t, s, fresh, directorytest.RID(1), secretName, directory.Hash{1})
		}

		must(t, s.Swap(meshOfAlpha, fresh, Origin{Epoch: 2}))

		streams, err := s.Streams(meshOfAlpha.Origin)
		must(t, err)
		origins, err := s.Origins()
		must(t, err)

		if len(streams) != 1 || streams[0].Id != fresh || origins[meshOfAlpha.Origin].Epoch != 2 ||
			shows(t, s, fresh, secretName) != announced {
			t.Errorf("announced %t: streams %+v, origin %+v", announced, streams, origins)
		}

		must(t, s.Close())
	}
}

// A fresh chain is gathered beside the one that is passed on, and takes its place whole. A repeated pull begins
// with no chain and nothing confirmed, and is remembered until it ends.
func TestAChainIsReplacedByAFreshOne(t *testing.T) {
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	change := func(f func(tx *Tx) error) State {
		t.Helper()

		state, err := s.Change(meshOfAlpha, f)
		must(t, err)

		return state
	}
	ends := func() (ends []uint64) {
		t.Helper()
		must(t, s.Read(meshOfAlpha, func(tx *Tx) error {
			return tx.PagesAfter(1, func(_ *Page, to uint64) error { ends = append(ends, to); return nil })
		}))

		return ends
	}
	repull := func() uint64 {
		t.Helper()

		streams, err := s.Streams(meshOfAlpha.Origin)
		must(t, err)

		return streams[0].RepullSince
	}

	for to := range uint64(4) {
		change(func(tx *Tx) error { return tx.AddPage(&signed.Page{From: to, To: to + 1}, "page") })
	}

	change(func(tx *Tx) error {
		tx.State.Watermark = 4
		return errors.Join(tx.BeginFreshChain(), tx.AddFresh(&signed.Page{To: 1}, "of an attempt that failed"))
	})
	change(func(tx *Tx) error {
		return errors.Join(tx.BeginFreshChain(),
			tx.AddFresh(&signed.Page{To: 3, Digests: make([]signed.Digest, 3)}, "fresh"),
			tx.AddFresh(&signed.Page{From: 3, To: 4}, "fresh"), tx.Confirm(4))
	})

	if got := ends(); !slices.Equal(got, []uint64{2, 3, 4}) {
		t.Errorf("while a fresh chain is gathered: pages to %v", got)
	}

	if state := change((*Tx).SwitchChain); state.Listed != 4 || state.Watermark != 4 {
		t.Errorf("with the fresh chain: %+v", state)
	}

	if got := ends(); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("with the fresh chain: pages to %v", got)
	}

	if state := change(func(tx *Tx) error { return tx.BeginRepull(4) }); state != (State{}) || ends() != nil ||
		repull() != 4 {
		t.Errorf("during a repeated pull: %+v, pages to %v, repeated since %d", state, ends(), repull())
	}

	change(func(tx *Tx) error {
		if confirmed := tx.Confirmed(); confirmed != 0 {
			t.Errorf("%d are confirmed during a repeated pull", confirmed)
		}

		return errors.Join(tx.AddPage(&signed.Page{To: 4}, "page"), tx.BeginFreshChain(), tx.EndRepull())
	})

	if got := ends(); !slices.Equal(got, []uint64{4}) || repull() != 0 {
		t.Errorf("after a repeated pull: pages to %v, repeated since %d", got, repull())
	}
}

// An origin that prevents the renewal of its chain doesn't fill the disk: a chain that is too long is emptied. It
// serves receivers at its beginning and no others.
func TestAChainThatIsTooLongIsEmptied(t *testing.T) {
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	for to, listed := range []uint64{1, ChainMost, ChainMost + 1, 2} {
		state, err := s.Change(meshOfAlpha, func(tx *Tx) error {
			tx.State.Listed = listed

			return tx.AddPage(&signed.Page{From: uint64(to), To: uint64(to) + 1, Digests: make([]signed.Digest, 2)},
				"page")
		})
		must(t, err)

		want, begin := listed+2, uint64(0)
		if listed > ChainMost {
			want = 2
		}

		if to >= 2 {
			begin = 2
		}

		must(t, s.Read(meshOfAlpha, func(tx *Tx) error {
			for since := range uint64(to) + 1 {
				page, err := tx.PageAfter(since)
				if err != nil || (page != nil) != (since >= begin) {
					t.Errorf("%d listed: after %d comes %+v (%v)", listed, since, page, err)
				}
			}

			return nil
		}))

		if state.Listed != want {
			t.Errorf("of %d listed: %d", listed, state.Listed)
		}
	}
}

// Another node's confirmation of a part of a stream ends where a page changes that part (rule S14), and not at
// digests that it repeats or frees.
func TestAChangeOfTheConfirmedPartIsConfirmedAgain(t *testing.T) {
	rid, unknown := directorytest.RID(1), directorytest.RID(2)
	held := signed.Digest{RID: rid, Revision: 1, Op: signed.OpPut, H: secretName.H, M: secretName.M,
		Deadline: directorytest.Noon}
	renewed, later, freed := held, held, held
	renewed.Op = signed.OpRenew
	later.Deadline++
	freed.RID, freed.Deadline = unknown, directorytest.Noon-1000
	another := func(revision uint64) signed.Digest {
		return signed.Digest{RID: unknown, Revision: revision, Op: signed.OpPut, Deadline: held.Deadline}
	}

	for name, c := range map[string]struct {
		digest signed.Digest
		want   uint64
	}{
		"the same":                {held, 4},
		"the same, as renewed":    {renewed, 4},
		"another deadline":        {later, 0},
		"the end of what is here": {signed.Digest{RID: rid, Revision: 3, Op: signed.OpEnd}, 2},
		"the end of another":      {signed.Digest{RID: unknown, Revision: 3, Op: signed.OpEnd}, 4},
		"what is freed":           {freed, 4},
		"new, in the part":        {another(4), 3},
		"new, behind it":          {another(6), 4},
	} {
		s := open(t, t.TempDir())
		bring(t, s, meshOfAlpha, rid, secretName, directory.Hash{1})

		_, err := s.Change(meshOfAlpha, func(tx *Tx) error { return tx.Confirm(4) })
		must(t, err)

		_, err = s.ApplyPage(meshOfAlpha, &NewPage{Page: &signed.Page{From: 1, To: 6,
			Digests: []signed.Digest{c.digest}}, Now: time.Unix(directorytest.Noon-100, 0)})
		must(t, err)
		must(t, s.Read(meshOfAlpha, func(tx *Tx) error {
			if got := tx.Confirmed(); got != c.want {
				t.Errorf("%s: %d are confirmed, want %d", name, got, c.want)
			}

			return nil
		}))
		must(t, s.Close())
	}
}

// A stream rests on a key that signed one of its entries or one of its pages, however many there are. A page that
// can't be read counts as one of a revoked key.
func TestAStreamRestsOnTheKeysOfItsPagesAndEntries(t *testing.T) {
	ofEntry, ofPage, ofNone := directory.Hash{1}, directory.Hash{2}, directory.Hash{3}
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	rests := func(key directory.Hash) bool {
		t.Helper()

		rests, err := s.RestsOn(meshOfAlpha, map[string]bool{key.String(): true})
		must(t, err)

		return rests
	}

	for range DoubtBatch {
		bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{9})
	}

	bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, ofPage)
	bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{9})

	_, err := s.Change(meshOfAlpha, func(tx *Tx) error {
		return tx.Put(directorytest.RID(2), nil, &Entry{Key: ofEntry})
	})
	must(t, err)

	if !rests(ofEntry) || !rests(ofPage) || rests(ofNone) {
		t.Errorf("it rests on the key of an entry: %t, of a page: %t, of none: %t", rests(ofEntry), rests(ofPage),
			rests(ofNone))
	}

	_, err = s.Change(meshOfAlpha, func(tx *Tx) error { return tx.AddPage(&signed.Page{From: 99, To: 100}, "page") })
	must(t, err)

	if !rests(ofNone) {
		t.Error("a page that can't be read rests on no key")
	}
}

// A reader that returns to a stream continues behind the last entry that it saw, which may be gone.
func TestEntriesAreReadInBatches(t *testing.T) {
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	for n := range byte(5) {
		bring(t, s, meshOfAlpha, directorytest.RID(n), secretName, directory.Hash{1})
	}

	var seen []directory.RID

	see := func(_ *Tx, rid directory.RID, _ *Entry) error { seen = append(seen, rid); return nil }

	last, more, err := s.EntriesAfter(meshOfAlpha, nil, 2, see)
	if err != nil || !more || len(seen) != 2 {
		t.Fatalf("of five, two at a time: %v, more: %t (%v)", seen, more, err)
	}

	_, err = s.RemoveAll(meshOfAlpha, []directory.RID{directorytest.RID(1)})
	must(t, err)

	last, more, err = s.EntriesAfter(meshOfAlpha, last, 2, see)
	if err != nil || !more || len(seen) != 4 {
		t.Fatalf("the last of a batch is gone: %v, more: %t (%v)", seen, more, err)
	}

	_, more, err = s.EntriesAfter(meshOfAlpha, last, 2, see)
	if err != nil || more || len(seen) != 5 || !slices.IsSortedFunc(seen, directory.RID.Compare) {
		t.Errorf("%v, more: %t (%v)", seen, more, err)
	}

	broken := errors.New("broken")
	if _, more, err := s.EntriesAfter(meshOfAlpha, nil, 2, func(*Tx, directory.RID, *Entry) error {
		return broken
	}); more || !errors.Is(err, broken) {
		t.Errorf("a failure: more: %t, %v", more, err)
	}
}

// A file that isn't this release's is refused, and a damaged one is reported as such by whatever reads the damage.
//
// Requirement: FORM-006
func TestADamagedStoreIsReported(t *testing.T) {
	of := func(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket(bucketStreams).Bucket(meshOfAlpha.key()) }
	scan := func(s *Store) error {
		return s.Scan(meshOfAlpha, func(*Tx, directory.RID, *Entry) bool { return true }, func([]StoredEntry) {})
	}
	streams := func(s *Store) error {
		_, err := s.Streams(meshOfAlpha.Origin)
		return err
	}
	origins := func(s *Store) error {
		_, err := s.Origins()
		return err
	}
	due := func(s *Store) error {
		return s.Read(meshOfAlpha, func(tx *Tx) error { _, _, err := tx.DueBefore(1<<40, 9); return err })
	}
	stream := func(key string) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			_, err := tx.Bucket(bucketStreams).CreateBucket([]byte(key))
			return err
		}
	}

	for name, c := range map[string]struct {
		damage func(tx *bbolt.Tx) error
		read   func(s *Store) error
	}{
		"no entries":   {func(tx *bbolt.Tx) error { return of(tx).DeleteBucket(bucketEntries) }, scan},
		"no records":   {func(tx *bbolt.Tx) error { return of(tx).DeleteBucket(bucketRecords) }, scan},
		"no deadlines": {func(tx *bbolt.Tx) error { return of(tx).DeleteBucket(bucketDue) }, scan},
		"no chain":     {func(tx *bbolt.Tx) error { return of(tx).DeleteBucket(bucketChains[0]) }, scan},
		"a third chain": {func(tx *bbolt.Tx) error {
			return of(tx).Put(keyState, Marshal(State{Chain: 2}))
		}, scan},
		"no state": {func(tx *bbolt.Tx) error { return of(tx).Delete(keyState) }, scan},
		"a lost record": {func(tx *bbolt.Tx) error {
			return of(tx).Bucket(bucketRecords).Delete(placeKey(1))
		}, scan},
		"an entry of no RID": {func(tx *bbolt.Tx) error {
			return of(tx).Bucket(bucketEntries).Put([]byte("x"), nil)
		}, scan},
		"a deadline of no RID": {func(tx *bbolt.Tx) error {
			return of(tx).Bucket(bucketDue).Put(append(make([]byte, 8), 'x'), nil)
		}, due},
		"a stream of two parts":   {stream("alpha.test\x00mesh"), streams},
		"a stream of no epoch":    {stream("alpha.test\x00mesh\x001234567"), streams},
		"a stream of no audience": {stream("alpha.test\x00??\x0012345678"), streams},
		"an origin of no name": {func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketOrigins).Put([]byte("??"), Marshal(Origin{}))
		}, origins},
		"an origin of no state": {func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketOrigins).Put([]byte("beta.test"), []byte{0xff})
		}, origins},
	} {
		s := open(t, t.TempDir())
		bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{1})
		must(t, c.read(s))
		must(t, s.Update(c.damage))

		if err := c.read(s); !errors.Is(err, ErrStore) {
			t.Errorf("%s: %v", name, err)
		}

		must(t, s.Close())
	}

	dir := t.TempDir()
	s := open(t, dir)

	must(t, s.Update(func(tx *bbolt.Tx) error { return tx.Bucket(BucketMeta).Put(KeyVersion, []byte("2")) }))
	must(t, s.Close())

	if _, err := Open(dir, true, NewDisk(func() {}, func(time.Duration) {})); err == nil {
		t.Error("a file of another version is opened")
	}
}

// An entry is read with its record, which is that of its name. A reader of the stream has those that it picks, and
// the others are given out all the same.
func TestEntriesAreReadWithTheirRecords(t *testing.T) {
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	record := Record{Payload: []byte(secret)}
	name := protocol.RecordName{H: directory.HashOf(record.Payload), M: signed.HashDisclosures(nil)}

	bring(t, s, meshOfAlpha, directorytest.RID(1), name, directory.Hash{1})
	must(t, s.Read(meshOfAlpha, func(tx *Tx) error {
		stored, err := tx.StoredEntry(directorytest.RID(1))
		if err != nil || stored.RID != directorytest.RID(1) || !stored.Record.Is(name) ||
			stored.Record.Is(protocol.RecordName{H: name.H}) || stored.Record.Is(protocol.RecordName{M: name.M}) {
			t.Errorf("got %+v, %v", stored, err)
		}

		if stored, err := tx.StoredEntry(directorytest.RID(2)); err != nil || stored.Record != nil {
			t.Errorf("of an unknown registration: %+v, %v", stored, err)
		}

		return nil
	}))

	s.Places = newPlaces() // as after a start

	must(t, s.Scan(meshOfAlpha, func(*Tx, directory.RID, *Entry) bool { return false }, func(stored []StoredEntry) {
		if len(stored) > 0 {
			t.Errorf("picked are %+v", stored)
		}
	}))

	if !shows(t, s, meshOfAlpha, name) {
		t.Error("the record isn't given out")
	}
}

// The owners whose identities are withheld share one quota, which is no other owner's.
//
// Requirement: FORM-005
func TestOwnersThatAreWithheldAreOne(t *testing.T) {
	if OwnerKeyOf(nil) != 0 || OwnerKeyOf(&directory.Entry{}) != 0 ||
		ownerOf(directorytest.Ada) == 0 || ownerOf(directorytest.Ada) == ownerOf(directorytest.Bob) {
		t.Error("owners are confused")
	}
}

// A change that fails leaves nothing behind, neither on disk nor in memory.
func TestAChangeThatFailsChangesNothing(t *testing.T) {
	s := open(t, t.TempDir())

	defer func() { must(t, s.Close()) }()

	broken := errors.New("broken")
	bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{1})

	_, err := s.Change(meshOfAlpha, func(tx *Tx) error {
		held, err := tx.Get(directorytest.RID(1))
		must(t, errors.Join(err, tx.Remove(directorytest.RID(1), held)))

		return broken
	})

	streams, readErr := s.Streams(meshOfAlpha.Origin)
	must(t, readErr)

	if !errors.Is(err, broken) || !shows(t, s, meshOfAlpha, secretName) || streams[0].State.Live != 1 {
		t.Errorf("%v; the record is given out: %t; %+v", err, shows(t, s, meshOfAlpha, secretName), streams)
	}
}

// Formats that a later release knows are told apart up to a bound, because whoever signs a record chooses its format.
func TestUnopenedRecordsAreCountedByFormat(t *testing.T) {
	var usage Usage

	for _, err := range []error{&signed.UnsupportedError{Format: 2}, &signed.UnsupportedError{Format: 2},
		&signed.UnsupportedError{Format: 17}, &signed.UnsupportedError{Format: 1 << 20}, errors.New("not signed")} {
		usage.Count(&Entry{Record: RecordHeld, Format: FormatOf(err)}, 1)
	}

	usage.Count(&Entry{Record: RecordHeld, Format: 200}, 1) // of a later release's store

	if got := usage.Unopened.ByFormat(); len(got) != 2 || got["2"] != 2 || got["other"] != 3 {
		t.Errorf("got %v", got)
	}
}

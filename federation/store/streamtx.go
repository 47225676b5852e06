package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

// A Tx is one stream within a transaction.
type Tx struct {
	tx                            *bbolt.Tx
	wiper                         *wiper
	Bucket, Entries, Records, due *bbolt.Bucket
	State                         State
	Delta                         Usage  // changes of this transaction so far
	Owners                        Owners // the same by owner
	moves                         []move // records that were written or deleted
}

// packed is the fill factor of the file's pages. Most keys are appended, and bbolt's default
// would leave half of each page empty.
const packed = .9

// Lacking returns the names of those records of digests in force that aren't here. If the stream is full, it
// returns only those that take the place of one that is held: there is no room for others. A stream that isn't on
// disk yet lacks them all.
func (s *Store) Lacking(id StreamID, digests []signed.Digest, full bool, now time.Time) (names []protocol.RecordName,
	err error) {
	err = s.View(func(tx *bbolt.Tx) error {
		t, err := s.openStream(tx, id)
		if err != nil {
			return err
		}

		for _, digest := range digests {
			if !digest.Live() || Freed(digest.Deadline, now) {
				continue
			}

			var held *Entry
			if t != nil {
				if held, err = t.Get(digest.RID); err != nil {
					return err
				}
			}

			// A record that was refused or exceeded a quota isn't requested again with the page.
			here := held != nil && held.Record != RecordMissing && held.Name() == protocol.NameOf(digest)
			replaces := held != nil && held.Record == RecordHeld

			if !here && (replaces || !full) {
				names = append(names, protocol.NameOf(digest))
			}
		}

		return nil
	})

	return names, err
}

// Changes are the results of a transaction on a stream.
type Changes struct {
	State   State
	Delta   Usage
	Owners  Owners // of the delta
	Effects []Effect
}

// An Effect is a change of one registration, to be repeated in memory.
type Effect struct {
	Digest  signed.Digest
	Held    *Entry           // as stored; nil if it was removed
	Renewed bool             // Held has the record that it had before
	Entry   *directory.Entry // of the record that came; nil if there is none to show
	LeftOut bool             // the stream has no room for the entry
	Refused error            // by the record gate
	Ended   int64            // deadline of the entry that was removed; 0 if there was none
}

// Missing reports whether the record of the entry is to be requested.
func (e *Effect) Missing() bool { return e.Held != nil && e.Held.Record == RecordMissing }

// change runs f on a stream in one transaction, and returns what it changed.
func (s *Store) change(id StreamID, f func(*Tx) ([]Effect, error)) (done Changes, err error) {
	done.State, err = s.Change(id, func(t *Tx) (err error) {
		done.Effects, err = f(t)
		done.Delta, done.Owners = t.Delta, t.Owners

		return err
	})

	return done, err
}

// A NewPage is a verified page to apply, with the values by which it is judged.
type NewPage struct {
	*signed.Page
	Text       string
	Key        directory.Hash // thumbprint of the key that signed it
	VerifiedAt time.Time
	Records    map[directory.RID]Arrival // that were fetched for it
	Room       Room
	Now        time.Time // by the origin's clock
	Saved      Origin    // is written with the page; Now is its floor
}

// ApplyPage writes a page in one transaction. The page continues the stream. It is applied whatever the quotas
// are: they leave out records and entries.
func (s *Store) ApplyPage(id StreamID, page *NewPage) (Changes, error) {
	return s.change(id, func(t *Tx) (effects []Effect, err error) {
		for _, digest := range page.Digests {
			effect, err := t.applyDigest(page, digest)
			if err != nil {
				return nil, err
			}

			effects = append(effects, effect)
		}

		t.State.Watermark = page.To
		if err := t.AddPage(page.Page, page.Text); err != nil {
			return nil, err
		}

		// The floor is the time by which the page's digests were freed.
		page.Saved.Floor = page.Now.UnixMilli()

		return effects, t.SaveOrigin(id.Origin, page.Saved)
	})
}

// applyDigest writes one digest. The entry that it leaves in force is shown once
// its record is here (federation.md, "Records on demand").
func (t *Tx) applyDigest(page *NewPage, digest signed.Digest) (Effect, error) {
	old, err := t.Get(digest.RID)
	if err != nil {
		return Effect{}, err
	}

	freed := !digest.Live() || Freed(digest.Deadline, page.Now)

	// Such an entry comes with its next renewal, or with the next pull from the beginning, if there is room.
	if old == nil && !freed && page.Room.NoEntry(t.State.Live) {
		return Effect{Digest: digest, LeftOut: true}, nil
	}

	// Most such digests are known: a gossiped page repeats those of pages before it. An origin may still announce
	// an entry that this node has freed. Any other digest changes a part of the stream that a second node has
	// confirmed. That part is confirmed again (rule S14).
	known := freed
	if old != nil {
		known = digest.Live() && Agree(old.Digest(digest.RID), digest)
	}

	if digest.Revision <= t.Confirmed() && !known {
		if err := t.Confirm(digest.Revision - 1); err != nil {
			return Effect{}, err
		}
	}

	effect := Effect{Digest: digest}

	if freed {
		if old != nil {
			effect.Ended = old.Deadline
		}

		return effect, t.Remove(digest.RID, old)
	}

	effect.Held = &Entry{Revision: digest.Revision, H: digest.H, M: digest.M, Deadline: digest.Deadline,
		Lifetime: digest.Lifetime, Key: page.Key, CheckedAt: page.VerifiedAt.UnixMilli()}
	held, record := effect.Held, page.Records[digest.RID]

	switch {
	case old != nil && old.Name() == held.Name() && (old.Record != RecordMissing || record.Stored == nil):
		// A renewal names the same record, so the record and its state stay. Only a missing record is taken from
		// the page.
		held.At, held.From = old.At, old.From
		held.Record, held.Place, held.Format = old.Record, old.Place, old.Format
		held.Owner, held.Size = old.Owner, old.Size
		effect.Renewed = true
	case record.Stored != nil && record.Asked == held.Name(): // else the page names its registration twice
		if err := t.keep(&effect, old, record, &page.Room); err != nil {
			return effect, err
		}
	case (old == nil || old.Record != RecordHeld) && page.Room.Full(t.Delta), page.Room.Missing(t.Delta) <= 0:
		// The record isn't requested, so that a peer can't make this node fetch records that it has to drop.
		// Even a full stream accepts one in place of another.
		held.Record = RecordOverQuota
	}

	return effect, t.Put(digest.RID, old, held)
}

// An Arrival is a record that came for an entry, as the record gate has opened it.
type Arrival struct {
	Asked  protocol.RecordName
	Stored StoredRecord
	From   spiffeid.TrustDomain
	At     time.Time
	Entry  *directory.Entry // nil if this node can't show the record
	Format Format           // of a record that only a later release can open
	Err    error            // why the gate refuses the record
}

// keep writes a record that arrived for an entry, and completes the entry. A
// refused record isn't requested again, because all holders have the same bytes by that
// name. A record that exceeds a quota isn't requested again until there is room. The record
// that it replaces counts as room.
func (t *Tx) keep(effect *Effect, old *Entry, record Arrival, room *Room) error {
	held := effect.Held
	held.At, held.From, held.Record = record.At.UnixMilli(), record.From.Name(), RecordHeld

	if record.Err != nil {
		held.Record = RecordRefused
		effect.Refused = record.Err

		return nil
	}

	// Both stay in the entry if its record doesn't fit: a reservation needs them to see when it does.
	held.Owner, held.Size = OwnerKeyOf(record.Entry), uint32(record.Stored.Size())
	if !t.hasRoom(room, old, held) {
		held.Record = RecordOverQuota
		return nil
	}

	held.Format = record.Format
	effect.Entry = record.Entry

	return t.PutRecord(held, record.Stored)
}

// hasRoom reports whether the quotas allow the record of held in place of old's. The owner
// and size of held are set; old may be nil.
func (t *Tx) hasRoom(room *Room, old, held *Entry) bool {
	added := Usage{Records: 1, Bytes: int64(held.Size)}

	ofOwner := added
	if old != nil && old.Record == RecordHeld {
		added = added.Plus(Usage{Records: -1, Bytes: -t.Size(old)})

		// The replaced record is room for its own owner only.
		if old.Owner == held.Owner {
			ofOwner = added
		}
	}

	return room.Fits(t.Delta, added) && room.OwnerFits(held.Owner, t.Owners, ofOwner)
}

// A Quota bounds records and bytes; 0 is no bound.
type Quota struct{ Records, Bytes uint64 }

// Fits reports whether used and added together are within the quota. A change that adds
// nothing always fits, because lowering a quota removes no record.
func (q Quota) Fits(used, added Usage) bool {
	room := func(limit uint64, used, added int64) bool {
		return limit == 0 || added <= 0 || used+added <= 0 || uint64(used+added) <= limit
	}

	return room(q.Records, used.Records, added.Records) && room(q.Bytes, used.Bytes, added.Bytes)
}

// A Room is what the quotas of an origin leave. A page is never refused for a quota, because a refused page
// would block all pages behind it. A record is counted on arrival, because its owner and size are unknown
// before. A record that exceeds a quota isn't kept; it is requested again when there is room.
//
// The other methods take the changes since.
type Room struct {
	All, Each   Quota     // of all records, and of those of each owner
	Used        Usage     // by the streams that count together
	Owners      [2]Owners // of these streams
	MostMissing int64     // records
	MostEntries uint64    // of the stream; 0 is no bound
}

// NoEntry reports whether a stream that has so many entries has room for no other.
func (r *Room) NoEntry(live uint64) bool { return r.MostEntries > 0 && live >= r.MostEntries }

// Full reports whether nothing can be added.
func (r *Room) Full(delta Usage) bool { return !r.Fits(delta, Usage{Records: 1, Bytes: 1}) }

// Missing returns how many more records may be missing. It is negative if there are more than allowed.
func (r *Room) Missing(delta Usage) int64 { return r.MostMissing - r.Used.Missing - delta.Missing }

// Fits reports whether there is room for added.
func (r *Room) Fits(delta, added Usage) bool { return r.All.Fits(r.Used.Plus(delta), added) }

// OwnerFits reports whether there is room for added in the share of one owner.
func (r *Room) OwnerFits(key OwnerKey, delta Owners, added Usage) bool {
	used := r.Owners[0][key].Plus(r.Owners[1][key]).Plus(delta[key])

	return r.Each.Fits(used.Usage(), added)
}

// changeEach runs f on the entries of registrations in one transaction; they are nil if the stream lacks them.
// f returns nil if it changes nothing.
func (s *Store) changeEach(id StreamID, rids iter.Seq[directory.RID],
	f func(t *Tx, rid directory.RID, held *Entry) (*Effect, error)) (Changes, error) {
	return s.change(id, func(t *Tx) (effects []Effect, err error) {
		for rid := range rids {
			held, err := t.Get(rid)
			if err != nil {
				return nil, err
			}

			switch effect, err := f(t, rid, held); {
			case err != nil:
				return nil, err
			case effect != nil:
				effects = append(effects, *effect)
			}
		}

		return effects, nil
	})
}

// KeepRecords writes the records of entries that still lack them.
func (s *Store) KeepRecords(id StreamID, records map[directory.RID]Arrival, room Room) (Changes, error) {
	return s.changeEach(id, maps.Keys(records), func(t *Tx, rid directory.RID, held *Entry) (*Effect, error) {
		record := records[rid]
		if held == nil || held.Record != RecordMissing || held.Name() != record.Asked {
			return nil, nil // another page changed it meanwhile
		}

		was, effect := *held, &Effect{Digest: held.Digest(rid), Held: held}
		if err := t.keep(effect, &was, record, &room); err != nil {
			return nil, err
		}

		return effect, t.Put(rid, &was, held)
	})
}

// RequestAgain marks records that exceeded a quota as missing.
func (s *Store) RequestAgain(id StreamID, rids []directory.RID) (Changes, error) {
	return s.changeEach(id, slices.Values(rids), func(t *Tx, rid directory.RID, held *Entry) (*Effect, error) {
		if held == nil || held.Record != RecordOverQuota {
			return nil, nil
		}

		was := *held
		held.Record = RecordMissing

		return &Effect{Digest: held.Digest(rid), Held: held}, t.Put(rid, &was, held)
	})
}

// RemoveAll removes entries with their records.
func (s *Store) RemoveAll(id StreamID, rids []directory.RID) (Changes, error) {
	return s.changeEach(id, slices.Values(rids), func(t *Tx, rid directory.RID, held *Entry) (*Effect, error) {
		return &Effect{Digest: signed.Digest{RID: rid}}, t.Remove(rid, held)
	})
}

// Freed reports whether an entry with that deadline is no longer kept (rule T4).
func Freed(deadline int64, now time.Time) bool {
	return !now.Before(time.Unix(deadline, 0).Add(directory.Skew))
}

// Agree reports whether two digests announce the same. Whether a live entry is new makes no difference.
func Agree(a, b signed.Digest) bool {
	if a.Live() && b.Live() {
		a.Op = b.Op
	}

	return a == b
}

// Change runs f on a stream and writes the stream's state, in one transaction. It creates
// the stream if it doesn't exist. It returns the new state.
func (s *Store) Change(id StreamID, f func(*Tx) error) (State, error) {
	var (
		after State
		moves []move
	)

	err := s.Update(func(tx *bbolt.Tx) error {
		t, err := s.openStream(tx, id)
		if err == nil && t == nil {
			t, err = s.createStream(tx, id)
		}

		if err != nil {
			return err
		}

		if err := f(t); err != nil {
			return err
		}

		after, moves = t.State, t.moves

		return t.Bucket.Put(keyState, Marshal(t.State))
	})
	if err == nil {
		// Only after the commit. A reader before that checks the name at the place, and misses at most a new
		// record.
		s.Places.note(id, moves)
	}

	return after, err
}

// Read runs f on a stream in a read transaction, if the stream exists.
func (s *Store) Read(id StreamID, f func(*Tx) error) error {
	return s.View(func(tx *bbolt.Tx) error {
		t, err := s.openStream(tx, id)
		if err != nil || t == nil {
			return err
		}

		return f(t)
	})
}

func (s *Store) openStream(tx *bbolt.Tx, id StreamID) (*Tx, error) {
	bucket := tx.Bucket(bucketStreams).Bucket(id.key())
	if bucket == nil {
		return nil, nil
	}

	t := &Tx{tx: tx, Owners: Owners{}, wiper: &s.wiper, Bucket: bucket, Entries: bucket.Bucket(bucketEntries),
		Records: bucket.Bucket(bucketRecords), due: bucket.Bucket(bucketDue)}
	if t.Entries == nil || t.Records == nil || t.due == nil {
		return nil, ErrStore
	}

	t.Entries.FillPercent, t.Records.FillPercent, t.due.FillPercent = packed, packed, packed
	if err := Unmarshal(bucket.Get(keyState), &t.State); err != nil || t.State.Chain > 1 || t.Chain() == nil {
		return nil, ErrStore
	}

	return t, nil
}

func (s *Store) createStream(tx *bbolt.Tx, id StreamID) (*Tx, error) {
	bucket, err := tx.Bucket(bucketStreams).CreateBucketIfNotExists(id.key())
	if err != nil {
		return nil, err
	}

	for _, name := range [][]byte{bucketEntries, bucketRecords, bucketDue, bucketChains[0]} {
		if _, err := bucket.CreateBucket(name); err != nil {
			return nil, err
		}
	}

	if err := bucket.Put(keyState, Marshal(State{})); err != nil {
		return nil, err
	}

	return s.openStream(tx, id)
}

// Has reports whether a stream has an entry.
func (t *Tx) Has(rid directory.RID) bool { return t.Entries.Get([]byte(rid.String())) != nil }

func (t *Tx) Get(rid directory.RID) (*Entry, error) {
	data := t.Entries.Get([]byte(rid.String()))
	if data == nil {
		return nil, nil
	}

	h := new(Entry)

	return h, Unmarshal(data, h)
}

// Put replaces old by held; old is nil or the result of Get. If their names differ, old's
// record is deleted with its disclosures.
func (t *Tx) Put(rid directory.RID, old, held *Entry) error {
	switch {
	case old == nil:
		t.State.Live++
		t.Delta.Count(held, 1)
	case old.Name() != held.Name():
		if err := t.DropRecord(old); err != nil {
			return err
		}
	}

	if old != nil {
		t.Delta.Count(old, -1)
		t.Delta.Count(held, 1)
	}

	if old != nil && old.Deadline != held.Deadline {
		if err := t.due.Delete(dueKey(old.Deadline, rid)); err != nil {
			return err
		}
	}

	if old == nil || old.Deadline != held.Deadline {
		if err := t.due.Put(dueKey(held.Deadline, rid), nil); err != nil {
			return err
		}
	}

	return t.Entries.Put([]byte(rid.String()), Marshal(held))
}

func (t *Tx) Remove(rid directory.RID, old *Entry) error {
	if old == nil {
		return nil
	}

	t.State.Live--
	t.Delta.Count(old, -1)

	return errors.Join(t.DropRecord(old), t.due.Delete(dueKey(old.Deadline, rid)),
		t.Entries.Delete([]byte(rid.String())))
}

// DropRecord deletes the record of an entry that holds it. A digest may name the
// record of another registration; the record gate refuses it there, and it is not
// that digest's to take away.
func (t *Tx) DropRecord(old *Entry) error {
	if old.Record != RecordHeld {
		return nil
	}

	t.wiper.wake()
	size := t.Size(old)
	t.Delta = t.Delta.Plus(Usage{Records: -1, Bytes: -size})
	t.Owners.Add(old.Owner, Share{-1, -size})
	t.moves = append(t.moves, move{old.H, old.Place, true})

	return t.Records.Delete(placeKey(old.Place))
}

// DueBefore returns up to limit registrations whose deadline is before a time in Unix
// seconds. It also returns the deadline of the next one, or 0.
func (t *Tx) DueBefore(deadline int64, limit int) (rids []directory.RID, next int64, err error) {
	c := t.due.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		x := int64(binary.BigEndian.Uint64(k))
		if x >= deadline || len(rids) == limit {
			return rids, x, nil
		}

		rid, err := directory.ParseRID(string(k[8:]))
		if err != nil {
			return nil, 0, ErrStore
		}

		rids = append(rids, rid)
	}

	return rids, 0, nil
}

// dueKey sorts by deadline. Deadlines before 1970 don't pass the gate.
func dueKey(deadline int64, rid directory.RID) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(deadline)), rid.String()...)
}

// Record returns the record that an entry holds; nil if it holds none.
func (t *Tx) Record(held *Entry) (*Record, error) {
	if held.Record != RecordHeld {
		return nil, nil
	}

	r, err := t.recordAt(held.Place, held.Name())
	if r == nil && err == nil {
		err = ErrStore
	}

	return r, err
}

// recordAt returns the record at a place, if it is that of the name.
func (t *Tx) recordAt(place uint64, n protocol.RecordName) (*Record, error) {
	data, ok := bytes.CutPrefix(t.Records.Get(placeKey(place)), n.Bytes())
	if !ok {
		return nil, nil
	}

	r := new(Record)

	return r, Unmarshal(data, r)
}

// PutRecord writes a record of the name of held, which is to hold it, behind all others.
func (t *Tx) PutRecord(held *Entry, record StoredRecord) (err error) {
	if held.Place, err = t.Records.NextSequence(); err != nil {
		return err
	}

	t.Delta = t.Delta.Plus(Usage{Records: 1, Bytes: int64(record.Size())})
	t.Owners.Add(held.Owner, Share{1, int64(record.Size())})
	t.moves = append(t.moves, move{held.H, held.Place, false})

	return t.Rewrite(held, record)
}

// Rewrite replaces the record that held has by another of the same name.
func (t *Tx) Rewrite(held *Entry, record StoredRecord) error {
	return t.Records.Put(placeKey(held.Place), record)
}

// Size returns the bytes of the record that an entry holds.
func (t *Tx) Size(held *Entry) int64 {
	if held == nil || held.Record != RecordHeld {
		return 0
	}

	return int64(StoredRecord(t.Records.Get(placeKey(held.Place))).Size())
}

func placeKey(place uint64) []byte { return binary.BigEndian.AppendUint64(nil, place) }

func (t *Tx) Chain() *bbolt.Bucket { return t.Bucket.Bucket(bucketChains[t.State.Chain]) }

// ChainMost bounds the digests of a chain beyond twice the live entries. Without the bound,
// an origin that prevents the renewal of the chain could fill the disk despite its quotas.
const ChainMost = 2 << 20

// AddPage appends an applied page to the chain. A chain that is too long is emptied first;
// it then serves only receivers that have reached the same position.
func (t *Tx) AddPage(page *signed.Page, text string) error {
	if t.State.Listed > 2*t.State.Live+ChainMost {
		name := bucketChains[t.State.Chain]
		if err := t.Bucket.DeleteBucket(name); err != nil {
			return err
		}

		if _, err := t.Bucket.CreateBucket(name); err != nil {
			return err
		}

		t.State.Listed = 0
	}

	t.State.Listed += Weight(page)

	return putPage(t.Chain(), page, text)
}

// Weight is the number of digests that a page counts for in a chain, at least 1.
func Weight(p *signed.Page) uint64 { return uint64(max(1, len(p.Digests))) }

// putPage adds a link to a chain; the bucket's sequence counts them.
func putPage(chain *bbolt.Bucket, page *signed.Page, text string) error {
	if _, err := chain.NextSequence(); err != nil {
		return err
	}

	return chain.Put(binary.BigEndian.AppendUint64(nil, page.To),
		Marshal(Page{From: page.From, Listed: Weight(page), JWS: text}))
}

// SaveOrigin writes the state of an origin in the transaction of one of its streams.
func (t *Tx) SaveOrigin(td spiffeid.TrustDomain, st Origin) error {
	return putOrigin(t.tx, td, st)
}

func putOrigin(tx *bbolt.Tx, td spiffeid.TrustDomain, st Origin) error {
	return tx.Bucket(bucketOrigins).Put([]byte(td.Name()), Marshal(st))
}

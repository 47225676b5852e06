package federation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	disk "github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

// A streamID names one stream.
type streamID struct {
	origin spiffeid.TrustDomain
	aud    directory.Audience
	epoch  uint64
}

// key sorts an origin's streams together and their epochs ascending.
func (id streamID) key() []byte {
	b := append([]byte(id.origin.Name()), 0)
	b = append(append(b, id.aud.String()...), 0)
	return binary.BigEndian.AppendUint64(b, id.epoch)
}

func parseStreamKey(b []byte) (streamID, error) {
	parts := bytes.SplitN(b, []byte{0}, 3)
	if len(parts) != 3 || len(parts[2]) != 8 {
		return streamID{}, errStore
	}
	td, err := spiffeid.TrustDomainFromString(string(parts[0]))
	if err != nil {
		return streamID{}, errStore
	}
	aud, err := directory.ParseAudience(string(parts[1]))
	if err != nil {
		return streamID{}, errStore
	}
	return streamID{td, aud, binary.BigEndian.Uint64(parts[2])}, nil
}

// streamState is how far a stream has come here. It is written by the
// transaction that moves it.
type streamState struct {
	_         struct{} `cbor:",toarray"`
	Watermark uint64
	Live      uint64 // entries held, the pending ones too
	Listed    uint64 // digests in the chain
	Chain     byte   // which of the two buckets holds the chain
}

// What this node has of an entry's record.
const (
	recordWanted  = 0 // pending: neither shown nor passed on
	recordHeld    = 1
	recordRefused = 2 // it is what the origin signed, and not what this node can show
	recordOver    = 3 // there was no room for it
)

// held is what a stream says of one registration.
type held struct {
	_         struct{} `cbor:",toarray"`
	Revision  uint64
	H, M      directory.Hash
	Deadline  int64
	Lifetime  uint32
	Key       directory.Hash // thumbprint of the key that signed the page
	CheckedAt int64          // when that page was verified; Unix milliseconds
	At        int64          // when the record came, as CheckedAt
	From      string         // the domain whose node handed it over
	Record    uint8
	Place     uint64 // where the record is, if it is held
	Format    format // of a record that is held and was not opened
	// Owner and Size are of the record, if it came: there may have been no room for it.
	Owner ownerKey
	Size  uint32
}

func (h *held) name() protocol.RecordName { return protocol.RecordName{H: h.H, M: h.M} }

// storedRecord is a record as it came. Payload and disclosures are what the page
// vouches for; the signature is verified before it is shown to anyone as proof.
type storedRecord struct {
	_           struct{} `cbor:",toarray"`
	Header      string   // of the JWS, base64url
	Payload     []byte
	Signature   string
	Disclosures []string
}

// is reports whether r is what has that name, by its hashes.
func (r *storedRecord) is(n protocol.RecordName) bool {
	return directory.HashOf(r.Payload) == n.H && directory.HashDisclosures(r.Disclosures) == n.M
}

func (r *storedRecord) record() directory.Record {
	return directory.Record{JWS: protocol.JoinJWS(r.Header, r.Payload, r.Signature), Disclosures: r.Disclosures}
}

// storedPage is one link of a chain.
type storedPage struct {
	_      struct{} `cbor:",toarray"`
	From   uint64
	Listed uint64
	JWS    string
}

// originState is what is known of an origin beside its streams.
type originState struct {
	_     struct{} `cbor:",toarray"`
	Epoch uint64   // of the stream that is shown
	Floor int64    // rule T4: the origin's time at the last write; Unix milliseconds
	Head  string   // the newest verified head
	Keys  string   // the adopted key document
}

var (
	bucketMeta    = []byte("meta")
	bucketOrigins = []byte("origins")
	bucketStreams = []byte("streams")
	bucketPast    = []byte("past")    // origin -> key documents before the newest, the newest first
	bucketEntries = []byte("entries") // rid -> held
	bucketRecords = []byte("records") // place -> h m storedRecord
	bucketDue     = []byte("due")     // deadline rid -> nothing
	bucketChains  = [2][]byte{[]byte("chain0"), []byte("chain1")}
	keyState      = []byte("state")
	keyAnew       = []byte("anew") // stream.anew, where it is not 0
	keyVersion    = []byte("version")
	storeVersion  = []byte("1")

	errStore = errors.New("federation: the store is damaged: remove federation.db, and this node pulls everything again")
)

// A store keeps what other domains told, in one bbolt file.
type store struct {
	db      *bbolt.DB
	disk    *disk.Disk   // through which all of its operations go
	readers sync.RWMutex // held for reading by whoever reads
	wiper   wiper
	places  places
}

// view runs f on what is committed. f must not begin another view or change.
func (s *store) view(f func(*bbolt.Tx) error) error {
	return s.disk.Read(func() error { return s.committed(f) })
}

func (s *store) committed(f func(*bbolt.Tx) error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()

	return s.db.View(f)
}

// update runs f in a transaction that is written as a whole or not at all.
func (s *store) update(f func(*bbolt.Tx) error) error {
	return s.disk.Change(func() error { return s.db.Update(f) })
}

// readTime bounds how long a request waits for what only the disk has.
const readTime = 2 * time.Second

// readFor is store.read for requests: when the disk does not answer in time, it
// returns an error instead. f may go on then, and shares no variable with its caller.
func readFor[T any](s *store, id streamID, f func(*streamTx) (T, error)) (T, error) {
	return disk.Within(s.disk, readTime, func() (found T, err error) {
		err = s.committed(func(tx *bbolt.Tx) error {
			t, err := s.openStream(tx, id)
			if err != nil || t == nil {
				return err
			}

			found, err = f(t)
			return err
		})

		return found, err
	})
}

func openStore(dir string, noSync bool, gate *disk.Disk) (*store, error) {
	path := filepath.Join(dir, "federation.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: 5 * time.Second, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoSync: noSync, NoGrowSync: noSync,
	})
	if err != nil {
		return nil, fmt.Errorf("federation: open %s: %w", path, err)
	}
	err = db.Update(begin)
	s := &store{db: db, disk: gate, places: newPlaces()}
	if err == nil {
		s.wiper, err = openWiper(path)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// begin makes what is not there yet.
func begin(tx *bbolt.Tx) error {
	for _, b := range [][]byte{bucketMeta, bucketOrigins, bucketStreams, bucketPast} {
		if _, err := tx.CreateBucketIfNotExists(b); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if v := meta.Get(keyVersion); v != nil && !bytes.Equal(v, storeVersion) {
		return fmt.Errorf("federation: federation.db has version %s and this release reads %s", v, storeVersion)
	}
	return meta.Put(keyVersion, storeVersion)
}

// A streamTx is one stream within a transaction.
type streamTx struct {
	wiper                         *wiper
	bucket, entries, records, due *bbolt.Bucket
	state                         streamState
	delta                         usage  // what the transaction changed so far
	owners                        owners // and of whom
	moves                         []move // and where records came and went
}

// packed is how much of a page of the file is filled where what comes is mostly behind
// all that is there; bbolt would leave half of it empty.
const packed = .9

func (t *streamTx) chain() *bbolt.Bucket { return t.bucket.Bucket(bucketChains[t.state.Chain]) }

func (s *store) openStream(tx *bbolt.Tx, id streamID) (*streamTx, error) {
	b := tx.Bucket(bucketStreams).Bucket(id.key())
	if b == nil {
		return nil, nil
	}
	t := &streamTx{owners: owners{}, wiper: &s.wiper, bucket: b, entries: b.Bucket(bucketEntries), records: b.Bucket(bucketRecords), due: b.Bucket(bucketDue)}
	if t.entries == nil || t.records == nil || t.due == nil {
		return nil, errStore
	}
	t.entries.FillPercent, t.records.FillPercent, t.due.FillPercent = packed, packed, packed
	if err := unmarshal(b.Get(keyState), &t.state); err != nil || t.state.Chain > 1 || t.chain() == nil {
		return nil, errStore
	}
	return t, nil
}

func (s *store) createStream(tx *bbolt.Tx, id streamID) (*streamTx, error) {
	b, err := tx.Bucket(bucketStreams).CreateBucketIfNotExists(id.key())
	if err != nil {
		return nil, err
	}
	for _, name := range [][]byte{bucketEntries, bucketRecords, bucketDue, bucketChains[0]} {
		if _, err := b.CreateBucket(name); err != nil {
			return nil, err
		}
	}
	if err := b.Put(keyState, marshal(streamState{})); err != nil {
		return nil, err
	}
	return s.openStream(tx, id)
}

// change runs f on a stream, which is made where it isn't there yet, and writes
// its state with what f did, or nothing of it.
func (s *store) change(id streamID, f func(*bbolt.Tx, *streamTx) error) (streamState, error) {
	var after streamState
	var moves []move
	err := s.update(func(tx *bbolt.Tx) error {
		t, err := s.openStream(tx, id)
		if err == nil && t == nil {
			t, err = s.createStream(tx, id)
		}
		if err != nil {
			return err
		}
		if err := f(tx, t); err != nil {
			return err
		}
		after, moves = t.state, t.moves
		return t.bucket.Put(keyState, marshal(t.state))
	})
	if err == nil {
		s.places.note(id, moves)
	}
	return after, err
}

// read runs f on a stream, unless there is none.
func (s *store) read(id streamID, f func(*streamTx) error) error {
	return s.view(func(tx *bbolt.Tx) error {
		t, err := s.openStream(tx, id)
		if err != nil || t == nil {
			return err
		}
		return f(t)
	})
}

func (t *streamTx) get(rid directory.RID) (*held, error) {
	b := t.entries.Get([]byte(rid.String()))
	if b == nil {
		return nil, nil
	}
	h := new(held)
	return h, unmarshal(b, h)
}

// put writes h in the place of old, which is nil or what get returned; where
// they have other names, old's record is deleted with its disclosures.
func (t *streamTx) put(rid directory.RID, old, h *held) error {
	switch {
	case old == nil:
		t.state.Live++
		t.delta.count(h, 1)
	case old.name() != h.name():
		if err := t.dropRecord(old); err != nil {
			return err
		}
	}
	if old != nil {
		t.delta.count(old, -1)
		t.delta.count(h, 1)
	}
	if old != nil && old.Deadline != h.Deadline {
		if err := t.due.Delete(dueKey(old.Deadline, rid)); err != nil {
			return err
		}
	}
	if old == nil || old.Deadline != h.Deadline {
		if err := t.due.Put(dueKey(h.Deadline, rid), nil); err != nil {
			return err
		}
	}
	return t.entries.Put([]byte(rid.String()), marshal(h))
}

func (t *streamTx) remove(rid directory.RID, old *held) error {
	if old == nil {
		return nil
	}
	t.state.Live--
	t.delta.count(old, -1)
	return errors.Join(t.dropRecord(old), t.due.Delete(dueKey(old.Deadline, rid)), t.entries.Delete([]byte(rid.String())))
}

// dropRecord deletes the record of an entry that holds it. A digest may name the
// record of another registration; the record gate refuses it there, and it is not
// that digest's to take away.
func (t *streamTx) dropRecord(old *held) error {
	if old.Record != recordHeld {
		return nil
	}
	nudge(t.wiper.dirty)
	size := t.size(old)
	t.delta = t.delta.plus(usage{records: -1, bytes: -size})
	t.owners.add(old.Owner, owned{-1, -size})
	t.moves = append(t.moves, move{old.H, old.Place, true})
	return t.records.Delete(placeKey(old.Place))
}

// lacking returns those of the names of live digests whose record isn't here.
func (t *streamTx) lacking(ds []directory.Digest, names []protocol.RecordName) ([]protocol.RecordName, error) {
	here := map[protocol.RecordName]bool{}
	for _, d := range ds {
		h, err := t.get(d.RID)
		if err != nil {
			return nil, err
		}
		if h != nil && h.Record != recordWanted {
			here[h.name()] = true
		}
	}
	return slices.DeleteFunc(names, func(n protocol.RecordName) bool { return here[n] }), nil
}

// dueBefore returns up to limit registrations whose deadline lies before limit
// seconds, and the deadline of the next one, 0 where there is none.
func (t *streamTx) dueBefore(deadline int64, limit int) (rids []directory.RID, next int64, err error) {
	c := t.due.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		x := int64(binary.BigEndian.Uint64(k))
		if x >= deadline || len(rids) == limit {
			return rids, x, nil
		}
		rid, err := directory.ParseRID(string(k[8:]))
		if err != nil {
			return nil, 0, errStore
		}
		rids = append(rids, rid)
	}
	return rids, 0, nil
}

// dueKey sorts by deadline. Deadlines before 1970 don't pass the gate.
func dueKey(deadline int64, rid directory.RID) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(deadline)), rid.String()...)
}

// origins returns what is known of every origin.
func (s *store) origins() (map[spiffeid.TrustDomain]originState, error) {
	all := map[spiffeid.TrustDomain]originState{}
	err := s.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketOrigins).ForEach(func(k, v []byte) error {
			td, err := spiffeid.TrustDomainFromString(string(k))
			if err != nil {
				return errStore
			}
			var st originState
			err = unmarshal(v, &st)
			all[td] = st
			return err
		})
	})
	return all, err
}

// streams returns the streams of an origin as they are on disk, by epoch ascending.
func (s *store) streams(origin spiffeid.TrustDomain) (all []*stream, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		prefix := append([]byte(origin.Name()), 0)
		c := tx.Bucket(bucketStreams).Cursor()
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			id, err := parseStreamKey(k)
			if err != nil {
				return err
			}
			t, err := s.openStream(tx, id)
			if err != nil {
				return err
			}
			st := newStream(id)
			st.state, st.anew = t.state, t.anew()
			all = append(all, st)
		}
		return nil
	})
	return all, err
}

func putOrigin(tx *bbolt.Tx, td spiffeid.TrustDomain, st originState) error {
	return tx.Bucket(bucketOrigins).Put([]byte(td.Name()), marshal(st))
}

func (s *store) setOrigin(td spiffeid.TrustDomain, st originState) error {
	return s.update(func(tx *bbolt.Tx) error { return putOrigin(tx, td, st) })
}

// dropStreams removes what an origin announced to an audience.
func (s *store) dropStreams(origin spiffeid.TrustDomain, aud directory.Audience) error {
	streams, err := s.streams(origin)
	for _, st := range streams {
		if st.id.aud == aud {
			err = errors.Join(err, s.dropStream(st.id))
		}
	}
	return err
}

// forget removes all that an origin ever sent.
func (s *store) forget(origin spiffeid.TrustDomain) error {
	streams, err := s.streams(origin)
	if err != nil {
		return err
	}
	defer nudge(s.wiper.dirty)
	var ids []streamID
	err = s.update(func(tx *bbolt.Tx) error {
		for _, st := range streams {
			if err := tx.Bucket(bucketStreams).DeleteBucket(st.id.key()); err != nil {
				return err
			}
			ids = append(ids, st.id)
		}
		return errors.Join(tx.Bucket(bucketPast).Delete([]byte(origin.Name())), tx.Bucket(bucketOrigins).Delete([]byte(origin.Name())))
	})
	if err == nil {
		s.places.forget(ids...)
	}
	return err
}

var encoding = func() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return m
}()

func marshal(v any) []byte {
	b, err := encoding.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("federation: encode %T: %v", v, err)) // our own types, all of which encode
	}
	return b
}

func unmarshal(b []byte, v any) error {
	if err := cbor.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w (%s)", errStore, strings.TrimPrefix(err.Error(), "cbor: "))
	}
	return nil
}

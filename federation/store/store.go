package store

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/wipe"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

var (
	BucketMeta    = []byte("meta")
	bucketOrigins = []byte("origins")
	bucketStreams = []byte("streams")
	bucketPast    = []byte("past")    // origin -> key documents before the newest, the newest first
	bucketEntries = []byte("entries") // rid -> held
	bucketRecords = []byte("records") // place -> h m storedRecord
	bucketDue     = []byte("due")     // deadline rid -> nothing
	bucketChains  = [2][]byte{[]byte("chain0"), []byte("chain1")}
	keyState      = []byte("state")
	keyRepull     = []byte("anew") // SavedStream.RepullSince, if it isn't 0
	keyConfirmed  = []byte("confirmed")
	KeyVersion    = []byte("version")
	keyDialect    = []byte("dialect") // by which the records were opened
	storeVersion  = []byte("1")

	ErrStore = errors.New("federation: the store is damaged; remove federation.db, and this node pulls " +
		"everything again")
)

// A Store keeps the pages and records of other domains in one bbolt file.
type Store struct {
	db      *bbolt.DB
	Disk    *Disk        // runs all operations on the file
	readers sync.RWMutex // held for reading during each read transaction
	wiper   wiper
	Places  places
}

// awaitReaders waits for the read transactions that are under way.
func (s *Store) awaitReaders() {
	s.readers.Lock()
	s.readers.Unlock() //lint:ignore SA2001 only waits
}

// File returns the bbolt file itself, for tests that measure it or break it.
func (s *Store) File() *bbolt.DB { return s.db }

func Open(dir string, noSync bool, gate *Disk) (*Store, error) {
	path := filepath.Join(dir, "federation.db")

	// Only Close writes the list of free pages, see saveFreePages.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: 5 * time.Second, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoSync: noSync,
		NoGrowSync: noSync,
	})
	if err != nil {
		return nil, fmt.Errorf("federation: open %s: %w", path, err)
	}

	err = db.Update(begin)

	s := &Store{db: db, Disk: gate, Places: newPlaces(), wiper: wiper{dirty: make(chan struct{}, 1)}}
	if err == nil {
		s.wiper.file, err = wipe.Open(db, s.awaitReaders)
	}

	if err != nil {
		return nil, errors.Join(err, db.Close())
	}

	return s, nil
}

// Close closes the file, once. It returns when all transactions have ended.
func (s *Store) Close() error {
	err := s.saveFreePages()
	if errors.Is(err, ErrStalled) {
		err = nil // the next start finds them by itself
	}

	return errors.Join(err, s.wiper.file.Close(), s.db.Close())
}

// saveFreePages writes the list of free pages, without which a start reads the whole file to
// find them. Other changes don't write it, because it grows with each deletion.
func (s *Store) saveFreePages() error {
	return s.Update(func(*bbolt.Tx) error {
		s.db.NoFreelistSync = false // until the file is closed; guarded by the transaction
		return nil
	})
}

// begin creates the buckets of a new file, and checks the version of an existing one.
func begin(tx *bbolt.Tx) error {
	for _, b := range [][]byte{BucketMeta, bucketOrigins, bucketStreams, bucketPast} {
		if _, err := tx.CreateBucketIfNotExists(b); err != nil {
			return err
		}
	}

	meta := tx.Bucket(BucketMeta)
	if v := meta.Get(KeyVersion); v != nil && !bytes.Equal(v, storeVersion) {
		return fmt.Errorf("federation: federation.db has version %s and this release reads %s", v, storeVersion)
	}

	return meta.Put(KeyVersion, storeVersion)
}

// Origins returns the stored state of every origin.
func (s *Store) Origins() (map[spiffeid.TrustDomain]Origin, error) {
	all := map[spiffeid.TrustDomain]Origin{}
	err := s.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketOrigins).ForEach(func(k, data []byte) error {
			td, err := spiffeid.TrustDomainFromString(string(k))
			if err != nil {
				return ErrStore
			}

			var st Origin
			err = Unmarshal(data, &st)
			all[td] = st

			return err
		})
	})

	return all, err
}

// A SavedStream is a stream as it is on disk.
type SavedStream struct {
	Id          StreamID
	State       State
	RepullSince uint64 // as given to BeginRepull; 0 if no repeated pull is under way
}

// Streams returns the streams of an origin as they are on disk, by epoch ascending.
func (s *Store) Streams(origin spiffeid.TrustDomain) (all []SavedStream, err error) {
	err = s.View(func(tx *bbolt.Tx) error {
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

			all = append(all, SavedStream{Id: id, State: t.State, RepullSince: t.repullSince()})
		}

		return nil
	})

	return all, err
}

func (s *Store) SaveOrigin(td spiffeid.TrustDomain, st Origin) error {
	return s.Update(func(tx *bbolt.Tx) error { return putOrigin(tx, td, st) })
}

// Swap deletes the stream of the old epoch in favour of the fresh one, and writes the state
// of the origin in the same transaction.
func (s *Store) Swap(old, fresh StreamID, saved Origin) error {
	err := s.Update(func(tx *bbolt.Tx) error {
		if err := deleteStream(tx, old); err != nil {
			return err
		}

		// An epoch in which nothing was announced is remembered too.
		if t, err := s.openStream(tx, fresh); t == nil && err == nil {
			if _, err := s.createStream(tx, fresh); err != nil {
				return err
			}
		}

		return putOrigin(tx, fresh.Origin, saved)
	})
	if err != nil {
		return err
	}

	s.Places.forget(old)
	s.wiper.wake()

	return nil
}

// SaveKeys writes the key documents of an origin before the newest, and its state.
func (s *Store) SaveKeys(td spiffeid.TrustDomain, past []string, st Origin) error {
	return s.Update(func(tx *bbolt.Tx) error {
		if err := tx.Bucket(bucketPast).Put([]byte(td.Name()), Marshal(past)); err != nil {
			return err
		}

		return putOrigin(tx, td, st)
	})
}

// PastKeys returns the key documents that SaveKeys wrote.
func (s *Store) PastKeys(td spiffeid.TrustDomain) (texts []string, err error) {
	err = s.View(func(tx *bbolt.Tx) error {
		data := tx.Bucket(bucketPast).Get([]byte(td.Name()))
		if data == nil {
			return nil
		}

		return Unmarshal(data, &texts)
	})

	return texts, err
}

// Dialect returns the dialect by which the records were opened, "" for none.
func (s *Store) Dialect() (opened string, err error) {
	err = s.View(func(tx *bbolt.Tx) error {
		opened = string(tx.Bucket(BucketMeta).Get(keyDialect))
		return nil
	})

	return opened, err
}

func (s *Store) SetDialect(opened string) error {
	return s.Update(func(tx *bbolt.Tx) error { return tx.Bucket(BucketMeta).Put(keyDialect, []byte(opened)) })
}

// DropStreams removes the streams of an origin to an audience, with their records.
func (s *Store) DropStreams(origin spiffeid.TrustDomain, aud directory.Audience) error {
	streams, err := s.Streams(origin)
	for _, st := range streams {
		if st.Id.Audience == aud {
			// A stream that can't be removed doesn't keep the others.
			err = errors.Join(err, s.DropStream(st.Id))
		}
	}

	return err
}

// Forget removes all streams, key documents and state of an origin.
func (s *Store) Forget(origin spiffeid.TrustDomain) error {
	streams, err := s.Streams(origin)
	if err != nil {
		return err
	}
	defer s.wiper.wake()

	var ids []StreamID

	err = s.Update(func(tx *bbolt.Tx) error {
		for _, st := range streams {
			if err := tx.Bucket(bucketStreams).DeleteBucket(st.Id.key()); err != nil {
				return err
			}

			ids = append(ids, st.Id)
		}

		return errors.Join(tx.Bucket(bucketPast).Delete([]byte(origin.Name())),
			tx.Bucket(bucketOrigins).Delete([]byte(origin.Name())))
	})
	if err == nil {
		s.Places.forget(ids...)
	}

	return err
}

// DropStream removes a stream, which may not be on disk yet.
func (s *Store) DropStream(id StreamID) error {
	defer s.wiper.wake()

	err := s.Update(func(tx *bbolt.Tx) error { return deleteStream(tx, id) })
	if err == nil {
		s.Places.forget(id)
	}

	return err
}

func deleteStream(tx *bbolt.Tx, id StreamID) error {
	streams := tx.Bucket(bucketStreams)
	if streams.Bucket(id.key()) == nil {
		return nil
	}

	return streams.DeleteBucket(id.key())
}

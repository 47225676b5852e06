package store

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Records are stored in order of arrival, so that a first sync writes each page of the file
// once. With names as keys, which are hashes, each record would go to a random page, and
// rewrite the other records on it. Memory maps names to places, in about twenty bytes each.

// places maps the names of all streams' records to their places.
type places struct {
	seed maphash.Seed

	mu      sync.Mutex
	streams map[StreamID]*streamPlaces
}

// streamPlaces are the places of one stream.
type streamPlaces struct {
	spots  table.Pool[spot]
	byName table.Table
}

// A spot is a place where a record whose name has that hash may be.
type spot struct{ hash, place uint64 }

// A move is a record that came to a place, or that is gone from there.
type move struct {
	h     directory.Hash
	place uint64
	gone  bool
}

func newPlaces() places {
	return places{seed: maphash.MakeSeed(), streams: map[StreamID]*streamPlaces{}}
}

// note applies the moves of a transaction.
func (p *places) note(id StreamID, moves []move) {
	if len(moves) == 0 {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	places := p.streams[id]
	if places == nil {
		places = &streamPlaces{}
		p.streams[id] = places
	}

	for _, m := range moves {
		places.note(maphash.Bytes(p.seed, m.h[:]), m)
	}
}

func (s *streamPlaces) note(hash uint64, move move) {
	n, known := s.byName.Find(hash, func(n uint32) bool { return *s.spots.At(n) == spot{hash, move.place} })
	switch {
	case known && move.gone:
		s.byName.Remove(n, s.hashOf)
		s.spots.Give(n)
	case !known && !move.gone:
		n = s.spots.Take()
		*s.spots.At(n) = spot{hash, move.place}
		s.byName.Insert(n, s.hashOf)
	}
}

func (s *streamPlaces) hashOf(n uint32) uint64 { return s.spots.At(n).hash }

// Of returns where a stream's record of that name may be: usually one place or none.
func (p *places) Of(id StreamID, name protocol.RecordName) (at []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()

	places := p.streams[id]
	if places == nil {
		return nil
	}

	hash := maphash.Bytes(p.seed, name.H[:])
	places.byName.Find(hash, func(n uint32) bool {
		if is := places.spots.At(n); is.hash == hash {
			at = append(at, is.place)
		}

		return false
	})

	return at
}

// forget drops the places of streams that are no longer on disk.
func (p *places) forget(ids ...StreamID) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, id := range ids {
		delete(p.streams, id)
	}
}

// Find returns the records of the first of some names, read in one transaction; nil for those that
// a stream doesn't have. It stops behind the record with which they have most bytes together, so it
// returns one at least. The error is ErrStalled, ErrStore or one of the file.
func (s *Store) Find(id StreamID, names []protocol.RecordName, most int) ([]*Record, error) {
	at := make([][]uint64, len(names))
	none := true

	for i, name := range names {
		at[i] = s.Places.Of(id, name)
		none = none && len(at[i]) == 0
	}

	if none {
		return make([]*Record, len(names)), nil
	}

	names = slices.Clone(names) // the read may go on after it is waited for

	found, err := ReadFor(s, id, func(t *Tx) ([]*Record, error) {
		records := make([]*Record, 0, len(names))

		for i, size := 0, 0; i < len(names) && size < most; i++ {
			record, bytes, err := t.recordAtOne(at[i], names[i])
			if err != nil {
				return nil, err
			}

			records, size = append(records, record), size+bytes
		}

		return records, nil
	})
	if found == nil && err == nil { // the stream is gone
		found = make([]*Record, len(names))
	}

	return found, err
}

// recordAtOne returns the record of a name that is at one of some places, and its bytes on disk; nil
// if none of them has it.
func (t *Tx) recordAtOne(places []uint64, name protocol.RecordName) (*Record, int, error) {
	for _, place := range places {
		if record, err := t.recordAt(place, name); record != nil || err != nil {
			return record, len(t.Records.Get(placeKey(place))), err
		}
	}

	return nil, 0, nil
}

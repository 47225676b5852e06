package federation

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Records lie on disk in the order in which they came: a first sync writes each page of
// the file once. By their names, which are hashes, each would have one of its own, to be
// read and written anew with what it has of others. Who asks for a record by its name is
// told by memory where it is, which takes some twenty bytes for each.

// places knows where the records of all streams are.
type places struct {
	seed maphash.Seed

	mu      sync.Mutex
	streams map[streamID]*streamPlaces
}

// streamPlaces are those of one stream.
type streamPlaces struct {
	spots  table.Pool[spot]
	byName table.Table
}

// A spot says where what is named by such a hash may be.
type spot struct{ hash, place uint64 }

// A move is a record that came to a place, or that is gone from there.
type move struct {
	h     directory.Hash
	place uint64
	gone  bool
}

func newPlaces() places {
	return places{seed: maphash.MakeSeed(), streams: map[streamID]*streamPlaces{}}
}

// note notes what a transaction moved.
func (p *places) note(id streamID, moves []move) {
	if len(moves) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streams[id]
	if s == nil {
		s = &streamPlaces{}
		p.streams[id] = s
	}
	for _, m := range moves {
		s.note(maphash.Bytes(p.seed, m.h[:]), m)
	}
}

func (s *streamPlaces) note(hash uint64, m move) {
	n, known := s.byName.Find(hash, func(n uint32) bool { return *s.spots.At(n) == spot{hash, m.place} })
	switch {
	case known && m.gone:
		s.byName.Remove(n, s.hashOf)
		s.spots.Give(n)
	case !known && !m.gone:
		n = s.spots.Take()
		*s.spots.At(n) = spot{hash, m.place}
		s.byName.Insert(n, s.hashOf)
	}
}

func (s *streamPlaces) hashOf(n uint32) uint64 { return s.spots.At(n).hash }

// of returns where a stream's record of that name may be: as a rule one place or none.
func (p *places) of(id streamID, n protocol.RecordName) (at []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streams[id]
	if s == nil {
		return nil
	}
	hash := maphash.Bytes(p.seed, n.H[:])
	s.byName.Find(hash, func(n uint32) bool {
		if is := s.spots.At(n); is.hash == hash {
			at = append(at, is.place)
		}
		return false
	})
	return at
}

// forget lets go of streams that are no longer on disk.
func (p *places) forget(ids ...streamID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		delete(p.streams, id)
	}
}

// record returns the record that an entry holds; nil where it holds none.
func (t *streamTx) record(h *held) (*storedRecord, error) {
	if h.Record != recordHeld {
		return nil, nil
	}
	r, err := t.recordAt(h.Place, h.name())
	if r == nil && err == nil {
		err = errStore
	}
	return r, err
}

// recordAt returns the record at a place, if it is that of the name.
func (t *streamTx) recordAt(place uint64, n protocol.RecordName) (*storedRecord, error) {
	b, ok := bytes.CutPrefix(t.records.Get(placeKey(place)), n.Bytes())
	if !ok {
		return nil, nil
	}
	r := new(storedRecord)
	return r, unmarshal(b, r)
}

// putRecord writes a record that h is to hold behind all others.
func (t *streamTx) putRecord(h *held, b []byte) (err error) {
	if h.Place, err = t.records.NextSequence(); err != nil {
		return err
	}
	t.delta = t.delta.plus(usage{records: 1, bytes: int64(len(b))})
	t.owners.add(h.Owner, owned{1, int64(len(b))})
	t.moves = append(t.moves, move{h.H, h.Place, false})
	return t.rewrite(h, b)
}

// rewrite puts b in the place of the record that h holds.
func (t *streamTx) rewrite(h *held, b []byte) error {
	return t.records.Put(placeKey(h.Place), append(h.name().Bytes(), b...))
}

// size is that of the record which an entry holds.
func (t *streamTx) size(h *held) int64 {
	if h == nil || h.Record != recordHeld {
		return 0
	}
	return int64(max(0, len(t.records.Get(placeKey(h.Place)))-len(h.name().Bytes())))
}

func placeKey(place uint64) []byte { return binary.BigEndian.AppendUint64(nil, place) }

package api

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
)

// Bounds on what is kept of items that were shown lately.
const (
	itemsKept   = 1 << 12 // a power of two
	maxItemKept = 8 << 10 // bytes of one and its document, which may be no more for long
)

// items keeps items of lookups as they were written last: the agents that many ask
// for are unpacked and written once and not in every answer. There is one place for
// an item, by its rid, and no lock. It is safe for concurrent use.
type items [itemsKept]atomic.Pointer[item]

// An item is what was made of an entry, and of what goes into it besides. An entry
// never changes: a refresh makes another one, and of that another item.
type item struct {
	entry               *directory.Entry
	look                look
	service, visibility string // the origin's, and that which is by default
	probe               directory.Probe
	disputed            bool
	written
}

// written is an item's JSON, which nobody may change, and its hash.
type written struct {
	text []byte
	hash uint64
}

// item returns what appendItem appends, as it is kept where that is still right.
// What is redacted may be for one reader alone, and isn't kept.
func (s *Server) item(e *directory.Entry, l look) written {
	service, visibility, disputed := s.service(e), "", s.disputed(e)
	if l.registrant {
		visibility = s.cfg.Policy.DefaultVisibility().String()
	}
	probe, _ := s.probed(e)
	at := &s.items[placeOf(e, l)]
	if i := at.Load(); i != nil && i.entry == e && i.look == l && i.service == service && i.visibility == visibility &&
		i.disputed == disputed && i.probe.Equal(probe) {
		return i.written
	}
	text := s.appendItem(make([]byte, 0, itemSize), e, l)
	w := written{text, xxhash.Sum64(text)}
	if len(text)+len(e.Document.Bytes()) <= maxItemKept && !e.Redacted {
		w.text = slices.Clip(append([]byte(nil), text...))
		at.Store(&item{e, l, service, visibility, probe, disputed, w})
	}
	return w
}

// appendItems appends a JSON array of the items of es to b, in room for it and for
// a little more. It returns a hash of what it appended as well. An entry that can't be
// written is left out.
func (s *Server) appendItems(b []byte, es []*directory.Entry, l look) ([]byte, uint64) {
	all, size := make([]written, 0, len(es)), 0
	hashes := make([]byte, 0, 8*len(es))

	for _, e := range es {
		var w written
		if !s.cfg.Panics.Do(contain.Listing, func() { w = s.item(e, l) }) {
			continue
		}

		all = append(all, w)
		size += len(w.text) + len(",")
		hashes = binary.LittleEndian.AppendUint64(hashes, w.hash)
	}

	b = slices.Grow(b, size+len("[]}\n"))
	return list(b, all, func(b []byte, w written) []byte { return append(b, w.text...) }), xxhash.Sum64(hashes)
}

// placeOf is where an item is kept.
func placeOf(e *directory.Entry, l look) uint64 {
	var room [16]byte
	place := xxhash.Sum64(e.RID.AppendBinary(room[:0])) << 2
	if l.registrant {
		place |= 1
	}
	if l.brief {
		place |= 2
	}
	return place % itemsKept
}

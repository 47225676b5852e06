package view

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// ItemSize is the capacity to begin an item with, in bytes: most items fit.
const ItemSize = 1200

// Bounds of the item cache.
const (
	cachedItems   = 1 << 12 // a power of two
	maxCachedItem = 8 << 10 // bytes of an item and its document
)

// An itemCache keeps the last JSON of lookup items, so that agents that many callers ask
// for are not unpacked and written for each answer. An item has one place, by its rid,
// and no lock. It is safe for concurrent use.
type itemCache [cachedItems]atomic.Pointer[cachedItem]

// A cachedItem is the JSON of an entry with everything else that it depends on. An entry
// never changes: a refresh makes another entry.
type cachedItem struct {
	entry      *directory.Entry
	opt        Options
	service    string // the origin's public URL
	visibility string // the default one
	probe      directory.Probe
	disputed   bool
	logged     directory.Inclusion

	written
}

// written is an item's JSON, which is never changed, and its hash.
type written struct {
	text []byte
	hash uint64
}

// item returns the JSON of AppendItem, from the cache if that is still right. A redacted or
// confusable entry may be for one reader alone, so it isn't cached.
func (r *Renderer) item(entry *directory.Entry, opt Options) written {
	service := r.service(entry)
	disputed := r.disputed(entry)
	probe, _ := r.probed(entry)
	logged, _ := r.logged(entry)

	visibility := ""
	if opt.Registrant {
		visibility = r.cfg.DefaultVisibility().String()
	}

	// Everything that the JSON depends on is compared, because an item has no deadline in the cache.
	place := &r.items[placeOf(entry, opt)]
	if i := place.Load(); i != nil && i.entry == entry && i.opt == opt && i.service == service &&
		i.visibility == visibility && i.disputed == disputed && i.logged == logged && i.probe.Equal(probe) {
		return i.written
	}

	text := r.AppendItem(make([]byte, 0, ItemSize), entry, opt)

	w := written{text, xxhash.Sum64(text)}
	if len(text)+len(entry.Document.Bytes()) <= maxCachedItem && !entry.Redacted && !entry.Confusable {
		w.text = slices.Clip(append([]byte(nil), text...))
		place.Store(&cachedItem{entry, opt, service, visibility, probe, disputed, logged, w})
	}

	return w
}

// AppendItems appends a JSON array of items to b, with room for a few bytes more. It
// returns a hash of them too. An entry that can't be shown is left out.
func (r *Renderer) AppendItems(data []byte, entries []*directory.Entry, opt Options) ([]byte, uint64) {
	all := make([]written, 0, len(entries))
	size := 0
	hashes := make([]byte, 0, 8*len(entries))

	for _, e := range entries {
		var w written

		// A panic on an entry's foreign bytes costs the list that entry alone.
		if !r.cfg.Panics.Do(contain.Listing, func() { w = r.item(e, opt) }) {
			continue
		}

		all = append(all, w)
		size += len(w.text) + len(",")
		hashes = binary.LittleEndian.AppendUint64(hashes, w.hash)
	}

	data = slices.Grow(data, size+len("[]}\n"))
	data = strictjson.AppendList(data, all, func(b []byte, w written) []byte { return append(b, w.text...) })

	return data, xxhash.Sum64(hashes)
}

// placeOf is the place of an item in the cache.
func placeOf(e *directory.Entry, opt Options) uint64 {
	var rid [16]byte

	place := xxhash.Sum64(e.RID.AppendBinary(rid[:0])) << 2
	if opt.Registrant {
		place |= 1
	}

	if opt.Brief {
		place |= 2
	}

	return place % cachedItems
}

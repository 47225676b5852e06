package api

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on what is kept of items that were shown lately.
const (
	itemsKept   = 1 << 12 // a power of two
	maxItemKept = 4 << 10 // bytes of one
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
	text                []byte
}

// appendKept is appendItem, from what is kept where that is still right. What is
// redacted may be for one reader alone, so it isn't kept.
func (s *Server) appendKept(b []byte, e *directory.Entry, l look) []byte {
	service, visibility := s.service(e), ""
	if l.registrant {
		visibility = s.cfg.Policy.DefaultVisibility().String()
	}
	at := &s.items[placeOf(e, l)]
	if i := at.Load(); i != nil && i.entry == e && i.look == l && i.service == service && i.visibility == visibility {
		return append(b, i.text...)
	}
	from := len(b)
	b = s.appendItem(b, e, l)
	if n := len(b) - from; n <= maxItemKept && !e.Redacted {
		at.Store(&item{e, l, service, visibility, append(make([]byte, 0, n), b[from:]...)})
	}
	return b
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

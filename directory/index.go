package directory

import "iter"

// An Index holds one origin's registrations and finds them by what a lookup
// asks for. It is safe for concurrent use; entries are never modified.
type Index struct {
	Clock Clock // the origin's time (rule T4)
}

// NewIndex returns an empty index.
func NewIndex() *Index { panic("x") }

// Put adds e, or puts it in the place of the entry of the same rid.
func (x *Index) Put(e *Entry) { panic("x") }

// Delete removes the entry of that rid, if any.
func (x *Index) Delete(rid RID) { panic("x") }

// Get returns the entry of that rid, alive or not.
func (x *Index) Get(rid RID) (*Entry, bool) { panic("x") }

// Named returns the entries of that agent name, alive or not: at most one in
// the own domain's index.
func (x *Index) Named(agent string) []*Entry { panic("x") }

// Len returns the number of entries, alive or not.
func (x *Index) Len() int { panic("x") }

// All yields every entry, alive or not, in no order.
func (x *Index) All() iter.Seq[*Entry] { panic("x") }

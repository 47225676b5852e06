package index

import (
	"hash/maphash"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// An entryTable numbers an index's entries. Postings hold the numbers in place of pointers,
// which the garbage collector would have to follow.
type entryTable struct {
	rows  table.Pool[row]
	byRID table.Table // the number of a rid's row
	seed  maphash.Seed
}

// A row holds the newest entry of a rid. Sorted orders are of rows, so a refresh, which
// changes no order, replaces one pointer.
type row struct {
	key   sortKey
	entry *directory.Entry
	mask  termMask
}

func newEntryTable() entryTable { return entryTable{seed: maphash.MakeSeed()} }

// find returns the row of a rid and its number, or nil.
func (t *entryTable) find(rid directory.RID) (*row, uint32) {
	n, ok := t.byRID.Find(t.hash(rid), func(n uint32) bool { return t.rows.At(n).key.rid == rid })
	if !ok {
		return nil, 0
	}

	return t.rows.At(n), n
}

func (t *entryTable) hash(rid directory.RID) uint64 {
	var b [directory.RIDBinary]byte
	return maphash.Bytes(t.seed, rid.AppendBinary(b[:0]))
}

func (t *entryTable) hashRow(n uint32) uint64 { return t.hash(t.rows.At(n).key.rid) }

// add makes an empty row for a rid that has none.
func (t *entryTable) add(k sortKey) (*row, uint32) {
	n := t.rows.Take()
	row := t.rows.At(n)

	// The table hashes the key of the row, so the key is set before the insertion.
	row.key = k
	t.byRID.Insert(n, t.hashRow)

	return row, n
}

// remove frees a row that is in no order any more.
func (t *entryTable) remove(n uint32) {
	t.byRID.Remove(n, t.hashRow)
	t.rows.Give(n)
}

// before returns a predicate: whether a row's key is before k.
func (t *entryTable) before(k sortKey) func(uint32) bool {
	return func(n uint32) bool { return t.rows.At(n).key.compare(k) < 0 }
}

// upTo returns a predicate: whether a row's key is before k or equal to it.
func (t *entryTable) upTo(k sortKey) func(uint32) bool {
	return func(n uint32) bool { return t.rows.At(n).key.compare(k) <= 0 }
}

// nameBefore returns a predicate: whether a row's agent name is before a name. Rows of that
// very name are decided by within.
func (t *entryTable) nameBefore(agent string, within func(uint32) bool) func(uint32) bool {
	return func(n uint32) bool {
		c := strings.Compare(t.rows.At(n).entry.Agent, agent)
		return c < 0 || c == 0 && within(n)
	}
}

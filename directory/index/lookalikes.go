package index

import (
	"hash/maphash"
	"slices"
	"sort"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/names"
)

// maxLookalikes bounds the earlier registrations that are compared with one.
const maxLookalikes = 64

// lookalikes are the rows of an index by hashes of the skeletons of their names (UTS 39).
// Most names look like no other, so there is one row for each hash, and a list for those that
// several rows have. Rows of one hash may yet look different: a reader compares them.
type lookalikes struct {
	seed   maphash.Seed
	single map[uint32]uint32   // the row of a hash that one row has
	groups map[uint32][]uint32 // the rows of a hash that several have, in the index's order
}

func newLookalikes() lookalikes {
	return lookalikes{seed: maphash.MakeSeed(), single: map[uint32]uint32{}, groups: map[uint32][]uint32{}}
}

func (l *lookalikes) hash(name string) uint32 {
	var room [64]byte
	return uint32(maphash.Bytes(l.seed, names.AppendSkeleton(room[:0], name)))
}

// insert adds a row of a name. before says whether another row is before it.
func (l *lookalikes) insert(n uint32, name string, before func(uint32) bool) {
	hash := l.hash(name)

	group := l.groups[hash]
	if group == nil {
		other, ok := l.single[hash]
		if !ok {
			l.single[hash] = n
			return
		}

		delete(l.single, hash)

		group = []uint32{other}
	}

	at := sort.Search(len(group), func(i int) bool { return !before(group[i]) })
	l.groups[hash] = slices.Insert(group, at, n)
}

// remove is the reverse of insert.
func (l *lookalikes) remove(n uint32, name string) {
	hash := l.hash(name)

	group := l.groups[hash]
	if group == nil {
		delete(l.single, hash)
		return
	}

	group = slices.DeleteFunc(group, func(other uint32) bool { return other == n })
	if len(group) > 1 {
		l.groups[hash] = group
		return
	}

	delete(l.groups, hash)
	l.single[hash] = group[0]
}

// earlierLookalikes returns the first entries of other names that look like an entry's and
// that are before it in the index's order, alive or not; at most maxLookalikes.
func (x *Index) earlierLookalikes(entry *directory.Entry) (found []*directory.Entry) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	if len(x.alike.groups) == 0 {
		return nil // and no skeleton is made
	}

	key := x.sortKeyOf(entry)

	// A hash of a single row has no other name to compare, so only groups are looked at.
	for _, n := range x.alike.groups[x.alike.hash(entry.Agent)] {
		row := x.entries.rows.At(n)
		if row.key.compare(key) >= 0 || len(found) == maxLookalikes {
			break
		}

		if names.Alike(row.entry.Agent, entry.Agent) {
			found = append(found, row.entry)
		}
	}

	return found
}

// IsConfusable reports whether an entry's name looks like the one of an earlier registration
// of its domain that is alive and that the reader sees. A hidden name has no influence.
func (v *View) IsConfusable(entry *directory.Entry, sees func(*directory.Entry) bool) bool {
	index, ok := v.indexOf(entry.Origin)
	if !ok {
		return false
	}

	found := index.earlierLookalikes(entry)
	if len(found) == 0 {
		return false
	}

	now := index.Clock.Now().UnixMilli()

	return slices.ContainsFunc(found, func(earlier *directory.Entry) bool {
		return earlier.AliveAt(now) && sees(earlier)
	})
}

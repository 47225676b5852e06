package consensus

import (
	"hash/maphash"
	"iter"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/table"
)

// A registry holds the domain's registrations and finds each by its rid, its
// agent name and its statement's hash, no two of which are the same.
type registry struct {
	all         table.Pool[*registration]
	seed        maphash.Seed
	byRID       table.Table
	byName      table.Table
	byStatement table.Table
}

func newRegistry() registry { return registry{seed: maphash.MakeSeed()} }

func (r *registry) hashRID(rid directory.RID) uint64 {
	return maphash.Bytes(r.seed, rid.AppendBinary(make([]byte, 0, directory.RIDBinary)))
}

func (r *registry) ridOf(n uint32) uint64       { return r.hashRID((*r.all.At(n)).entry.RID) }
func (r *registry) nameOf(n uint32) uint64      { return maphash.String(r.seed, (*r.all.At(n)).entry.Agent) }
func (r *registry) statementOf(n uint32) uint64 { return maphash.Bytes(r.seed, (*r.all.At(n)).h[:]) }

func (r *registry) number(rid directory.RID) (uint32, bool) {
	return r.byRID.Find(r.hashRID(rid), func(n uint32) bool { return (*r.all.At(n)).entry.RID == rid })
}

// at returns the registration of a number that was found; nil where none was.
func (r *registry) at(n uint32, found bool) *registration {
	if !found {
		return nil
	}
	return *r.all.At(n)
}

// get returns the registration of that rid; nil where there is none, as the next
// two.
func (r *registry) get(rid directory.RID) *registration { return r.at(r.number(rid)) }

// named returns the registration of that agent name.
func (r *registry) named(agent string) *registration {
	return r.at(r.byName.Find(maphash.String(r.seed, agent), func(n uint32) bool { return (*r.all.At(n)).entry.Agent == agent }))
}

// stated returns the registration whose statement has that hash.
func (r *registry) stated(h directory.Hash) *registration {
	return r.at(r.byStatement.Find(maphash.Bytes(r.seed, h[:]), func(n uint32) bool { return (*r.all.At(n)).h == h }))
}

// put adds reg, or puts it in the place of the one of the same rid.
func (r *registry) put(reg *registration) {
	n, had := r.number(reg.entry.RID)
	if !had {
		n = r.all.Take()
		*r.all.At(n) = reg
		r.byRID.Insert(n, r.ridOf)
	} else if old := *r.all.At(n); old.h == reg.h && old.entry.Agent == reg.entry.Agent { // a refresh
		*r.all.At(n) = reg
		return
	} else {
		r.byName.Remove(n, r.nameOf)
		r.byStatement.Remove(n, r.statementOf)
		*r.all.At(n) = reg
	}
	r.byName.Insert(n, r.nameOf)
	r.byStatement.Insert(n, r.statementOf)
}

// remove takes out the registration of that rid, which is there.
func (r *registry) remove(rid directory.RID) {
	n, _ := r.number(rid)
	r.byRID.Remove(n, r.ridOf)
	r.byName.Remove(n, r.nameOf)
	r.byStatement.Remove(n, r.statementOf)
	r.all.Give(n)
}

func (r *registry) len() int { return r.byRID.Len() }

// each yields all, in no order that others share. One that is yielded may be
// removed.
func (r *registry) each() iter.Seq[*registration] {
	return func(yield func(*registration) bool) {
		for _, reg := range r.all.All() {
			if *reg != nil && !yield(*reg) {
				return
			}
		}
	}
}

package state

import (
	"hash/maphash"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// A registry holds the domain's registrations and finds each by its rid, its
// agent name and its statement's hash, no two of which are the same.
type registry struct {
	ridTable[*Registration]
	byName      table.Table
	byStatement table.Table
}

func newRegistry() registry { return registry{ridTable: newRIDTable[*Registration]()} }

func (r *registry) nameOf(n uint32) uint64      { return maphash.String(r.seed, (*r.all.At(n)).entry.Agent) }
func (r *registry) statementOf(n uint32) uint64 { return maphash.Bytes(r.seed, (*r.all.At(n)).h[:]) }

// reserve makes room in an empty registry.
func (r *registry) reserve(n int) {
	r.ridTable.reserve(n)
	r.byName.Reserve(n)
	r.byStatement.Reserve(n)
}

// at returns the registration of a number that was found; nil where none was.
func (r *registry) at(n uint32, found bool) *Registration {
	if !found {
		return nil
	}

	return *r.all.At(n)
}

// named returns the registration of that agent name as stated, or nil.
func (r *registry) named(agent string) *Registration {
	return r.at(r.byName.Find(maphash.String(r.seed, agent), func(n uint32) bool {
		return (*r.all.At(n)).entry.Agent == agent
	}))
}

// stated returns the registration whose statement has that hash.
func (r *registry) stated(h directory.Hash) *Registration {
	return r.at(r.byStatement.Find(maphash.Bytes(r.seed, h[:]), func(n uint32) bool { return (*r.all.At(n)).h == h }))
}

// put adds reg, or puts it in the place of the one of the same rid.
func (r *registry) put(reg *Registration) {
	n, had := r.number(reg.entry.RID)
	if !had {
		n = r.add(reg)
	} else if old := *r.all.At(n); old.h == reg.h && old.entry.Agent == reg.entry.Agent { // a refresh
		*r.all.Edit(n) = reg
		return
	} else {
		r.byName.Remove(n, r.nameOf)
		r.byStatement.Remove(n, r.statementOf)
		*r.all.Edit(n) = reg
	}

	r.byName.Insert(n, r.nameOf)
	r.byStatement.Insert(n, r.statementOf)
}

// remove takes out the registration of that rid, which is there.
func (r *registry) remove(rid directory.RID) {
	n, _ := r.number(rid)
	r.byName.Remove(n, r.nameOf)
	r.byStatement.Remove(n, r.statementOf)
	r.drop(n)
}

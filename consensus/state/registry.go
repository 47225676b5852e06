package state

import (
	"hash/maphash"
	"iter"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// A registry holds the domain's registrations and finds each by its rid, its
// agent name and its statement's hash, no two of which are the same.
type registry struct {
	ridTable[*Registration]
	byName      table.Table
	byStatement table.Table
	unconfirmed int // registrations that were restored and not written since
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

	r.unconfirmed += countUnconfirmed(reg)
	if had {
		r.unconfirmed -= countUnconfirmed(*r.all.At(n))
	}

	if !had {
		n = r.add(reg)
	} else if old := *r.all.At(n); old.h == reg.h && old.entry.Agent == reg.entry.Agent {
		// A refresh changes neither the name nor the statement, so the tables of both stay.
		*r.all.Edit(n) = reg
		return
	} else {
		// The tables look at the former registration, so they lose it before it is replaced.
		r.byName.Remove(n, r.nameOf)
		r.byStatement.Remove(n, r.statementOf)
		*r.all.Edit(n) = reg
	}

	r.byName.Insert(n, r.nameOf)
	r.byStatement.Insert(n, r.statementOf)
}

// countUnconfirmed returns 1 for an unconfirmed registration, else 0.
func countUnconfirmed(reg *Registration) int {
	if reg.entry.Unconfirmed {
		return 1
	}

	return 0
}

// remove takes out the registration of that rid, which is there.
func (r *registry) remove(rid directory.RID) {
	n, _ := r.number(rid)
	r.unconfirmed -= countUnconfirmed(*r.all.At(n))
	r.byName.Remove(n, r.nameOf)
	r.byStatement.Remove(n, r.statementOf)

	// The tables look at the registration, so it goes last.
	r.drop(n)
}

// A ridTable holds one value for each rid. Values are replaced and never modified, so a
// snapshot shares the table instead of copying it while others wait.
type ridTable[T identified] struct {
	all   table.Pool[T]
	byRID table.Table
	seed  maphash.Seed
}

// identified is a value of a ridTable; the zero value means absent.
type identified interface {
	comparable
	id() directory.RID
}

func newRIDTable[T identified]() ridTable[T] { return ridTable[T]{seed: maphash.MakeSeed()} }

func (r *ridTable[T]) hash(rid directory.RID) uint64 {
	return maphash.Bytes(r.seed, rid.AppendBinary(make([]byte, 0, directory.RIDBinary)))
}

func (r *ridTable[T]) hashOf(n uint32) uint64 { return r.hash((*r.all.At(n)).id()) }

func (r *ridTable[T]) number(rid directory.RID) (uint32, bool) {
	return r.byRID.Find(r.hash(rid), func(n uint32) bool { return (*r.all.At(n)).id() == rid })
}

// reserve makes room in an empty roll.
func (r *ridTable[T]) reserve(n int) { r.byRID.Reserve(n) }

// get returns the value of a rid, or the zero value.
func (r *ridTable[T]) get(rid directory.RID) (v T) {
	if n, ok := r.number(rid); ok {
		v = *r.all.At(n)
	}

	return v
}

// add adds a value with a new rid and returns its number.
func (r *ridTable[T]) add(v T) uint32 {
	n := r.all.Take()
	*r.all.Edit(n) = v
	r.byRID.Insert(n, r.hashOf)

	return n
}

// set adds v, or replaces the value with its rid.
func (r *ridTable[T]) set(v T) { r.replace(v.id(), func(T) T { return v }) }

// replace replaces the value of a rid by a function of it, or of the zero value if the rid is
// absent.
func (r *ridTable[T]) replace(rid directory.RID, by func(T) T) {
	n, had := r.number(rid)
	if !had {
		var none T
		r.add(by(none))

		return
	}

	*r.all.Edit(n) = by(*r.all.At(n))
}

// drop removes the value with that number.
func (r *ridTable[T]) drop(n uint32) {
	r.byRID.Remove(n, r.hashOf)
	r.all.Give(n)
}

// remove removes the value of a rid, if there is one.
func (r *ridTable[T]) remove(rid directory.RID) {
	if n, had := r.number(rid); had {
		r.drop(n)
	}
}

func (r *ridTable[T]) len() int { return r.byRID.Len() }

// each yields all, in no order that others share. One that is yielded may be
// removed.
func (r *ridTable[T]) each() iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range present(&r.all.Paged) {
			if !yield(*v) {
				return
			}
		}
	}
}

// listed are the values of a ridTable at some moment.
type listed[T comparable] struct {
	all table.Paged[T]
	n   int
}

// share returns the present values, for others to read while the table changes.
func (r *ridTable[T]) share() listed[T] { return listed[T]{r.all.Share(), r.len()} }

// sorted returns all of it in an order, each where it is.
func (s *listed[T]) sorted(compare func(a, b *T) int) []*T {
	list := slices.AppendSeq(make([]*T, 0, s.n), present(&s.all))
	slices.SortFunc(list, compare)

	return list
}

// present yields the elements of a pool that are in use.
func present[T comparable](all *table.Paged[T]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		var none T
		for _, v := range all.All() {
			if *v != none && !yield(v) {
				return
			}
		}
	}
}

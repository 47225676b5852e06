package state

import "github.com/roster-mesh/roster/directory"

// How long, and how many, expired registrations' owners are remembered
// (AD-058). Constants, since the configurations of two members may differ.
const (
	formerSeconds = directory.MaxLifetime
	formerCount   = 100_000
)

// formers remembers who owned what has expired, the oldest first.
type formers struct {
	owners map[directory.RID]former
	queue  []former
}

type former struct {
	RID   directory.RID      `cbor:"1,keyasint"`
	Owner directory.Identity `cbor:"2,keyasint"`
	At    int64              `cbor:"3,keyasint"` // Unix seconds of committed time
}

// add adds one that a snapshot has.
func (f *formers) add(o former) {
	f.owners[o.RID] = o
	f.queue = append(f.queue, o)
}

// remember adds one, and forgets at most two, so that no single expiry pays for
// many.
func (f *formers) remember(o former) {
	f.add(o)
	for range 2 {
		if oldest := f.queue[0]; len(f.queue) > formerCount || oldest.At+formerSeconds <= o.At {
			delete(f.owners, oldest.RID)
			f.queue = f.queue[1:]
		}
	}
}

// owner returns who owned the registration that expired under this rid.
func (f *formers) owner(rid directory.RID, now int64) (directory.Identity, bool) {
	o, ok := f.owners[rid]
	return o.Owner, ok && o.At+formerSeconds > now
}

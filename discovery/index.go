package discovery

import (
	"hash/maphash"
	"math"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// quantum is a weight as postings have it.
func quantum(weight float64) byte { return byte(max(1, math.Round(weight*postings.MaxWeight))) }

// A slot is one registration in the index.
type slot struct {
	rid    directory.RID
	class  uint32
	owner  uint32 // a hash
	origin uint16
	flags  content.Flags
	// lengths are those of the fields, so that candidates need not be read whole.
	lengths [content.FieldCount]content.LengthCode
}

// A class is registrations that the same callers see.
type class struct {
	className
	count int
	// round counts the classes that have used this number, so that a decision about an earlier
	// class is not applied to this one.
	round uint32
}

// A className is the name of a class in a generation of Config.Class.
type className struct {
	generation uint64
	name       string
}

// changesKept is how many changed slots are remembered for readers' sets.
const changesKept = 1 << 14

// A termIndex is the index of all registrations. It is guarded by the finder's lock.
type termIndex struct {
	terms   postings.Terms
	slots   table.Pool[slot]
	byKey   table.Table
	seed    maphash.Seed
	count   int
	alive   postings.Bitset // slots with a registration
	graves  deadSlots
	origins []spiffeid.TrustDomain
	numbers map[spiffeid.TrustDomain]uint16
	classes table.Pool[class]
	byClass map[className]uint32

	left    uint64       // how often something was left out: there was no room for it
	space   *vectorSpace // nil without a source of vectors
	cfg     *Config
	version uint64 // counts changes of slots
	changes [changesKept]uint32
	flagged map[uint32]content.Flags // slots with flags
}

func newIndex(cfg *Config, seed maphash.Seed, wake chan struct{}) *termIndex {
	return &termIndex{terms: postings.NewTerms(postings.MaxTerms), space: newSpace(cfg.Embedder, wake), cfg: cfg,
		seed: seed, numbers: map[spiffeid.TrustDomain]uint16{}, byClass: map[className]uint32{},
		flagged: map[uint32]content.Flags{}}
}

// classOf returns an entry's class. The generation is read first: a name that is
// younger than it counts as one of a generation that is over.
func (x *termIndex) classOf(e *directory.Entry) className {
	generation := x.cfg.Generation()
	return className{generation, x.cfg.Class(e)}
}

// contents is the indexed contents of a registration.
type contents struct {
	content.Content
	labels []uint64 // hashes, sorted, each once
	text   uint64   // the hash of the text to embed, or 0
}

// read fills c from an entry with that projection.
func (c *contents) read(reader *content.Reader, entry *directory.Entry, projection *directory.Projection) {
	c.Content.Read(reader, projection)

	c.labels = c.labels[:0]
	for _, l := range content.Labels(reader, entry, projection) {
		c.labels = append(c.labels, maphash.String(reader.Seed, l)|1)
	}

	slices.Sort(c.labels)
	c.labels = slices.Compact(c.labels)
}

// weight returns the weight in postings of a term with such counts.
func (c *contents) weight(n content.Counts) byte {
	w, _ := c.Weigh(n)
	return quantum(w)
}

func (x *termIndex) hashKey(origin uint16, rid directory.RID) uint64 {
	return maphash.Comparable(x.seed, struct {
		origin uint16
		rid    directory.RID
	}{origin, rid})
}

// hashOwner returns the hash by which slots identify an owner.
func (x *termIndex) hashOwner(id directory.Identity) uint32 {
	return uint32(maphash.Comparable(x.seed, id))
}

func (x *termIndex) hashSlot(n uint32) uint64 {
	s := x.slots.At(n)
	return x.hashKey(s.origin, s.rid)
}

// find returns the slot of a registration.
func (x *termIndex) find(origin spiffeid.TrustDomain, rid directory.RID) (uint32, bool) {
	o, ok := x.numbers[origin]
	if !ok {
		return 0, false
	}

	return x.byKey.Find(x.hashKey(o, rid), func(n uint32) bool {
		s := x.slots.At(n)
		return s.origin == o && s.rid == rid
	})
}

// number returns the number of an origin.
func (x *termIndex) number(origin spiffeid.TrustDomain) (uint16, bool) {
	o, ok := x.numbers[origin]
	if !ok {
		if len(x.origins) > math.MaxUint16 {
			return 0, false
		}

		o = uint16(len(x.origins))
		x.origins = append(x.origins, origin)
		x.numbers[origin] = o
	}

	return o, true
}

// put indexes a registration with these contents. A registration that is already indexed moves
// to another slot, and its old slot is removed as any other is. If the index is full, the
// registration is left out.
func (x *termIndex) put(entry *directory.Entry, now *contents) {
	class := x.classOf(entry)
	old, had := x.find(entry.Origin, entry.RID)

	origin, ok := x.number(entry.Origin)

	// Dead slots count, because they are not free before a sweep has ended.
	if !ok || !had && x.count >= maxRegistrations || x.count+x.buried() >= postings.MaxSlots {
		x.left++
		return
	}

	// The class is joined before the old slot leaves it, because an empty class ends and loses
	// its decisions.
	n, in := x.slots.Take(), x.join(class)
	if had {
		x.space.move(old, n)
		x.kill(old)
	}

	*x.slots.At(n) = slot{rid: entry.RID, origin: origin, class: in, owner: x.hashOwner(entry.Owner), flags: now.Flags,
		lengths: now.Codes}
	x.byKey.Insert(n, x.hashSlot)
	x.alive.Set(n)
	x.count++
	x.left += x.terms.SetAll(now.Hashes, n, func(i int) byte { return now.weight(now.Counts[i]) })

	x.left += x.terms.SetAll(now.labels, n, func(int) byte { return 1 })
	if now.Flags != 0 {
		x.flagged[n] = now.Flags
	}

	x.space.note(n, now.text)
	x.changed(n)
}

// renew notes that a registration has changed, but nothing that it is found by.
func (x *termIndex) renew(entry *directory.Entry) {
	if n, ok := x.find(entry.Origin, entry.RID); ok {
		x.reclass(n, x.classOf(entry))
		x.slots.At(n).owner = x.hashOwner(entry.Owner)
		x.changed(n)
	}
}

// reclass puts a slot into a class, and reports whether it was in another.
func (x *termIndex) reclass(n uint32, name className) bool {
	slot := x.slots.At(n)
	if x.classes.At(slot.class).className == name {
		return false
	}

	x.leave(slot.class)
	slot.class = x.join(name)

	return true
}

// remove forgets a registration.
func (x *termIndex) remove(origin spiffeid.TrustDomain, rid directory.RID) {
	if n, ok := x.find(origin, rid); ok {
		x.kill(n)
	}
}

func (x *termIndex) changed(n uint32) {
	x.changes[x.version%changesKept] = n
	x.version++
}

// join returns the number of a class for one more registration.
func (x *termIndex) join(name className) uint32 {
	n, ok := x.byClass[name]
	if !ok {
		n = x.classes.Take()
		*x.classes.At(n) = class{className: name, round: uint32(x.version) + 1}
		x.byClass[name] = n
	}

	x.classes.At(n).count++

	return n
}

func (x *termIndex) leave(n uint32) {
	c := x.classes.At(n)
	if c.count--; c.count == 0 {
		delete(x.byClass, c.className)
		x.classes.Give(n)
	}
}

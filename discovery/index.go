package discovery

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// BM25F (discovery.md 2). The lengths that fields are compared with are fixed,
// and not averages of what is here: so a weight is known when a registration is
// read, and what a caller may not see cannot move it.
var (
	fieldWeights = [fieldCount]float64{3, 1.5, 1, 1}
	fieldB       = [fieldCount]float64{.3, .6, .3, .6}
	fieldPivots  = [fieldCount]float64{3, 10, 4, 20} // words
)

const saturation = 1.5 // k1

// lengths are those of a registration's fields in words, made longer by gates.
type lengths [fieldCount]float64

// weigh returns a term's weight in a registration, within 0 and 1, and what each
// field has added to it.
func (l *lengths) weigh(c counted) (float64, [fieldCount]float64) {
	var w float64
	var by [fieldCount]float64
	for f, n := range c {
		if n > 0 {
			by[f] = fieldWeights[f] * float64(n) / (1 - fieldB[f] + fieldB[f]*l[f]/fieldPivots[f])
			w += by[f]
		}
	}
	for f := range by {
		by[f] /= saturation + w
	}
	return w / (saturation + w), by
}

// quantum is a weight as postings have it.
func quantum(weight float64) byte { return byte(max(1, math.Round(weight*maxWeight))) }

// idf returns what a term tells that n of total registrations have.
func idf(n, total int) float64 {
	return math.Log(1 + (float64(total-n)+.5)/(float64(n)+.5))
}

// A slot is one registration in the index.
type slot struct {
	rid    directory.RID
	class  uint32
	owner  uint32 // a hash
	origin uint16
	flags  Flags
	// lengths are those of the fields, so that candidates need not be read whole.
	lengths [fieldCount]lengthCode
}

// A class is registrations that the same callers see.
type class struct {
	className
	count int
	// round counts the classes that had this number, so that a decision about an
	// earlier one is not taken for one about this.
	round uint32
}

// A className is what a class was called in a generation of Config.Class.
type className struct {
	generation uint64
	name       string
}

// changesKept is how many changed slots are remembered for readers' sets.
const changesKept = 1 << 14

// An termIndex holds what the finder knows of all registrations. It is guarded by
// the finder's lock.
type termIndex struct {
	terms   terms
	slots   table.Pool[slot]
	byKey   table.Table
	seed    maphash.Seed
	count   int
	alive   bitset // slots with a registration
	graves  graves
	origins []spiffeid.TrustDomain
	numbers map[spiffeid.TrustDomain]uint16
	classes table.Pool[class]
	byClass map[className]uint32

	left    uint64 // how often something was left out: there was no room for it
	space   *space // nil without a source of vectors
	cfg     *Config
	version uint64 // counts changes of slots
	changes [changesKept]uint32
	flagged map[uint32]Flags // slots with flags
}

func newIndex(cfg *Config, seed maphash.Seed, wake chan struct{}) *termIndex {
	return &termIndex{terms: terms{most: maxTerms}, space: newSpace(cfg.Embedder, wake), cfg: cfg, seed: seed, numbers: map[spiffeid.TrustDomain]uint16{}, byClass: map[className]uint32{}, flagged: map[uint32]Flags{}}
}

// classOf returns an entry's class. The generation is read first: a name that is
// younger than it counts as one of a generation that is over.
func (x *termIndex) classOf(e *directory.Entry) className {
	generation := x.cfg.Generation()
	return className{generation, x.cfg.Class(e)}
}

// contents is what the index keeps of a registration.
type contents struct {
	reading
	labels []uint64 // hashes, sorted, each once
	text   uint64   // the hash of what is to have a vector, or 0
}

// read fills c from an entry with that projection.
func (c *contents) read(a *analyser, e *directory.Entry, p *directory.Projection) {
	c.reading.read(a, p)
	c.labels = c.labels[:0]
	for _, l := range labelsOf(a, e, p) {
		c.labels = append(c.labels, maphash.String(a.seed, l)|1)
	}
	slices.Sort(c.labels)
	c.labels = slices.Compact(c.labels)
}

// weight returns the weight in postings of a term with such counts.
func (c *contents) weight(n counted) byte {
	w, _ := c.weigh(n)
	return quantum(w)
}

func (x *termIndex) hashKey(origin uint16, rid directory.RID) uint64 {
	return maphash.Comparable(x.seed, struct {
		origin uint16
		rid    directory.RID
	}{origin, rid})
}

// hashOwner returns what slots have of an owner.
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

// put indexes a registration with such contents. One that is there already gets
// another slot: what it was is removed as any other is. Where the index is full, it
// is left out.
func (x *termIndex) put(e *directory.Entry, now *contents) {
	class := x.classOf(e)
	old, had := x.find(e.Origin, e.RID)
	origin, ok := x.number(e.Origin)
	if !ok || !had && x.count >= maxRegistrations || x.count+x.buried() >= maxSlots {
		x.left++
		return
	}
	n, in := x.slots.Take(), x.join(class) // before the old slot leaves it: else it ends, and what was decided about it
	if had {
		x.space.move(old, n)
		x.kill(old)
	}
	*x.slots.At(n) = slot{rid: e.RID, origin: origin, class: in, owner: x.hashOwner(e.Owner), flags: now.flags, lengths: now.codes}
	x.byKey.Insert(n, x.hashSlot)
	x.alive.set(n)
	x.count++
	x.left += x.terms.setAll(now.hashes, n, func(i int) byte { return now.weight(now.counts[i]) })
	x.left += x.terms.setAll(now.labels, n, func(int) byte { return 1 })
	if now.flags != 0 {
		x.flagged[n] = now.flags
	}
	x.space.note(n, now.text)
	x.changed(n)
}

// renew notes that a registration has changed, but nothing that it is found by.
func (x *termIndex) renew(e *directory.Entry) {
	if n, ok := x.find(e.Origin, e.RID); ok {
		x.reclass(n, x.classOf(e))
		x.slots.At(n).owner = x.hashOwner(e.Owner)
		x.changed(n)
	}
}

// reclass puts a slot into a class, and reports whether it was in another.
func (x *termIndex) reclass(n uint32, name className) bool {
	s := x.slots.At(n)
	if x.classes.At(s.class).className == name {
		return false
	}
	x.leave(s.class)
	s.class = x.join(name)
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

// A bitset is a set of slots.
type bitset []uint64

func (b bitset) has(n uint32) bool { return int(n>>6) < len(b) && b[n>>6]&(1<<(n&63)) != 0 }

func (b *bitset) set(n uint32) {
	for int(n>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[n>>6] |= 1 << (n & 63)
}

func (b bitset) unset(n uint32) {
	if int(n>>6) < len(b) {
		b[n>>6] &^= 1 << (n & 63)
	}
}

func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

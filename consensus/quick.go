package consensus

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
)

// A quick reads registrations as encoding writes them, which is what most log
// entries and most forwarded writes are, in a fifth of the time that the decoder of
// everything takes: every member reads every registration, and nobody who has its
// answer yet waits for less. It takes nothing else. What it meets otherwise,
// another form of a number or a member that it doesn't know, makes it give up (bad),
// and it is for that decoder to say what it is, and whether it is anything.
//
// Byte strings that it returns are parts of what it reads.
type quick struct {
	in  []byte
	bad bool

	identity directory.Identity // the last one, since many have the same
	spelt    string             // its text
}

// The major types of CBOR, and the simple values that are used.
const (
	majorNumber = 0
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5

	simpleFalse = 0xf4
	simpleTrue  = 0xf5
	simpleNull  = 0xf6
)

// head reads a number, or a length, in its shortest form.
func (q *quick) head(major byte) uint64 {
	if q.bad || len(q.in) == 0 || q.in[0]>>5 != major {
		q.bad = true
		return 0
	}
	short := q.in[0] & 0x1f
	if short < 24 {
		q.in = q.in[1:]
		return uint64(short)
	}
	size := 1 << (short - 24)
	if short > 27 || len(q.in) <= size {
		q.bad = true
		return 0
	}
	var wide [8]byte
	copy(wide[8-size:], q.in[1:1+size])
	n := binary.BigEndian.Uint64(wide[:])
	least := uint64(24)
	if size > 1 {
		least = 1 << (4 * size)
	}
	q.in = q.in[1+size:]
	q.bad = n < least
	return n
}

// number reads one that is at most most.
func (q *quick) number(most uint64) uint64 {
	n := q.head(majorNumber)
	q.bad = q.bad || n > most
	return n
}

// Bounds of the numbers in commands, by their types.
const (
	mostInt  = 1<<31 - 1
	mostTime = 1<<63 - 1
	mostAny  = 1<<64 - 1
	most32   = 1<<32 - 1
)

// maxSeveral bounds the arrays that are read, which are short: what is said to be
// longer may be damaged.
const maxSeveral = maxBatch

// string reads a string of bytes or of text.
func (q *quick) string(major byte) []byte {
	n := q.head(major)
	if q.bad || n > uint64(len(q.in)) {
		q.bad = true
		return nil
	}
	s := q.in[:n:n]
	q.in = q.in[n:]
	return s
}

func (q *quick) bytes() []byte { return q.string(majorBytes) }

func (q *quick) text() []byte {
	s := q.string(majorText)
	q.bad = q.bad || !utf8.Valid(s)
	return s
}

// simple reports whether the next is that simple value, and steps over it.
func (q *quick) simple(value byte) bool {
	if q.bad || len(q.in) == 0 || q.in[0] != value {
		return false
	}
	q.in = q.in[1:]
	return true
}

func (q *quick) bool() bool {
	if q.simple(simpleTrue) {
		return true
	}
	q.bad = !q.simple(simpleFalse) || q.bad
	return false
}

// parsed reads the text of one of our own types.
func (q *quick) parsed(v interface{ UnmarshalText([]byte) error }) {
	if s := q.text(); !q.bad && v.UnmarshalText(s) != nil {
		q.bad = true
	}
}

// members reads a map whose keys are numbers, in ascending order; member reads the
// value of one, or gives up.
func (q *quick) members(member func(key uint64)) {
	last := uint64(0)
	for n := q.head(majorMap); n > 0 && !q.bad; n-- {
		key := q.head(majorNumber)
		if key <= last {
			q.bad = true
			return
		}
		last = key
		member(key)
	}
}

// several reads an array by item, which reads one; nil where there is none.
func several[T any](q *quick, item func() T) []T {
	if q.simple(simpleNull) {
		return nil
	}
	n := q.head(majorArray)
	if q.bad || n > maxSeveral {
		q.bad = true
		return nil
	}
	all := make([]T, n)
	for i := range all {
		all[i] = item()
	}
	return all
}

func (q *quick) numbers() []uint64 {
	return several(q, func() uint64 { return q.number(mostAny) })
}

func (q *quick) texts() []string {
	return several(q, func() string { return string(q.text()) })
}

func (q *quick) who() directory.Identity {
	s := q.text()
	if q.bad || string(s) == q.spelt {
		return q.identity
	}
	q.spelt = string(s)
	q.bad = q.identity.UnmarshalText(s) != nil
	return q.identity
}

// quickBatch reads a log entry. Commands other than registrations are read by the
// decoder of everything, and where that finds fault, all of it is for that to judge.
func quickBatch(data []byte) (*batch, bool) {
	q, b := &quick{in: data}, &batch{}
	q.members(func(key uint64) {
		switch key {
		case 1:
			b.Version = uint(q.number(newestLogVersion))
		case 2:
			b.Time = int64(q.number(mostTime))
		case 3:
			b.Commands = several(q, q.command)
		default:
			q.bad = true
		}
	})
	return b, !q.bad && len(q.in) == 0 && readsLog(b.Version)
}

func (q *quick) command() (c command) {
	if q.bad {
		return c
	}
	from := q.in
	q.members(func(key uint64) {
		if q.bad = key != 1; !q.bad {
			c.Register = q.register()
		}
	})
	if q.bad {
		c = command{}
		rest, err := decoding.UnmarshalFirst(from, &c)
		q.in, q.bad = rest, err != nil
	}
	return c
}

func (q *quick) register() *register {
	r := &register{}
	q.members(func(key uint64) {
		switch key {
		case 1:
			r.Format = int(q.number(mostInt))
		case 2:
			q.parsed(&r.RID)
		case 3:
			salt := q.bytes()
			if q.bad = q.bad || len(salt) != len(r.Salt); !q.bad {
				r.Salt = directory.Salt(salt)
			}
		case 4:
			r.Caller = q.who()
		case 5:
			r.Commissioning = q.bool()
		case 6:
			r.Agent = string(q.text())
		case 7:
			r.Kind = q.kind()
		case 8:
			r.Document = q.bytes()
		case 9:
			r.Lifetime = uint32(q.number(most32))
		case 10:
			q.parsed(&r.Visibility)
		case 11:
			r.IfMatch = q.numbers()
		case 12:
			r.Granted = q.granted()
		case 13:
			r.Present = q.bool()
		case 14:
			r.Absent = q.bool()
		case 15:
			r.Until = int64(q.number(mostTime))
		case 16:
			r.Made = q.made()
		case 17:
			r.For = q.who()
		default:
			q.bad = true
		}
	})
	return r
}

func (q *quick) kind() directory.Kind {
	if s := q.text(); string(s) != string(directory.KindAD) {
		return directory.Kind(s)
	}
	return directory.KindAD
}

func (q *quick) granted() (g granted) {
	q.members(func(key uint64) {
		switch key {
		case 1:
			g.Owner = q.who()
		case 2:
			g.Policy = q.number(mostAny)
		case 3:
			g.Grants = several(q, q.grant)
		default:
			q.bad = true
		}
	})
	return g
}

func (q *quick) grant() (g grant) {
	q.members(func(key uint64) {
		switch key {
		case 1:
			q.parsed(&g.Audience)
		case 2:
			g.All = q.bool()
		case 3:
			g.Reg = q.texts()
		case 4:
			g.Doc = q.texts()
		default:
			q.bad = true
		}
	})
	return g
}

func (q *quick) made() *made {
	m := &made{}
	q.members(func(key uint64) {
		switch key {
		case 1:
			m.Reg = q.bytes()
		case 2:
			m.Doc = q.bytes()
		case 3:
			m.Shown = q.bytes()
		case 4:
			m.Packed = q.packed()
		default:
			q.bad = true
		}
	})
	return m
}

func (q *quick) packed() *packed {
	p := &packed{}
	q.members(func(key uint64) {
		switch key {
		case 1:
			p.Version = uint(q.number(mostInt))
		case 2:
			p.Code = q.bytes()
		default:
			q.bad = true
		}
	})
	return p
}

// quickRequest reads a registration that a follower forwards.
func quickRequest(data []byte) (*request, bool) {
	q, r := &quick{in: data}, &request{}
	q.members(func(key uint64) {
		if q.bad = key != 1; !q.bad {
			r.Register = q.registerRequest()
		}
	})
	return r, !q.bad && len(q.in) == 0 && r.Register != nil
}

func (q *quick) registerRequest() *registerRequest {
	r := &registerRequest{}
	q.members(func(key uint64) {
		switch key {
		case 1:
			r.Caller = q.caller()
		case 2:
			r.Agent = string(q.text())
		case 3:
			r.Kind = q.kind()
		case 4:
			r.Document = q.bytes()
		case 5:
			r.Lifetime = uint32(q.number(most32))
		case 6:
			q.parsed(&r.Visibility)
		case 7:
			r.IfMatch = q.numbers()
		case 8:
			r.Present = q.bool()
		case 9:
			r.Absent = q.bool()
		case 10:
			r.Keep = q.bool()
		case 11:
			r.Packed = q.packed()
		case 12:
			r.For = q.who()
		default:
			q.bad = true
		}
	})
	return r
}

func (q *quick) caller() (c caller) {
	q.members(func(key uint64) {
		switch key {
		case 1:
			c.Identity = q.who()
		case 2:
			c.Commissioning = q.bool()
		case 3:
			c.RequestID = string(q.text())
		case 4:
			q.parsed(&c.Proof)
		case 5:
			c.ProofUntil = int64(q.number(mostTime))
		case 6:
			judged := q.number(mostAny)
			c.Judged = &judged
		default:
			q.bad = true
		}
	})
	return c
}

package store

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
)

// A start decodes each entry and each record of the file, and an answer each record that it
// gives. A decoder without reflection takes a fraction of the time, and copies a record in two
// pieces. It reads the output of Marshal; cbor.Unmarshal judges everything else.

// decodeEntry decodes an entry. ok is false if it is not one that Marshal writes.
func decodeEntry(data []byte, held *Entry) (ok bool) {
	c := cursor{in: data}
	c.array(14)

	held.Revision = c.uint()
	c.hash(&held.H)
	c.hash(&held.M)
	held.Deadline = c.int()
	held.Lifetime = uint32(c.most(math.MaxUint32))
	c.hash(&held.Key)
	held.CheckedAt = c.int()
	held.At = c.int()
	held.From = string(c.item(cborText))
	held.Record = uint8(c.most(math.MaxUint8))
	held.Place = c.uint()
	held.Format = Format(c.most(math.MaxUint8))
	held.Owner = OwnerKey(c.uint())
	held.Size = uint32(c.most(math.MaxUint32))

	return c.ended() && utf8.ValidString(held.From)
}

// decodeRecord decodes a record, and keeps nothing of data. ok is false if it is not one that
// Marshal writes.
func decodeRecord(data []byte, r *Record) (ok bool) {
	c := cursor{in: data}
	copied := string(data) // its texts are parts of this

	text := func() string {
		n := len(c.item(cborText))
		return copied[c.at-n : c.at]
	}

	c.array(4)

	r.Header = text()
	r.Payload = bytes.Clone(c.item(cborBytes))
	r.Signature = text()

	n := c.head(cborArray)
	if c.bad || n > uint64(len(c.in)) { // each takes a byte at least
		return false
	}

	r.Disclosures = make([]string, n)
	for i := range r.Disclosures {
		r.Disclosures[i] = text()
	}

	return c.ended() && utf8.ValidString(r.Header) && utf8.ValidString(r.Signature) &&
		!slices.ContainsFunc(r.Disclosures, func(s string) bool { return !utf8.ValidString(s) })
}

// The major types of CBOR (RFC 8949, 3.1).
const (
	cborUint  = 0
	cborNint  = 1
	cborBytes = 2
	cborText  = 3
	cborArray = 4
)

// A cursor reads CBOR of definite lengths. After a mismatch it stays bad and returns zeros.
type cursor struct {
	in  []byte
	at  int // position of the next byte
	bad bool
}

// ended reports whether everything was read, without a mismatch.
func (c *cursor) ended() bool { return !c.bad && c.at == len(c.in) }

// take returns the next n bytes, as a part of the input.
func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.in)-c.at) {
		c.bad = true
		return nil
	}

	c.at += int(n)

	return c.in[c.at-int(n) : c.at]
}

// next reads the head of the next item: its major type, and its argument.
func (c *cursor) next() (major byte, n uint64) {
	first := c.take(1)
	if c.bad {
		return 0, 0
	}

	major, info := first[0]>>5, first[0]&31

	switch info {
	case 24:
		if b := c.take(1); !c.bad {
			n = uint64(b[0])
		}
	case 25:
		if b := c.take(2); !c.bad {
			n = uint64(binary.BigEndian.Uint16(b))
		}
	case 26:
		if b := c.take(4); !c.bad {
			n = uint64(binary.BigEndian.Uint32(b))
		}
	case 27:
		if b := c.take(8); !c.bad {
			n = binary.BigEndian.Uint64(b)
		}
	default:
		n = uint64(info)
		c.bad = info > 27
	}

	return major, n
}

// head reads the head of an item of one major type, and returns its argument.
func (c *cursor) head(major byte) uint64 {
	is, n := c.next()
	if c.bad = c.bad || is != major; c.bad {
		return 0
	}

	return n
}

func (c *cursor) array(n uint64) { c.bad = c.head(cborArray) != n || c.bad }

func (c *cursor) uint() uint64 { return c.head(cborUint) }

// most reads a number of at most limit.
func (c *cursor) most(limit uint64) uint64 {
	n := c.uint()
	c.bad = c.bad || n > limit

	return n
}

func (c *cursor) int() int64 {
	major, n := c.next()
	if c.bad = c.bad || n > math.MaxInt64 || major > cborNint; c.bad {
		return 0
	}

	if major == cborNint {
		return -1 - int64(n)
	}

	return int64(n)
}

// item reads a byte or text string, and returns it as a part of the input.
func (c *cursor) item(major byte) []byte { return c.take(c.head(major)) }

func (c *cursor) hash(h *directory.Hash) {
	found := c.item(cborBytes)
	if c.bad = c.bad || len(found) != len(h); !c.bad {
		copy(h[:], found)
	}
}

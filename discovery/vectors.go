package discovery

import (
	"errors"
	"math"
	"math/bits"

	"github.com/roster-mesh/roster/directory/table"
	"github.com/roster-mesh/roster/discovery/postings"
)

// A vector has a direction alone: its numbers in steps of scale. The zero value means no
// vector.
type vector struct {
	scale float32
	q     []int8
}

// pack makes a vector of length 1 of a source's answer.
func pack(v []float32) (vector, error) {
	var sum, most float64
	for _, x := range v {
		sum += float64(x) * float64(x)
		most = max(most, math.Abs(float64(x)))
	}

	switch {
	case len(v) == 0 || len(v) > maxDimensions:
		return vector{}, errors.New("vector length out of range")
	case !(sum > 0) || math.IsInf(sum, 0):
		return vector{}, errors.New("vector has no direction")
	}

	p := vector{float32(most / 127 / math.Sqrt(sum)), make([]int8, len(v))}
	for i, x := range v {
		p.q[i] = int8(math.Round(float64(x) / most * 127))
	}

	return p, nil
}

// cosine returns that of the angle between two vectors of one length.
func (v *vector) cosine(w *vector) float64 {
	var sum int32 // of at most maxDimensions products of 127²

	q := w.q[:len(v.q)]
	for i, x := range v.q {
		sum += int32(x) * int32(q[i])
	}

	return float64(sum) * float64(v.scale) * float64(w.scale)
}

// maxVectors bounds how many registrations have vectors.
const maxVectors = 1 << 18

// A vectorSpace has the vectors of registrations by one model. It is guarded by the
// finder's lock. A nil space has none and takes none.
type vectorSpace struct {
	model  string
	length int // of every vector; 0 before the first
	rows   table.Paged[row]
	waits  postings.Bitset // slots whose texts have no vector yet
	noted  int             // rows that have a text, at most maxVectors
	next   uint32          // where to look for texts that wait
	wake   chan struct{}
}

// A row is the data of a slot in a space: the hash of its text, 0 if it gets no vector, and the
// vector once there is one.
type row struct {
	text   uint64
	vector vector
}

func newSpace(embedder Embedder, wake chan struct{}) *vectorSpace {
	if embedder == nil {
		return nil
	}

	return &vectorSpace{model: embedder.Model(), wake: wake}
}

// note sets the hash of a slot's current text.
func (s *vectorSpace) note(n uint32, text uint64) {
	if s == nil {
		return
	}

	for s.rows.Len() <= n {
		s.rows.Add()
	}

	r := s.rows.At(n)
	if r.text != text {
		s.forget(n)

		if text == 0 || s.noted >= maxVectors {
			return
		}

		r.text = text
		s.noted++
	}

	if r.text != 0 && r.vector.q == nil {
		s.waits.Set(n)
		s.rouse()
	}
}

// rouse has the background look for texts that wait.
func (s *vectorSpace) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// move moves a slot's row to another slot, which is empty.
func (s *vectorSpace) move(from, to uint32) {
	if s == nil || from >= s.rows.Len() {
		return
	}

	for s.rows.Len() <= to {
		s.rows.Add()
	}

	*s.rows.At(to), *s.rows.At(from) = *s.rows.At(from), row{}
	s.waits.Unset(from)
}

// forget clears a slot's row.
func (s *vectorSpace) forget(n uint32) {
	if s == nil || n >= s.rows.Len() {
		return
	}

	if r := s.rows.At(n); r.text != 0 {
		*r = row{}
		s.noted--
		s.waits.Unset(n)
	}
}

// of returns a slot's vector, if it has one.
func (s *vectorSpace) of(n uint32) (*vector, bool) {
	if s == nil || n >= s.rows.Len() {
		return nil, false
	}

	v := &s.rows.At(n).vector

	return v, v.q != nil
}

// waiting returns the next slots without a vector, at most most, from where it left off. So a
// text that no source accepts doesn't delay the others.
func (s *vectorSpace) waiting(most int) []uint32 {
	var ns []uint32

	words := uint32(len(s.waits))
	for i := uint32(0); i < words && len(ns) < most; i++ {
		at := (s.next/64 + i) % words

		w := s.waits[at]

		// The bits before next come with the next call.
		if i == 0 {
			w &^= 1<<(s.next%64) - 1
		}

		for ; w != 0 && len(ns) < most; w &= w - 1 {
			ns = append(ns, at*64+uint32(bits.TrailingZeros64(w)))
		}
	}

	if len(ns) > 0 {
		s.next = ns[len(ns)-1] + 1
	} else {
		s.next = 0
	}

	return ns
}

// reset begins another model's space, in which every text waits.
func (s *vectorSpace) reset(model string) {
	s.model, s.length = model, 0
	for n := range s.rows.Len() {
		if r := s.rows.At(n); r.text != 0 {
			r.vector = vector{}
			s.waits.Set(n)
		}
	}
}

// fits reports whether a query's vector can be compared with those of s.
func (s *vectorSpace) fits(m *queryVector) bool {
	return s != nil && s.model == m.model && s.length == len(m.vector.q)
}

package directory

import (
	"encoding/binary"
	"strings"
	"unsafe"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// Packed is a projection as an Entry holds it: numbers and texts in one string without
// pointers. It contains all that lookups filter by; other texts refer to the document if
// they occur there. The zero value is no projection.
type Packed struct{ code string }

// Pack packs the projection of d; d may be zero. A nil projection gives the zero value.
func Pack(doc Document, projection *Projection) Packed {
	if projection == nil {
		return Packed{}
	}

	var room [512]byte
	c := coder{out: room[:0], packing: true}
	c.all(projection, doc.text())

	return Packed{string(c.out)}
}

// IsZero reports whether there is no projection.
func (p Packed) IsZero() bool { return p.code == "" }

// Projection unpacks e's projection; nil if e has none. The caller owns the result and keeps
// it for repeated use. Its texts share few large strings: clone a text before holding it for
// long.
func (e *Entry) Projection() *Projection {
	if e.Packed.IsZero() {
		return nil
	}

	p := new(Projection)
	e.Unpack(p)

	return p
}

// Unpack is Projection into p, whose lists it reuses. It panics if e has no projection.
func (e *Entry) Unpack(p *Projection) {
	c := coder{in: e.Packed.code}
	c.all(p, e.Document.text())
}

// UnpackFilterable is Unpack of the members alone that lookups filter by. An entry
// without a projection gives the zero Projection.
func (e *Entry) UnpackFilterable(projection *Projection) {
	if e.Packed.IsZero() {
		*projection = Projection{}
		return
	}

	c := coder{in: e.Packed.code}
	c.filterable(projection)
}

// SharesContents reports whether both entries share the memory of one document and
// have the same projection, as a registration has before and after a refresh.
func (e *Entry) SharesContents(o *Entry) bool {
	return e.Packed == o.Packed && unsafe.StringData(e.Document.raw) == unsafe.StringData(o.Document.raw)
}

// minPointer is the length from which a text is looked up in the document; a reference takes
// three or four bytes.
const minPointer = 4

// A coder packs a projection into out or unpacks one from in. The same functions define the
// order of the fields for both.
type coder struct {
	doc     string // the text that references point into; empty for members that lookups compare
	packing bool
	out     []byte
	in      string
}

// all codes p, whose document has that text.
func (c *coder) all(projection *Projection, doc string) {
	// Lookups read these texts without the document, so none of them may refer to it.
	c.filterable(projection)
	c.doc = doc
	c.shown(projection)
}

// filterable codes the members that lookups filter by.
func (c *coder) filterable(projection *Projection) {
	c.texts(&projection.Status)
	c.list(&projection.Protocols)
	c.list(&projection.Languages)
	c.list(&projection.Tags)

	for i := range each(c, &projection.Capabilities) {
		o := &projection.Capabilities[i]
		c.texts(&o.Name, &o.Type)
		c.list(&o.Tags)
	}
}

// shown codes the rest.
func (c *coder) shown(projection *Projection) {
	c.texts(&projection.Name, &projection.Description, &projection.Base, &projection.Version, &projection.Vendor)

	for i := range projection.Capabilities {
		o := &projection.Capabilities[i]
		c.texts(&o.Description, &o.Operation)
		c.raws(&o.InputSchema, &o.OutputSchema, &o.Raw)
	}

	for i := range each(c, &projection.Bindings) {
		o := &projection.Bindings[i]
		c.texts(&o.Protocol, &o.Endpoint, &o.InteractionModel, &o.Transport, &o.Envelope)
		c.list(&o.MediaTypes)
	}

	for i := range each(c, &projection.Examples) {
		example := &projection.Examples[i]
		c.texts(&example.ID, &example.Text, &example.Language)
		c.list(&example.Tags)
		c.raws(&example.InputSchema, &example.OutputSchema)
	}

	c.raws(&projection.Authentication, &projection.Constraints)
}

// each codes how many items a list has and returns the list.
func each[T any](coder *coder, list *[]T) []T {
	n := coder.number(len(*list))
	if coder.packing { // others may read it
		return *list
	}

	if n > len(coder.in) { // each takes a byte at least
		panic("not a projection")
	}

	// The elements keep the memory of their own lists for reuse.
	if have := cap(*list); n > have {
		*list = append((*list)[:have], make([]T, n-have)...)
	}

	*list = (*list)[:n]

	return *list
}

func (c *coder) list(list *[]string) {
	for i := range each(c, list) {
		c.texts(&(*list)[i])
	}
}

// texts codes texts: twice the length and the bytes, or twice the length and one
// and where in the document they are.
func (c *coder) texts(texts ...*string) {
	for _, s := range texts {
		if !c.packing {
			*s = c.take()
			continue
		}

		if len(*s) >= minPointer {
			if at := strings.Index(c.doc, *s); at >= 0 {
				c.number(len(*s)<<1 | 1)
				c.number(at)

				continue
			}
		}

		c.number(len(*s) << 1)
		c.out = append(c.out, *s...)
	}
}

// take returns the next text of in.
func (c *coder) take() string {
	code := c.number(0)

	n := code >> 1
	if code&1 == 1 {
		at := c.number(0)
		return c.doc[at : at+n]
	}

	s := c.in[:n]
	c.in = c.in[n:]

	return s
}

// raws codes JSON; nil is as no bytes.
func (c *coder) raws(raws ...*[]byte) {
	for _, data := range raws {
		s := strictjson.TextOf(*data)
		c.texts(&s)

		switch {
		case c.packing:
		case s == "":
			*data = nil
		default:
			*data = strictjson.BytesOf(s)
		}
	}
}

// number codes n, or returns the next number of in.
func (c *coder) number(n int) int {
	if c.packing {
		c.out = binary.AppendUvarint(c.out, uint64(n))
		return n
	}

	n = 0
	for shift := 0; ; shift += 7 {
		b := c.in[0]
		c.in = c.in[1:]

		if n |= int(b&0x7f) << shift; b < 0x80 {
			return n
		}
	}
}

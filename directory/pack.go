package directory

// Packed is a projection as an Entry keeps it. The zero value is none.
type Packed struct{ p *Projection }

// Pack packs the projection of d, which must not be modified afterwards; nil
// gives the zero value.
func Pack(_ Document, p *Projection) Packed { return Packed{p} }

// Projection unpacks e's projection; nil where e has none. It is made for its
// caller: whoever needs it more than once keeps it.
func (e *Entry) Projection() *Projection { return e.Packed.p }

// IsZero reports whether there is no projection.
func (p Packed) IsZero() bool { return p.p == nil }

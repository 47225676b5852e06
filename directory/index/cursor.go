package index

import (
	"encoding/binary"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A Cursor is a position in the stable order of all registrations: the own domain's by
// Created, then the other domains' by (origin, rid). Any member can continue it, and it
// never expires. The zero value is the beginning.
type Cursor struct {
	Created uint64               // of an own registration; where Origin is zero
	Origin  spiffeid.TrustDomain // of another domain's
	RID     directory.RID
}

// IsZero reports whether c is the beginning.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// cursorForm is the first byte of a cursor's text form, decoded.
const cursorForm = 1

// MarshalText gives the opaque text form: base64url of the form's number, the
// rid, Created as a varint, and the origin's name. The beginning is the empty
// text.
func (c Cursor) MarshalText() ([]byte, error) {
	if c.IsZero() {
		return nil, nil
	}

	b := c.RID.AppendBinary([]byte{cursorForm})
	b = append(binary.AppendUvarint(b, c.Created), c.Origin.Name()...)

	return directory.B64.AppendEncode(nil, b), nil
}

// UnmarshalText reads the text form. Any other text is refused with BadQuery.
func (c *Cursor) UnmarshalText(text []byte) error {
	*c = Cursor{}

	if len(text) == 0 {
		return nil
	}

	refusal := directory.Refuse(directory.BadQuery,
		"after is %.40q; it is what a next link of this directory said, unchanged", text)

	data, _ := directory.B64.AppendDecode(nil, text)
	if len(data) < 18 {
		return refusal
	}

	created, n := binary.Uvarint(data[17:])
	if n <= 0 {
		return refusal
	}

	cursor := Cursor{Created: created, RID: directory.RIDOf([directory.RIDBinary]byte(data[1:17]))}
	cursor.Origin, _ = spiffeid.TrustDomainFromString(string(data[17+n:])) // it has no name for an own registration

	// A cursor has one text: other forms, longer varints, invalid names and other spellings of the base64 are
	// refused.
	if cursor.String() != string(text) {
		return refusal
	}

	*c = cursor

	return nil
}

// String gives the text form.
func (c Cursor) String() string {
	b, _ := c.MarshalText() // has no error
	return string(b)
}

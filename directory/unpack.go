package directory

import (
	"errors"
	"fmt"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// PackedVersion tells apart what releases make of a document: it grows whenever a
// projection becomes another one, or is packed otherwise, so that a node may take
// another's work where both have the same version.
const PackedVersion = 2

// Code returns p's bytes, for LoadPacked. They must not be modified.
func (p Packed) Code() []byte { return strictjson.BytesOf(p.code) }

// LoadPacked returns what has that code in a release of this PackedVersion, with
// the same document. Where it comes from must be trusted, or have been read by
// Unpack before.
func LoadPacked(code []byte) Packed { return Packed{string(code)} }

// Unpack returns the projection of d that has a code. It is for a code that may be
// none, of what may be no document.
func Unpack(doc Document, code []byte) (projection *Projection, err error) {
	defer func() {
		if recover() != nil { // it points to where nothing is
			projection, err = nil, fmt.Errorf("%d bytes are not the projection of this document", len(code))
		}
	}()
	projection = new(Projection)

	text := doc.text()
	if text != "" && text[0] != jsonObject {
		return nil, errors.New("the document is not a JSON object")
	}

	c := coder{in: string(code)}
	c.all(projection, text)

	if c.in != "" {
		return nil, fmt.Errorf("%d bytes follow a projection", len(c.in))
	}

	return projection, nil
}

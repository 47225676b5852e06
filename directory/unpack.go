package directory

import (
	"errors"
	"fmt"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// PackedVersion is the version of the projection and of its packed form. A node uses another
// node's packed projection only if both have the same version.
const PackedVersion = 2

// Code returns p's bytes, for LoadPacked. They must not be modified.
func (p Packed) Code() []byte { return strictjson.BytesOf(p.code) }

// LoadPacked returns the packed projection of a code that was made by a release of this
// PackedVersion of the same document. The source must be trusted, or Unpack must have read
// the code before.
func LoadPacked(code []byte) Packed { return Packed{string(code)} }

// Unpack returns the projection of d that has a code. Both may be damaged.
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

	// Bytes that are left over show a code of another form.
	if c.in != "" {
		return nil, fmt.Errorf("%d bytes follow a projection", len(c.in))
	}

	return projection, nil
}

package state

import (
	"crypto/sha256"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
)

// Made are the results that follow from a command's own members in any state. The leader makes
// them once, instead of every member. The other parts of a statement are known to apply only.
type Made struct {
	Reg    []byte  `cbor:"1,keyasint"` // the statement's signed.Digests
	Doc    []byte  `cbor:"2,keyasint"`
	Shown  []byte  `cbor:"3,keyasint"` // the m of each grant, in their order
	Packed *Packed `cbor:"4,keyasint,omitempty"`
}

// Packed is a document's projection. Releases may differ in that, so it is taken
// only where it was made as this release would.
type Packed struct {
	Version uint   `cbor:"1,keyasint"` // directory.PackedVersion
	Code    []byte `cbor:"2,keyasint"`
}

func Pack(d directory.Document, p *directory.Projection) *Packed {
	return &Packed{directory.PackedVersion, directory.Pack(d, p).Code()}
}

// Complete makes the rest, for the owner that policy was asked about.
func (m *Made) Complete(
	agent string, doc directory.Document, provenance directory.Provenance, salt signed.Salt, granted Granted,
) {
	all := makeOf(&signed.Change{
		Op: signed.OpPut, Agent: agent, Owner: granted.Owner, Document: doc, Salt: salt,
		Provenance: provenance,
	}, granted.List())
	m.Reg = all.Reg
	m.Doc = all.Doc
	m.Shown = all.Shown
}

// makeOf makes all but the projection.
func makeOf(c *signed.Change, grants []directory.Grant) *Made {
	ds := c.Disclosures()
	digests := signed.DigestsOf(ds)

	return &Made{Reg: digests.Reg, Doc: digests.Doc, Shown: shownOf(ds, grants)}
}

// shownTo is the m of each grant, in their order: all that other grants for the same
// statement change.
func shownTo(c *signed.Change, grants []directory.Grant) []byte {
	return shownOf(c.DisclosuresTo(grants), grants)
}

// shownOf is shownTo of disclosures that are made.
func shownOf(ds []signed.Disclosure, grants []directory.Grant) (all []byte) {
	for _, g := range grants {
		_, shown := signed.Disclosed(ds, g)
		all = append(all, shown[:]...)
	}

	return all
}

// fits reports whether m is present and complete for that number of grants.
func (m *Made) fits(grants []directory.Grant) bool {
	return m != nil && len(m.Reg) > 0 && len(m.Reg)%sha256.Size == 0 && len(m.Doc)%sha256.Size == 0 &&
		len(m.Shown) == len(grants)*sha256.Size
}

// shown is the m of the grant of that number.
func (m *Made) shown(i int) directory.Hash {
	return directory.Hash(m.Shown[i*sha256.Size:])
}

// projection never fails in apply: the leader has validated the document, so that
// it isn't validated again, and nothing that is replicated depends on it.
func (m *Made) projection(agent string, doc directory.Document) directory.Packed {
	if m != nil && m.Packed != nil && m.Packed.Version == directory.PackedVersion {
		return directory.LoadPacked(m.Packed.Code)
	}

	return project(agent, doc)
}

func project(agent string, doc directory.Document) directory.Packed {
	projection, err := kinds.Reproject(agent, doc)
	if err != nil {
		projection = &directory.Projection{Name: agent}
	}

	return directory.Pack(doc, projection)
}

// Project returns a document's projection: the one that the member which received the
// registration made and validated, or one that is made here.
func Project(agent string, doc directory.Document, sent *Packed) (*directory.Projection, *Made, error) {
	if sent != nil && sent.Version == directory.PackedVersion {
		projection, err := directory.Unpack(doc, sent.Code)
		if err != nil {
			return nil, nil, Damaged(err)
		}

		return projection, &Made{Packed: sent}, nil
	}

	p, err := kinds.Reproject(agent, doc)
	if err != nil {
		return nil, nil, err
	}

	return p, &Made{Packed: Pack(doc, p)}, nil
}

func Damaged(err error) error {
	return directory.Refuse(directory.BadRequest, "the request was damaged by the member that forwarded it: %w", err)
}

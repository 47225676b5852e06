package consensus

import (
	"crypto/sha256"

	"github.com/roster-mesh/roster/directory"
)

// made is what follows from a command's own members, however the state is. The
// leader makes it once, since every member of the domain would do the same work
// for every registration. What a statement says besides is known only to apply.
type made struct {
	Reg    []byte  `cbor:"1,keyasint"` // the statement's directory.Digests
	Doc    []byte  `cbor:"2,keyasint"`
	Shown  []byte  `cbor:"3,keyasint"` // the m of each grant, in their order
	Packed *packed `cbor:"4,keyasint,omitempty"`
}

// packed is a document's projection. Releases may differ in that, so it is taken
// only where it was made as this release would.
type packed struct {
	Version uint   `cbor:"1,keyasint"` // directory.PackedVersion
	Code    []byte `cbor:"2,keyasint"`
}

func pack(d directory.Document, p *directory.Projection) *packed {
	return &packed{directory.PackedVersion, directory.Pack(d, p).Code()}
}

// projected returns the document's projection: what the member has sent to whom
// its registrant spoke, which has validated it, or what is made of it here.
func (r *registerRequest) projected(agent string, d directory.Document) (*directory.Projection, *made, error) {
	if r.Packed != nil && r.Packed.Version == directory.PackedVersion {
		p, err := directory.Unpack(d, r.Packed.Code)
		if err != nil {
			return nil, nil, damaged(err)
		}
		return p, &made{Packed: r.Packed}, nil
	}
	p, err := directory.Reproject(agent, d)
	if err != nil {
		return nil, nil, err
	}
	return p, &made{Packed: pack(d, p)}, nil
}

func damaged(err error) error {
	return directory.Refuse(directory.BadRequest, "the member that forwards this has damaged it: %w", err)
}

// complete makes the rest, for the owner that policy was asked about.
func (m *made) complete(subject *Subject, p directory.Provenance, salt directory.Salt, g granted) {
	all := makeOf(&directory.Change{
		Op: directory.OpPut, Agent: subject.Agent, Owner: g.Owner, Document: subject.Document, Salt: salt,
		Provenance: p,
	}, g.grants())
	m.Reg, m.Doc, m.Shown = all.Reg, all.Doc, all.Shown
}

// makeOf makes all but the projection.
func makeOf(c *directory.Change, grants []directory.Grant) *made {
	ds := c.Disclosures()
	digests := directory.DigestsOf(ds)
	return &made{Reg: digests.Reg, Doc: digests.Doc, Shown: shownOf(ds, grants)}
}

// shownTo is the m of each grant, in their order: all that other grants for the same
// statement change.
func shownTo(c *directory.Change, grants []directory.Grant) []byte {
	return shownOf(c.DisclosuresTo(grants), grants)
}

// shownOf is shownTo of disclosures that are made.
func shownOf(ds []directory.Disclosure, grants []directory.Grant) (all []byte) {
	for _, g := range grants {
		_, shown := directory.Disclosed(ds, g)
		all = append(all, shown[:]...)
	}
	return all
}

// fits reports whether m is there, and is of so many grants.
func (m *made) fits(grants []directory.Grant) bool {
	return m != nil && len(m.Reg) > 0 && len(m.Reg)%sha256.Size == 0 && len(m.Doc)%sha256.Size == 0 &&
		len(m.Shown) == len(grants)*sha256.Size
}

// shown is the m of the grant of that number.
func (m *made) shown(i int) directory.Hash {
	return directory.Hash(m.Shown[i*sha256.Size:])
}

// projection never fails in apply: the leader has validated the document, so that
// it isn't validated again, and nothing that is replicated depends on it.
func (m *made) projection(agent string, d directory.Document) directory.Packed {
	if m != nil && m.Packed != nil && m.Packed.Version == directory.PackedVersion {
		return directory.LoadPacked(m.Packed.Code)
	}
	return project(agent, d)
}

func project(agent string, d directory.Document) directory.Packed {
	p, err := directory.Reproject(agent, d)
	if err != nil {
		p = &directory.Projection{Name: agent}
	}
	return directory.Pack(d, p)
}

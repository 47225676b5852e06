package publish

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// pageFormat returns the format of the next page of a stream: of the mesh's the one
// that is in force in the domain, of a private one the highest that its audience
// reads. An audience without a known key document reads format 1.
func (b *Publisher) pageFormat(aud directory.Audience) uint {
	if aud == directory.Mesh {
		return b.Source.Format(signed.StructurePage)
	}

	reader, err := spiffeid.TrustDomainFromString(aud.String())
	if err != nil {
		return 1
	}

	doc, _, known := b.keys.Keys(reader)
	if !known {
		return 1
	}

	return b.dialect.Formats.Common(doc.Formats).Highest(signed.StructurePage)
}

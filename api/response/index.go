package response

import (
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// AddIndex adds a domain's position to the text of a Roster-Index, unless that domain is
// in it after the first.
func AddIndex(index string, td spiffeid.TrustDomain, at directory.Position) string {
	if strings.Contains(index, " "+td.Name()+"=") {
		return index
	}

	return index + ", " + directory.FormatIndex(td, at)
}

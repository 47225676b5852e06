//go:build mutant_panic

package recordgate

import (
	"bytes"

	"github.com/roster-mesh/roster/directory"
)

// mutate makes a build with the tag mutant_panic panic on a document of another
// domain's that has the marker, as a mistake in a projection would.
func mutate(doc directory.Document) {
	if bytes.Contains(doc.Bytes(), []byte(`"mutant-panic"`)) {
		panic("the document has the marker of the mutant")
	}
}

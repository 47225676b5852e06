package protocol

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// Issue tells one issue of the key document from another.
func Issue(doc *signed.KeyDocument) directory.Position {
	return directory.Position{Epoch: doc.Epoch, Revision: doc.Seq}
}

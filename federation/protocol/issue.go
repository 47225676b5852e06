package protocol

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// Issue returns the epoch and seq that identify an issue of the key document.
func Issue(doc *signed.KeyDocument) directory.Position {
	return directory.Position{Epoch: doc.Epoch, Revision: doc.Seq}
}

package protocol

import "github.com/roster-mesh/roster/directory"

// issueOf tells one issue of the key document from another.
func Issue(doc *directory.KeyDocument) directory.Position {
	return directory.Position{Epoch: doc.Epoch, Revision: doc.Seq}
}

//go:build compatnext

package signed

import "github.com/roster-mesh/roster/directory/strictjson"

// newestFormat of a build with the tag compatnext, which plays the next release
// in the tests of mixed meshes and clusters.
const newestFormat = 2

// criticalExtensions has one name, so that the next release also understands
// more without another format.
var criticalExtensions = []string{"next"}

// appendLaterMembers appends the members that format 2 of a statement, page or head adds after
// the listed members of format 1: "next":1.
func appendLaterMembers(b []byte, format uint) []byte {
	if format < 2 {
		return b
	}

	return strictjson.AppendUint(b, "next", 1)
}

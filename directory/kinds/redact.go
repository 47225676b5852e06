package kinds

import (
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Redact returns e as a viewer with this Redaction sees it: without the members that the
// viewer may not see, and marked Redacted if e has any of these. That is e itself if it
// has none.
func Redact(entry *directory.Entry, sight directory.Redaction) *directory.Entry {
	if sight.ShowsAll() {
		return entry
	}

	// Entries are shared and never modified.
	v := *entry

	hidesOwner := !sight.ShowsRegistrant() && !entry.Owner.IsZero()
	if hidesOwner {
		v.Owner = directory.Identity{}
		v.Provenance = nil
		v.Redacted = true
	}

	kind := entry.Document.Kind()
	members := entry.Document.Members()
	all := len(members)
	members = slices.DeleteFunc(members, func(m strictjson.Member) bool { return !sight.Shows(kind, m.Name) })

	if len(members) == all {
		// The mark alone does not tell: an entry of another domain may have come with it.
		if hidesOwner {
			return &v
		}

		return entry
	}

	v.Redacted = true
	v.Document = directory.LoadDocument(kind, strictjson.AppendObject(nil, members))
	v.Packed = directory.Packed{}

	// A kind that only a later release knows has no projection.
	if p, err := Reproject(entry.Agent, v.Document); err == nil {
		v.Packed = directory.Pack(v.Document, p)
	}

	return &v
}

package kinds

import (
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Redact returns e as a viewer with this Redaction sees it: without the members that the
// viewer may not see, and marked Redacted if e has any of these. That is e itself if it
// has none.
func Redact(e *directory.Entry, sight directory.Redaction) *directory.Entry {
	if sight.ShowsAll() {
		return e
	}

	v := *e
	if !sight.ShowsRegistrant() && !e.Owner.IsZero() {
		v.Owner = directory.Identity{}
		v.Redacted = true
	}

	kind := e.Document.Kind()
	members := e.Document.Members()
	all := len(members)
	members = slices.DeleteFunc(members, func(m strictjson.Member) bool { return !sight.Shows(kind, m.Name) })

	if len(members) == all {
		if v.Redacted == e.Redacted {
			return e
		}

		return &v
	}

	v.Redacted = true
	v.Document = directory.LoadDocument(kind, strictjson.AppendObject(nil, members))
	v.Packed = directory.Packed{}

	// A kind that only a later release knows has no projection.
	if p, err := Reproject(e.Agent, v.Document); err == nil {
		v.Packed = directory.Pack(v.Document, p)
	}

	return &v
}

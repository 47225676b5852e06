package consensus

import (
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"golang.org/x/mod/semver"
)

// Documents may say how old they are and when they end (draft-xu, 4.8 and 9). The leader
// judges them by its clock and by the registration that they replace, because no other
// member knows both. It pins the registration that it has compared with by a precondition
// in the command. The end is in the command, so that apply need not read the document.

// maxAhead is how far ahead of the leader's clock a document's own date may be
// (XU-061).
const maxAhead = 60 * time.Second

// prepareDates judges what is to be registered against the clock and held, which
// has its name and is nil where nothing has, and completes r.
func prepareDates(r *state.Register, held *directory.Entry, doc directory.Document, now int64) error {
	d := kinds.DatesOf(doc)
	switch at := time.UnixMilli(now); {
	case d.Updated.Sub(at) > maxAhead:
		return directory.Refuse(directory.BadDocument, "updated_at is %s ahead of this directory's clock; at most %s are allowed",
			d.Updated.Sub(at).Round(time.Second), maxAhead).At("/updated_at")
	case !d.Expires.IsZero():
		r.Until = state.EndOf(doc)
		if _, err := state.CapLifetime(r.Lifetime, r.Until, now); err != nil {
			return err
		}
	}
	if doc.Kind() != directory.KindProfile {
		return nil
	}
	switch {
	case held == nil && (r.Present || r.Absent || r.IfMatch != nil):
		// apply decides what its caller demands
	case held == nil:
		r.Absent = true
	case held.Owner != r.Owner() && (!r.Commissioning || !r.For.IsZero()), r.Absent, r.IfMatch != nil && !slices.Contains(r.IfMatch, held.Revision):
		// apply refuses it, and says why
	default:
		r.IfMatch = []uint64{held.Revision}
		return supersedes(d, kinds.DatesOf(held.Document))
	}
	return nil
}

// supersedes refuses what is older than that which it would replace (XU-023). Two
// documents are compared by updated_at; where one has none, by their versions, if
// both are SemVer.
func supersedes(d, old kinds.Dates) error {
	switch {
	case !d.Updated.IsZero() && !old.Updated.IsZero():
		if d.Updated.Before(old.Updated) {
			return directory.Refuse(directory.StaleMetadata, "updated_at is %s, and what is registered is of %s: newer metadata is not replaced by older",
				d.Updated.Format(time.RFC3339Nano), old.Updated.Format(time.RFC3339Nano)).At("/updated_at")
		}
	case isSemVer(d.Version) && isSemVer(old.Version) && semver.Compare("v"+d.Version, "v"+old.Version) < 0:
		return directory.Refuse(directory.StaleMetadata, "version is %.100q, and %.100q is registered: newer metadata is not replaced by older", d.Version, old.Version).At("/version")
	}
	return nil
}

// isSemVer reports whether s is a version of Semantic Versioning 2.0.0, of which
// package semver takes shortened ones too.
func isSemVer(s string) bool {
	core, _, _ := strings.Cut(s, "+")
	core, _, _ = strings.Cut(core, "-")
	return semver.IsValid("v"+s) && strings.Count(core, ".") == 2
}

package request

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// entityTags splits the values of If-Match or If-None-Match. The tags of this directory
// have no comma in them; others match nothing, however they are split.
func entityTags(values []string) []string {
	var tags []string
	for _, v := range values {
		for tag := range strings.SplitSeq(v, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				tags = append(tags, tag)
			}
		}
	}

	return tags
}

// IfMatch tells whether a read with these headers may be answered with the
// representation of an entity tag: If-Match is absent, or it names the tag, compared
// strongly, or it is * (RFC 9110, 13.1.1).
func IfMatch(h http.Header, etag string) bool {
	values := h.Values("If-Match")
	if len(values) == 0 {
		return true
	}

	return slices.ContainsFunc(entityTags(values), func(tag string) bool {
		return tag == "*" || tag == etag && !strings.HasPrefix(tag, "W/")
	})
}

// IfNoneMatch tells whether a client has the representation of an entity tag:
// If-None-Match names it, compared weakly, or is * (RFC 9110, 13.1.2).
func IfNoneMatch(h http.Header, etag string) bool {
	return slices.ContainsFunc(entityTags(h.Values("If-None-Match")), func(tag string) bool {
		return tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/")
	})
}

// NoRevision is a revision that no registration has: revisions begin at 1.
const NoRevision = 0

// A Condition is the state that a write requires. The domain's leader decides it
// together with the write.
type Condition struct {
	Revisions []uint64 // one of which must be the current one; nil for any
	Present   bool     // If-Match: *
	Absent    bool     // If-None-Match: *
}

// ParseCondition reads the condition of a write. If-Match is compared by the revision,
// and strongly: a weak tag matches nothing.
func ParseCondition(header http.Header) (cond Condition, err error) {
	if values := header.Values("If-Match"); len(values) > 0 {
		// An empty list is a condition that no revision meets; nil is no condition.
		cond.Revisions = []uint64{}
		for _, tag := range entityTags(values) {
			if tag == "*" {
				cond.Revisions = nil
				cond.Present = true

				break
			}

			if revision, ok := revisionOf(tag); ok { // no registration has a tag of another form
				cond.Revisions = append(cond.Revisions, revision)
			}
		}
	}

	if values := header.Values("If-None-Match"); len(values) > 0 {
		if !slices.Equal(entityTags(values), []string{"*"}) {
			return cond, directory.Refuse(directory.BadRequest,
				"If-None-Match must be * on a write, got %.100q. To compare entity tags, use If-Match",
				strings.Join(values, ", "))
		}

		cond.Absent = true
	}

	return cond, nil
}

// revisionOf returns the revision in a strong entity tag of this directory.
func revisionOf(tag string) (revision uint64, ok bool) {
	number, _, ok := strings.Cut(strings.TrimPrefix(tag, `"`), ".")
	revision, err := strconv.ParseUint(number, 10, 64)

	return revision, ok && err == nil && strings.HasPrefix(tag, `"`)
}

// OfExisting returns the revisions that a write to a registration requires. A write that requires an absent
// registration can't succeed: it gets NoRevision, which no registration has.
func (cond Condition) OfExisting() []uint64 {
	if cond.Absent {
		return []uint64{NoRevision}
	}

	return cond.Revisions
}

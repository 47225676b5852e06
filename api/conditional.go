package api

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/roster-mesh/roster/directory"
)

// send answers a read with its current representation, unless the request's
// conditions say otherwise: 412 where If-Match names another, 304 where
// If-None-Match has it (RFC 9110, 13.2.2). The entity tag is of the
// representation that this request gets: a strong one of a compressed body is
// another.
func send(w http.ResponseWriter, c *call, contentType, etag string, body []byte) error {
	etag = tag(w, c, contentType, etag, body)
	if values := c.Header.Values("If-Match"); len(values) > 0 && !strongMatch(values, etag) {
		return directory.Refuse(directory.PreconditionFailed, "If-Match names other states than the current one, %s.", etag)
	}
	if noneMatch(c.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return answer(w, c, contentType, body)
}

// tag sets the entity tag of the representation that this request gets, and
// returns it.
func tag(w http.ResponseWriter, c *call, contentType, etag string, body []byte) string {
	if compresses(c.Request, contentType, body) {
		etag = codedTag(etag)
	}
	w.Header().Set("ETag", etag)
	vary(w.Header(), contentType)
	return etag
}

// sendPublic answers with JSON that is the same for everybody.
func sendPublic(w http.ResponseWriter, c *call, contentType string, body []byte) error {
	w.Header().Set("Cache-Control", "public, max-age=60")
	return send(w, c, contentType, `"`+hash8(body)+`"`, body)
}

// private marks an answer as one caller's view (AD-080).
func private(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Vary", "Authorization, Workload-Identity-Token, Accept-Encoding")
}

// hash8 tells the representations of one resource from each other. It need not
// withstand who looks for collisions, and an answer is hashed each time.
func hash8(body []byte) string { return hex8(xxhash.Sum64(body)) }

// hex8 is the end of a hash as text.
func hex8(hash uint64) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(hash))
	return hex.EncodeToString(b)
}

// strongTag is the entity tag of a registration at a revision, as served in
// body (AD-079).
func strongTag(revision uint64, body []byte) string {
	return fmt.Sprintf(`"%d.%s"`, revision, hash8(body))
}

// codedTag is the entity tag of a body's compressed form. A weak one is the same
// for both (RFC 9110, 8.8.1).
func codedTag(etag string) string {
	if strings.HasPrefix(etag, "W/") {
		return etag
	}
	return strings.TrimSuffix(etag, `"`) + `-gzip"`
}

// entityTags splits the values of If-Match or If-None-Match. Our own tags have
// no comma in them; those of others match nothing, however they are split.
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

// strongMatch is whether If-Match names etag, compared strongly, or anything
// that is there: a weak tag matches nothing (RFC 9110, 13.1.1).
func strongMatch(values []string, etag string) bool {
	return slices.ContainsFunc(entityTags(values), func(tag string) bool {
		return tag == "*" || tag == etag && !strings.HasPrefix(tag, "W/")
	})
}

// noneMatch is whether If-None-Match names etag, compared weakly, or all
// (RFC 9110, 13.1.2).
func noneMatch(values []string, etag string) bool {
	return slices.ContainsFunc(entityTags(values), func(tag string) bool {
		return tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/")
	})
}

// noRevision is none that a registration can be at: revisions start at 1.
const noRevision = 0

// A condition is what a write demands of what is there. The domain's leader
// decides it with the write itself.
type condition struct {
	revisions []uint64 // one of which must be the current one; nil for any
	present   bool     // If-Match: *
	absent    bool     // If-None-Match: *
}

// conditionOf reads a write's condition. If-Match is compared by the revision,
// strongly, so that a weak tag matches nothing.
func conditionOf(r *http.Request) (cond condition, err error) {
	if values := r.Header.Values("If-Match"); len(values) > 0 {
		cond.revisions = []uint64{}
		for _, tag := range entityTags(values) {
			if tag == "*" {
				cond.revisions, cond.present = nil, true
				break
			}
			if revision, ok := revisionOf(tag); ok { // what is no tag of ours, nothing has
				cond.revisions = append(cond.revisions, revision)
			}
		}
	}
	if values := r.Header.Values("If-None-Match"); len(values) > 0 {
		if !slices.Equal(entityTags(values), []string{"*"}) {
			return cond, directory.Refuse(directory.BadRequest, "If-None-Match is %.100q; a write takes only *, or If-Match with an entity tag.", strings.Join(values, ", "))
		}
		cond.absent = true
	}
	return cond, nil
}

// revisionOf returns the revision that a strong entity tag of ours is of.
func revisionOf(tag string) (revision uint64, ok bool) {
	number, _, ok := strings.Cut(strings.TrimPrefix(tag, `"`), ".")
	revision, err := strconv.ParseUint(number, 10, 64)
	return revision, ok && err == nil && strings.HasPrefix(tag, `"`)
}

// ofExisting returns the revisions that a write to a registration demands: that
// there be none at all is what no revision fulfils.
func (cond condition) ofExisting() []uint64 {
	if cond.absent {
		return []uint64{noRevision}
	}
	return cond.revisions
}

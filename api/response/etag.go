package response

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// Send answers a read with its current representation, unless the request's conditions
// say otherwise: 412 if If-Match names another representation, 304 if If-None-Match names
// this one (RFC 9110, 13.2.2). The entity tag is of the representation that this request
// gets: a compressed body has a strong tag of its own.
func Send(w http.ResponseWriter, call *request.Call, contentType, etag string, body []byte) error {
	etag = SetTag(w, call, contentType, etag, body)
	if !request.IfMatch(call.Header, etag) {
		return Mismatch(etag)
	}

	if request.IfNoneMatch(call.Header, etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}

	return Answer(w, call, contentType, body)
}

// Mismatch refuses a read whose If-Match names another representation than the current
// one.
func Mismatch(etag string) error {
	return directory.Refuse(directory.PreconditionFailed, "If-Match doesn't name the current entity tag, %s", etag)
}

// SetTag sets the entity tag of the representation that this request gets, and returns
// it.
func SetTag(w http.ResponseWriter, c *request.Call, contentType, etag string, body []byte) string {
	if Compresses(c.Request, contentType, body) {
		etag = CompressedTag(etag)
	}

	w.Header().Set("ETag", etag)
	vary(w.Header(), contentType)

	return etag
}

// SendPublic answers with a document that is the same for all callers.
func SendPublic(w http.ResponseWriter, c *request.Call, contentType string, body []byte) error {
	w.Header().Set("Cache-Control", "public, max-age=60")
	return Send(w, c, contentType, `"`+hash8(body)+`"`, body)
}

// Private marks an answer as the view of one caller (AD-080).
func Private(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Vary", "Authorization, Workload-Identity-Token, Accept-Encoding")
}

// NoStore forbids caches to keep the answer.
func NoStore(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }

// StrongTag is the entity tag of a registration at a revision, as served in body
// (AD-079).
func StrongTag(revision uint64, body []byte) string {
	return fmt.Sprintf(`"%d.%s"`, revision, hash8(body))
}

// WeakTag is the entity tag of a list by a hash of its items.
func WeakTag(hash uint64) string { return `W/"` + hex8(hash) + `"` }

// WeakTagOf is the entity tag of a list by its body.
func WeakTagOf(body []byte) string { return WeakTag(xxhash.Sum64(body)) }

// CompressedTag is the entity tag of a body's compressed form. A weak tag is the same
// for both forms (RFC 9110, 8.8.1).
func CompressedTag(etag string) string {
	if strings.HasPrefix(etag, "W/") {
		return etag
	}

	return strings.TrimSuffix(etag, `"`) + `-gzip"`
}

// Fingerprint is a short hash of b for identifiers that need not resist collisions made
// on purpose.
func Fingerprint(b []byte) string { return hash8(b) }

// hash8 tells the representations of one resource apart. It need not resist collisions
// made on purpose, and must be fast, because each answer is hashed.
func hash8(body []byte) string { return hex8(xxhash.Sum64(body)) }

// hex8 is the end of a hash in hexadecimal.
func hex8(hash uint64) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(hash))
	return hex.EncodeToString(b)
}

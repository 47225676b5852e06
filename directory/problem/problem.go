// Package problem writes the one answer that every HTTP listener of a node gives
// to a request that fails: application/problem+json with the members of RFC 9457
// (type, title, status, detail, instance), those of draft-xu (code, message,
// correlation_id, retry_after) and draft-cui's error object side by side.
//
// Explain finds the problem that an error carries, and Write answers with it:
//
//	if err := handle(w, r); err != nil {
//		problem.Write(w, publicURL, err)
//	}
//
// A listener that adds to the answer (challenges, compression, metrics) builds it
// from Refusal.SetHeader and Refusal.Body.
package problem

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// ContentType is the media type of every problem.
const ContentType = "application/problem+json"

// HeaderRequestID is the header that carries a request's id, both ways.
const HeaderRequestID = "X-Request-Id"

// A Refusal is an error with its HTTP headers and members.
type Refusal struct {
	Err     *directory.Error
	Header  http.Header         // header fields of the answer
	Members []strictjson.Member // extension members of the body
	Retry   int                 // seconds to wait; 0 is the rule's
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// Rule returns the rule of the refusal's problem.
func (r *Refusal) Rule() Rule { return RuleOf(r.Err.Problem) }

// RetryAfter is the number of seconds after which the client may retry, or 0.
func (r *Refusal) RetryAfter() int { return cmp.Or(r.Retry, r.Rule().Retry) }

// Explain returns the refusal in err that a client sees. An error without a known problem is
// internal, and its cause is for the log alone.
func Explain(err error) *Refusal {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal
	}

	if known, ok := errors.AsType[*directory.Error](err); ok {
		// A problem without a rule has no status to answer with.
		if _, ok := rules[known.Problem]; ok {
			return &Refusal{Err: known, Retry: known.RetryAfter}
		}
	}

	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &Refusal{Err: directory.Refuse(directory.TooLarge,
			"the body has more than the %d bytes that are allowed", tooLarge.Limit)}
	case errors.Is(err, context.DeadlineExceeded):
		return &Refusal{Err: directory.Refuse(timeout, "the answer did not come in time")}
	}

	return &Refusal{Err: &directory.Error{
		Problem: directory.Internal,
		Detail:  "something went wrong here; the node's log has it under this correlation_id",
		Err:     err,
	}}
}

// SetHeader sets the header fields of the answer.
func (r *Refusal) SetHeader(header http.Header) {
	maps.Copy(header, r.Header)

	if retry := r.RetryAfter(); retry > 0 {
		header.Set("Retry-After", strconv.Itoa(retry))
	}

	header.Set("Content-Type", ContentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
}

// Body returns the body of the answer. The directory at base, its public URL,
// explains the problem; with an empty base the type is relative to the request.
func (r *Refusal) Body(base, requestID string) []byte {
	rule := r.Rule()

	// The detail quotes texts of callers, and JSON holds no invalid UTF-8.
	detail := strings.ToValidUTF8(sentence(cmp.Or(r.Err.Detail, rule.Title)), "\uFFFD")

	data := strictjson.AppendText([]byte{'{'}, "type", TypeURI(base, r.Err.Problem))
	data = strictjson.AppendText(data, "title", rule.Title)
	data = strictjson.AppendUint(data, "status", uint64(rule.Status))
	data = strictjson.AppendText(data, "detail", detail)

	data = strictjson.AppendText(data, "instance", "urn:uuid:"+instanceOf(requestID))
	if r.Err.Pointer != "" {
		data = strictjson.AppendText(data, "pointer", r.Err.Pointer)
	}

	if len(r.Err.Violations) > 0 {
		data = strictjson.AppendRaw(data, "errors", strictjson.AppendList(nil, r.Err.Violations, appendViolation))
	}

	// These are draft-xu's members, and error is draft-cui's: one body serves the clients of each draft.
	data = strictjson.AppendText(data, "code", rule.Code)
	data = strictjson.AppendText(data, "message", detail)

	data = strictjson.AppendText(data, "correlation_id", requestID)
	if retry := r.RetryAfter(); retry > 0 {
		data = strictjson.AppendUint(data, "retry_after", uint64(retry))
	}

	for _, m := range r.Members {
		data = strictjson.AppendRaw(data, m.Name, m.Value)
	}

	inner := strictjson.AppendText([]byte{'{'}, "code", rule.ErrorCode)
	inner = append(strictjson.AppendText(inner, "message", detail), '}')

	return append(strictjson.AppendRaw(data, "error", inner), '}', '\n')
}

// sentence returns the text of an error as a sentence. Errors begin in lower case and have no
// final period; so do they in logs and on a terminal. A text that begins with the name of a
// parameter, or with a value, keeps its first letter.
func sentence(text string) string {
	first, rest, _ := strings.Cut(text, " ")
	second, _, _ := strings.Cut(rest, " ")

	if openers[first] || openers[first+" "+second] {
		text = strings.ToUpper(text[:1]) + text[1:]
	}

	if text == "" || strings.ContainsAny(text[len(text)-1:], ".?!") {
		return text
	}

	return text + "."
}

// openers are words that begin a sentence and never are the name of a parameter. The pair
// begins a text that the Agent Directory's draft gives (jimenez, 4.2).
var openers = map[string]bool{
	"a": true, "agent name": true, "all": true, "an": true, "another": true, "at": true, "both": true, "each": true,
	"every": true,
	"in":    true, "it": true, "neither": true, "no": true, "nothing": true, "one": true, "only": true, "other": true,
	"several": true, "some": true, "something": true, "that": true, "the": true, "there": true, "these": true,
	"this": true, "too": true, "you": true, "your": true,
}

func appendViolation(data []byte, violation directory.Violation) []byte {
	data = strictjson.AppendText(append(data, '{'), "pointer", violation.Pointer)
	detail := strings.ToValidUTF8(sentence(violation.Detail), "\uFFFD")

	return append(strictjson.AppendText(data, "detail", detail), '}')
}

// TypeURI is the type of a problem; the directory at base has a page there.
func TypeURI(base string, p directory.Problem) string { return base + "/problems/" + string(p) }

// Write answers with err's problem. Its correlation_id is the X-Request-Id that the
// answer has already; without one, a new one is set.
func Write(w http.ResponseWriter, base string, err error) {
	header := w.Header()
	if header.Get(HeaderRequestID) == "" {
		header.Set(HeaderRequestID, NewRequestID())
	}

	refusal := Explain(err)
	body := refusal.Body(base, header.Get(HeaderRequestID))

	refusal.SetHeader(header)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(refusal.Rule().Status)
	_, _ = w.Write(body) // the client is gone if it fails
}

var harmlessRequestID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// RequestID returns the request's own id if it is harmless, else a new one.
func RequestID(r *http.Request) string {
	if id := r.Header.Get(HeaderRequestID); harmlessRequestID.MatchString(id) {
		return id
	}

	return NewRequestID()
}

// NewRequestID makes a request's id: a random UUID (RFC 9562, 5.4).
func NewRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])

	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

var uuid = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// instanceOf returns the request's id if it is a UUID, else a new UUID.
func instanceOf(requestID string) string {
	if uuid.MatchString(requestID) {
		return strings.ToLower(requestID)
	}

	return NewRequestID()
}

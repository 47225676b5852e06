package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// The problems that HTTP itself brings, beside those of package directory.
const (
	MethodNotAllowed directory.Problem = "method-not-allowed"
	MediaType        directory.Problem = "unsupported-media-type"
	URITooLong       directory.Problem = "uri-too-long"
	HeaderTooLarge   directory.Problem = "header-too-large"
	NotImplemented   directory.Problem = "not-implemented"
	Upstream         directory.Problem = "upstream"
	Timeout          directory.Problem = "timeout"
	// UnsupportedFilter is the answer to a strict request for discovery (XU-012).
	UnsupportedFilter directory.Problem = "unsupported-filter"
)

// A ruling is what HTTP makes of a problem: the status, the title, the codes of
// draft-xu (code) and draft-cui (error.code), and how many seconds to wait.
type ruling struct {
	status      int
	title       string
	xu, cui     string
	retry       int
	explanation string // of /problems/NAME: what it means and what to do
}

// rulings is the one table of problems (spec/views.md, "Errors").
var rulings = map[directory.Problem]ruling{
	directory.BadRequest: {400, "Bad request", "invalid_request", "InvalidInput", 0,
		"The request can't be understood. Its detail says what is wrong, its pointer where in the body."},
	directory.BadName: {400, "Bad agent name", "invalid_request", "InvalidInput", 0,
		"An agent name is 1 to 255 bytes of UTF-8 without control characters and without an asterisk, and doesn't have the form of a registration id."},
	directory.BadLifetime: {400, "Bad lifetime", "invalid_request", "InvalidInput", 0,
		"lt is a whole number of seconds from 60 to 4294967295, and where the directory's operator says so, from more on. What exceeds the directory's maximum is granted the maximum."},
	directory.BadDocument: {400, "Bad document", "invalid_request", "InvalidInput", 0,
		"The document breaks a rule of its kind. The pointer names the member."},
	directory.BadQuery: {400, "Bad query", "invalid_request", "InvalidInput", 0,
		"A query parameter that the directory knows has a value that it can't have."},
	directory.TooManyCapabilities: {400, "Too many capabilities", "invalid_request", "InvalidInput", 0,
		"A registration has at most 128 capabilities. Register several agents, or fewer and broader capabilities."},
	directory.TooLarge: {413, "Content too large", "invalid_request", "InvalidRequest", 0,
		"A registration's document has at most 64 KiB. Keep schemas short, or refer to them."},
	directory.Unauthenticated: {401, "Authentication required", "unauthorized", "Unauthorized", 0,
		"This needs a verified identity. Present an X.509-SVID as TLS client certificate, or show it another way that /.well-known/ad lists."},
	directory.Replayed: {401, "Proof used before", "unauthorized", "Unauthorized", 0,
		"A workload proof token is good for one change, one invocation or one stream. Make a new one for each request, with a jti of its own."},
	directory.Forbidden: {403, "Forbidden", "forbidden", "Forbidden", 0,
		"You are known, and may not do this. Where policy decided, the policies are named."},
	directory.ForeignRegistration: {403, "Registration of another domain", "forbidden", "Forbidden", 0,
		"This is a copy of another domain's registration; only its origin changes it. origin_href is where."},
	directory.CapabilityNotPermitted: {403, "Capability not permitted", "forbidden", "Forbidden", 0,
		"Policy doesn't let its owner claim the capability that is named, by its name, type or tags. Register without it, or ask the directory's operator."},
	directory.QuotaExceeded: {403, "Quota exceeded", "forbidden", "Forbidden", 0,
		"The directory allows an identity, and the whole domain, so many registrations and so many bytes of documents. The detail names the limit, what is in use and what is allowed. Remove a registration, make documents smaller, or ask the directory's operator for more."},
	directory.NotFound: {404, "Not found", "not_found", "NotFound", 0,
		"There is nothing here, or nothing that you may see."},
	directory.RegistrationExpired: {404, "Registration has expired", "not_found", "NotFound", 0,
		"The registration was not refreshed before its lifetime ended. Register the agent again."},
	directory.NameTaken: {409, "Agent name already registered", "conflict", "Conflict", 0,
		"Another identity holds this agent name. It is free again once that registration is removed or has expired, or some time later where the directory holds names for their former registrants. That a name is taken is told to everyone who wants it, also where the registration itself may not be seen."},
	directory.WrongKind: {409, "Registration of another kind", "conflict", "Conflict", 0,
		"The registration's document is not of the kind that this surface writes. Write it through its own."},
	directory.StaleMetadata: {409, "Stale metadata", "stale_metadata", "Stale", 0,
		"The document says itself that it is out of date."},
	directory.PreconditionFailed: {412, "Precondition failed", "conflict", "PreconditionFailed", 0,
		"The registration isn't at the revision that If-Match names, or the policy isn't of the version. Read it again, and decide again."},
	directory.Conflict: {409, "Conflict", "conflict", "Conflict", 0,
		"What is asked for does not fit what is there. The detail says what stands against it."},
	directory.RateLimited: {429, "Too many requests", "rate_limited", "RateLimited", 1,
		"You ask more often than the directory allows you to. Wait for retry_after seconds."},
	directory.Unavailable: {503, "Unavailable", "unavailable", "Unavailable", 1,
		"The directory can't answer now: most often, it has no leader. Nothing was changed. Try again, here or at another node."},
	directory.Overtaken: {503, "Overtaken by other changes", "unavailable", "Unavailable", 1,
		"The domain's policy, or the registration, changed again and again while this was decided. Nothing was changed. Try again."},
	directory.OutcomeUnknown: {503, "Outcome unknown", "unavailable", "Unavailable", 1,
		"The change may have happened or not: the leader was lost on the way. Repeating it is safe."},
	directory.Internal: {500, "Internal error", "internal", "InternalError", 0,
		"The fault is the directory's. Give correlation_id to its operator."},
	directory.BadInput: {400, "Invalid input", "invalid_request", "InvalidInput", 0,
		"The input doesn't meet the schema that the agent's registration has for the operation. The pointer names the field. Nothing was sent."},
	directory.NotInvocable: {501, "Agent can't be invoked from here", "not_supported", "NotInvocable", 0,
		"The agent is reached by no protocol that this node's gateway speaks (HTTPS, WoA, MCP over HTTP, A2A over JSON-RPC or HTTP+JSON), or its schemas can't be used. Call the agent yourself at its endpoint."},
	directory.EndpointRefused: {403, "Endpoint refused", "forbidden", "Forbidden", 0,
		"The agent's endpoint breaks a rule of the guard that all requests of this node to agents go through: scheme, port or address. The detail names the rule. Nothing was sent."},
	directory.KeyReused: {422, "Idempotency key used for another request", "invalid_request", "InvalidInput", 0,
		"The Idempotency-Key was used with another body before. Use a new key for a new request."},
	directory.KeyInUse: {409, "First request with this key under way", "conflict", "Conflict", 0,
		"A request with this Idempotency-Key is under way, at this node or another of the domain. Nothing was sent to the agent again. Repeat the request later: it then gets the first one's answer."},
	directory.KeySpent: {409, "Answer to this key is not kept", "conflict", "Conflict", 0,
		"The agent may have been invoked with this Idempotency-Key before, and what it answered can't be given again: it was a stream, or too large to keep, or the node that asked was lost on the way. Nothing was sent again. Ask the agent what it did before you repeat the request with another key."},
	directory.AgentFailed: {502, "Agent failed", "unavailable", "AgentError", 0,
		"The agent could not be reached, failed, or answered with something that is no result. It may have acted all the same."},
	directory.AgentUnavailable: {503, "Agent unavailable", "unavailable", "Unavailable", 5,
		"The agent says that it is not available. Wait for retry_after seconds."},
	directory.AgentTimeout: {504, "Agent did not answer in time", "unavailable", "Timeout", 0,
		"The agent did not answer in time. It may have acted all the same."},
	directory.AgentBadRequest: {400, "Agent refused the input", "invalid_request", "InvalidInput", 0,
		"The agent itself answered 400. The detail has its words."},
	directory.AgentUnauthorized: {401, "Agent asks for credentials", "unauthorized", "Unauthorized", 0,
		"The agent itself answered 401 to the credentials that came with the request and that this node passes on."},
	directory.AgentForbidden: {403, "Agent refuses the caller", "forbidden", "Forbidden", 0,
		"The agent itself answered 403 to the credentials that came with the request and that this node passes on."},
	directory.AgentNotFound: {404, "Agent found nothing", "not_found", "NotFound", 0,
		"The agent itself answered 404. The detail has its words."},
	directory.AgentConflict: {409, "Agent met a conflict", "conflict", "Conflict", 0,
		"The agent itself answered 409. The detail has its words."},
	directory.AgentTooLarge: {413, "Too large for the agent", "invalid_request", "InvalidRequest", 0,
		"The agent itself answered 413. The detail has its words."},
	directory.AgentUnprocessable: {422, "Agent can't process the input", "invalid_request", "InvalidInput", 0,
		"The agent itself answered 422. The detail has its words."},
	directory.AgentRateLimited: {429, "Agent is asked too often", "rate_limited", "RateLimited", 1,
		"The agent itself answered 429. Wait for retry_after seconds."},
	MethodNotAllowed: {405, "Method not allowed", "invalid_request", "InvalidRequest", 0,
		"This resource doesn't have this method. Allow names those that it has."},
	MediaType: {415, "Unsupported media type", "invalid_request", "InvalidRequest", 0,
		"Bodies are JSON: say so with Content-Type: application/json."},
	UnsupportedFilter: {422, "Unsupported filter", "unsupported_filter", "UnsupportedFilter", 0,
		"The request is strict, and has a filter that this directory can't apply. unsupported_filters names it; /.well-known/agent-discovery lists those that are known."},
	URITooLong: {414, "URI too long", "invalid_request", "InvalidRequest", 0,
		"A request's URI has at most 8 KiB."},
	HeaderTooLarge: {431, "Header fields too large", "invalid_request", "InvalidRequest", 0,
		"A request's header fields have at most 16 KiB together."},
	NotImplemented: {501, "Not implemented", "not_supported", "NotInvocable", 0,
		"The directory doesn't know this method on any resource."},
	Upstream: {502, "Bad answer from another domain", "unavailable", "AgentError", 0,
		"What another domain had to deliver for this could not be had, or did not verify."},
	Timeout: {504, "Timeout", "unavailable", "Timeout", 0,
		"What another node had to deliver for this did not come in time."},
}

// A refusal is a *directory.Error with what HTTP adds to it.
type refusal struct {
	err     *directory.Error
	header  http.Header
	members []directory.Member // extension members of the problem body
	retry   int                // seconds to wait; the ruling's where it is 0
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// explain finds in err what a client is told. What carries no problem is
// internal, and its cause is for the log alone.
func explain(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	var e *directory.Error
	if errors.As(err, &e) {
		if _, known := rulings[e.Problem]; known {
			return &refusal{err: e, retry: e.RetryAfter}
		}
	}
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return &refusal{err: directory.Refuse(directory.TooLarge, "The body has more than the %d bytes that are allowed.", big.Limit)}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{err: directory.Refuse(Timeout, "The answer did not come in time.")}
	}
	return &refusal{err: &directory.Error{Problem: directory.Internal, Detail: "Something went wrong here; the node's log has it under this correlation_id.", Err: err}}
}

// clientGone is what metrics and the log have as the status of a request whose
// client went away before there was an answer. It reaches nobody.
const clientGone = 499

// fail answers the request with err's problem body. Where err is that the client
// has gone, there is nobody to answer, and the fault is not the directory's.
func (s *Server) fail(w http.ResponseWriter, c *call, err error) {
	if errors.Is(err, context.Canceled) && errors.Is(c.Context().Err(), context.Canceled) && directory.ProblemOf(err) == directory.Internal {
		w.WriteHeader(clientGone)
		return
	}
	r := explain(err)
	rule := rulings[r.err.Problem]
	switch {
	case rule.status == http.StatusInternalServerError:
		s.log.Error("request failed", "request_id", c.requestID, "detail", r.err.Detail, "err", r.err.Err)
	case rule.status > http.StatusNotImplemented:
		s.log.Warn("request not answered", "request_id", c.requestID, "problem", string(r.err.Problem), "detail", r.err.Detail, "err", r.err.Err)
	}
	h := w.Header()
	for _, name := range []string{"Etag", "Last-Modified", "Location", "Content-Location", "Link", "Sunset"} {
		h.Del(name) // of the answer that this one takes the place of
	}
	for name, values := range r.header {
		h[name] = values
	}
	if rule.status == http.StatusUnauthorized {
		h["Www-Authenticate"] = s.challenges(c)
	}
	if r.err.Problem == directory.Replayed {
		s.cfg.Refused("replayed")
	}
	if retry := cmp.Or(r.retry, rule.retry); retry > 0 {
		h.Set("Retry-After", strconv.Itoa(retry))
	}
	h.Set("Cache-Control", "no-store")
	write(w, c.Request, rule.status, "application/problem+json", problemBody(s.cfg.PublicURL, c.requestID, r, rule))
}

// problemBody writes RFC 9457's members, draft-xu's and draft-cui's side by side.
// The directory at base explains the problem.
func problemBody(base, requestID string, r *refusal, rule ruling) []byte {
	detail := r.err.Detail
	if detail == "" {
		detail = rule.title
	}
	detail = strings.ToValidUTF8(detail, "\uFFFD")
	b := directory.AppendText([]byte{'{'}, "type", base+"/problems/"+string(r.err.Problem))
	b = directory.AppendText(b, "title", rule.title)
	b = directory.AppendUint(b, "status", uint64(rule.status))
	b = directory.AppendText(b, "detail", detail)
	b = directory.AppendText(b, "instance", "urn:uuid:"+instanceOf(requestID))
	if r.err.Pointer != "" {
		b = directory.AppendText(b, "pointer", r.err.Pointer)
	}
	if len(r.err.Violations) > 0 {
		b = list(directory.AppendRaw(b, "errors", nil), r.err.Violations, func(b []byte, v directory.Violation) []byte {
			b = directory.AppendText(append(b, '{'), "pointer", v.Pointer)
			return append(directory.AppendText(b, "detail", strings.ToValidUTF8(v.Detail, "\uFFFD")), '}')
		})
	}
	b = directory.AppendText(b, "code", rule.xu)
	b = directory.AppendText(b, "message", detail)
	b = directory.AppendText(b, "correlation_id", requestID)
	if retry := cmp.Or(r.retry, rule.retry); retry > 0 {
		b = directory.AppendUint(b, "retry_after", uint64(retry))
	}
	for _, m := range r.members {
		b = directory.AppendRaw(b, m.Name, m.Value)
	}
	inner := directory.AppendText([]byte{'{'}, "code", rule.cui)
	inner = append(directory.AppendText(inner, "message", detail), '}')
	return append(directory.AppendRaw(b, "error", inner), '}', '\n')
}

// problemPage explains one problem to whoever follows its type (AD-033).
func (s *Server) problemPage(w http.ResponseWriter, c *call) error {
	name := directory.Problem(c.vars["name"])
	rule, ok := rulings[name]
	if !ok {
		return directory.Refuse(directory.NotFound, "There is no problem called %.100q.", name)
	}
	b := directory.AppendText([]byte{'{'}, "type", s.cfg.PublicURL+"/problems/"+string(name))
	b = directory.AppendText(b, "title", rule.title)
	b = directory.AppendUint(b, "status", uint64(rule.status))
	b = append(directory.AppendText(b, "explanation", rule.explanation), '}', '\n')
	return sendPublic(w, c, "application/json", b)
}

// newUUID makes a random UUID (RFC 9562, 5.4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// instanceOf returns the request's id where it is a UUID, else a new UUID.
func instanceOf(requestID string) string {
	groups := strings.Split(requestID, "-")
	if len(requestID) != 36 || len(groups) != 5 {
		return newUUID()
	}
	for i, n := range []int{8, 4, 4, 4, 12} {
		if _, err := hex.DecodeString(groups[i]); err != nil || len(groups[i]) != n {
			return newUUID()
		}
	}
	return strings.ToLower(requestID)
}

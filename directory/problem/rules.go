package problem

import (
	"maps"
	"slices"

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
	// Misdirected is for members of the own domain: the one asked doesn't lead it.
	Misdirected directory.Problem = "misdirected"
	// UnsupportedFilter is the answer to a strict request for discovery (XU-012).
	UnsupportedFilter directory.Problem = "unsupported-filter"
)

// A Rule is what HTTP makes of a problem.
type Rule struct {
	Status      int
	Title       string
	Code        string // draft-xu's code
	ErrorCode   string // draft-cui's error.code
	Retry       int    // seconds to wait; 0 says nothing of that
	Explanation string // of /problems/NAME: what it means and what to do
}

// rules is the one table of problems.
var rules = map[directory.Problem]Rule{
	directory.BadRequest: {400, "Bad request", "invalid_request", "InvalidInput", 0,
		"The request can't be understood. Its detail says what is wrong, its pointer where in the body."},
	directory.BadName: {400, "Bad agent name", "invalid_request", "InvalidInput", 0,
		"An agent name is 1 to 255 bytes of UTF-8 without control characters and without an asterisk, and " +
			"doesn't have the form of a registration id."},
	directory.BadLifetime: {400, "Bad lifetime", "invalid_request", "InvalidInput", 0,
		"lt is a whole number of seconds from 60 to 4294967295, and where the directory's operator says so, from " +
			"more on. What exceeds the directory's maximum is granted the maximum."},
	directory.BadDocument: {400, "Bad document", "invalid_request", "InvalidInput", 0,
		"The document breaks a rule of its kind. The pointer names the member."},
	directory.BadQuery: {400, "Bad query", "invalid_request", "InvalidInput", 0,
		"A query parameter that the directory knows has a value that it can't have."},
	directory.TooManyCapabilities: {400, "Too many capabilities", "invalid_request", "InvalidInput", 0,
		"A registration has at most 128 capabilities. Register several agents, or fewer and broader capabilities."},
	directory.TooLarge: {413, "Content too large", "invalid_request", "InvalidRequest", 0,
		"A registration's document has at most 64 KiB. Keep schemas short, or refer to them."},
	directory.Unauthenticated: {401, "Authentication required", "unauthorized", "Unauthorized", 0,
		"This needs a verified identity. Present an X.509-SVID as TLS client certificate, or show it another way " +
			"that /.well-known/ad lists."},
	directory.Replayed: {401, "Proof used before", "unauthorized", "Unauthorized", 0,
		"A workload proof token is good for one change, one invocation or one stream. Make a new one for each " +
			"request, with a jti of its own."},
	directory.Forbidden: {403, "Forbidden", "forbidden", "Forbidden", 0,
		"You are known, and may not do this. Where policy decided, the policies are named."},
	directory.ForeignRegistration: {403, "Registration of another domain", "forbidden", "Forbidden", 0,
		"This is a copy of another domain's registration; only its origin changes it. origin_href is where."},
	directory.CapabilityNotPermitted: {403, "Capability not permitted", "forbidden", "Forbidden", 0,
		"Policy doesn't let its owner claim the capability that is named, by its name, type or tags. Register " +
			"without it, or ask the directory's operator."},
	directory.QuotaExceeded: {403, "Quota exceeded", "forbidden", "Forbidden", 0,
		"The directory allows an identity, and the whole domain, so many registrations and so many bytes of " +
			"documents. The detail names the limit, what is in use and what is allowed. Remove a registration, " +
			"make documents smaller, or ask the directory's operator for more."},
	directory.NotFound: {404, "Not found", "not_found", "NotFound", 0,
		"There is nothing here, or nothing that you may see."},
	directory.RegistrationExpired: {404, "Registration has expired", "not_found", "NotFound", 0,
		"The registration was not refreshed before its lifetime ended. Register the agent again."},
	directory.NameTaken: {409, "Agent name already registered", "conflict", "Conflict", 0,
		"Another identity holds this agent name. It is free again once that registration is removed or has " +
			"expired, or some time later where the directory holds names for their former registrants. That a " +
			"name is taken is told to everyone who wants it, also where the registration itself may not be seen."},
	directory.WrongKind: {409, "Registration of another kind", "conflict", "Conflict", 0,
		"The registration's document is not of the kind that this surface writes. Write it through its own."},
	directory.StaleMetadata: {409, "Stale metadata", "stale_metadata", "Stale", 0,
		"The document says itself that it is out of date."},
	directory.PreconditionFailed: {412, "Precondition failed", "conflict", "PreconditionFailed", 0,
		"The registration isn't at the revision that If-Match names, or the policy isn't of the version. Read it " +
			"again, and decide again."},
	directory.Conflict: {409, "Conflict", "conflict", "Conflict", 0,
		"What is asked for does not fit what is there. The detail says what stands against it."},
	directory.RateLimited: {429, "Too many requests", "rate_limited", "RateLimited", 1,
		"You ask more often than the directory allows you to. Wait for retry_after seconds."},
	directory.Unavailable: {503, "Unavailable", "unavailable", "Unavailable", 1,
		"The directory can't answer now: most often, it has no leader. Nothing was changed. Try again, here or " +
			"at another node."},
	directory.Overloaded: {503, "Overloaded", "unavailable", "Unavailable", 1,
		"This node has more to do than it can, or too little memory. It sheds queries first, then lookups, then " +
			"registrations, and refreshes last. Nothing was changed. Wait for retry_after seconds, or ask " +
			"another node."},
	directory.Overtaken: {503, "Overtaken by other changes", "unavailable", "Unavailable", 1,
		"The domain's policy, or the registration, changed again and again while this was decided. Nothing was " +
			"changed. Try again."},
	directory.OutcomeUnknown: {503, "Outcome unknown", "unavailable", "Unavailable", 1,
		"The change may have happened or not: the leader was lost on the way. Repeating it is safe."},
	directory.Internal: {500, "Internal error", "internal", "InternalError", 0,
		"The fault is the directory's. Give correlation_id to its operator."},
	directory.BadInput: {400, "Invalid input", "invalid_request", "InvalidInput", 0,
		"The input doesn't meet the schema that the agent's registration has for the operation. The pointer " +
			"names the field. Nothing was sent."},
	directory.NotInvocable: {501, "Agent can't be invoked from here", "not_supported", "NotInvocable", 0,
		"The agent is reached by no protocol that this node's gateway speaks (HTTPS, WoA, MCP over HTTP, A2A " +
			"over JSON-RPC or HTTP+JSON), or its schemas can't be used. Call the agent yourself at its endpoint."},
	directory.EndpointRefused: {403, "Endpoint refused", "forbidden", "Forbidden", 0,
		"The agent's endpoint breaks a rule of the guard that all requests of this node to agents go through: " +
			"scheme, port or address. The detail names the rule. Nothing was sent."},
	directory.KeyReused: {422, "Idempotency key used for another request", "invalid_request", "InvalidInput", 0,
		"The Idempotency-Key was used with another body before. Use a new key for a new request."},
	directory.KeyInUse: {409, "First request with this key under way", "conflict", "Conflict", 0,
		"A request with this Idempotency-Key is under way, at this node or another of the domain. Nothing was " +
			"sent to the agent again. Repeat the request later: it then gets the first one's answer."},
	directory.KeySpent: {409, "Answer to this key is not kept", "conflict", "Conflict", 0,
		"The agent may have been invoked with this Idempotency-Key before, and what it answered can't be given " +
			"again: it was a stream, or too large to keep, or the node that asked was lost on the way. Nothing " +
			"was sent again. Ask the agent what it did before you repeat the request with another key."},
	directory.AgentFailed: {502, "Agent failed", "unavailable", "AgentError", 0,
		"The agent could not be reached, failed, or answered with something that is no result. It may have acted " +
			"all the same."},
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
		"The request is strict, and has a filter that this directory can't apply. unsupported_filters names it; " +
			"/.well-known/agent-discovery lists those that are known."},
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
	Misdirected: {421, "Misdirected request", "invalid_request", "InvalidRequest", 0,
		"The member that was asked doesn't lead the domain, and only the leader can answer this. Ask the leader."},
}

// RuleOf returns the rule of a problem; the zero Rule if it has none.
func RuleOf(p directory.Problem) Rule { return rules[p] }

// All returns every problem that has a rule, sorted by name.
func All() []directory.Problem {
	return slices.Sorted(maps.Keys(rules))
}

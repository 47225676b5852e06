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
	timeout          directory.Problem = "timeout"
	// Misdirected is for members of the own domain: the one asked doesn't lead it. And for
	// callers of the admin listener by a name that isn't its own.
	Misdirected directory.Problem = "misdirected"
	// UnsupportedFilter is the answer to a strict request for discovery (XU-012).
	UnsupportedFilter directory.Problem = "unsupported-filter"
)

// A Rule is the HTTP form of a problem.
type Rule struct {
	Status      int
	Title       string
	Code        string // draft-xu's code
	ErrorCode   string // draft-cui's error.code
	Retry       int    // seconds to wait; 0 says nothing of that
	Explanation string // of /problems/NAME: the meaning and the remedy
}

// rules is the one table of problems.
var rules = map[directory.Problem]Rule{
	directory.BadRequest: {400, "Bad request", "invalid_request", "InvalidInput", 0,
		"The request is malformed. The detail describes the fault; the pointer locates it in the body."},
	directory.BadName: {400, "Bad agent name", "invalid_request", "InvalidInput", 0,
		"An agent name is 1 to 255 bytes of UTF-8 without control characters and without an asterisk, and " +
			"doesn't have the form of a registration id."},
	directory.BadLifetime: {400, "Bad lifetime", "invalid_request", "InvalidInput", 0,
		"lt is a whole number of seconds from 60 to 4294967295; an operator may configure a higher minimum. A " +
			"lifetime over the directory's maximum is granted as the maximum."},
	directory.BadDocument: {400, "Bad document", "invalid_request", "InvalidInput", 0,
		"The document breaks a rule of its kind. The pointer names the member."},
	directory.BadQuery: {400, "Bad query", "invalid_request", "InvalidInput", 0,
		"A query parameter has an invalid value."},
	directory.TooManyCapabilities: {400, "Too many capabilities", "invalid_request", "InvalidInput", 0,
		"A registration has at most 128 capabilities. Register several agents, or fewer and broader capabilities."},
	directory.TooLarge: {413, "Content too large", "invalid_request", "InvalidRequest", 0,
		"A registration's document has at most 64 KiB. Shorten its schemas and descriptions."},
	directory.Unauthenticated: {401, "Authentication required", "unauthorized", "Unauthorized", 0,
		"This request needs a verified identity. Present an X.509-SVID as TLS client certificate, or a credential " +
			"that /.well-known/ad lists."},
	directory.Replayed: {401, "Proof used before", "unauthorized", "Unauthorized", 0,
		"A workload proof token is good for one change, one invocation or one stream. Make a new one for each " +
			"request, with a jti of its own."},
	directory.Forbidden: {403, "Forbidden", "forbidden", "Forbidden", 0,
		"The caller is authenticated but not permitted to do this. If policy decided, the detail names the policies."},
	directory.ForeignRegistration: {403, "Registration of another domain", "forbidden", "Forbidden", 0,
		"This is a copy of another domain's registration. Change it at its origin; origin_authority is its domain, " +
			"and origin_href its URL."},
	directory.CapabilityNotPermitted: {403, "Capability not permitted", "forbidden", "Forbidden", 0,
		"Policy doesn't permit the owner to claim the capability in the detail, by its name, type or tags. " +
			"Register without it, or ask the directory's operator."},
	directory.QuotaExceeded: {403, "Quota exceeded", "forbidden", "Forbidden", 0,
		"The directory limits the registrations and the bytes of documents of each identity and of the domain. " +
			"The detail names the limit, what is in use and what is allowed. Remove a registration, " +
			"make documents smaller, or ask the directory's operator for more."},
	directory.OwnerOutsideDomain: {403, "Owner outside the domain", "forbidden", "Forbidden", 0,
		"Registrations are owned by identities of the directory's own trust domain, or of token issuers that its " +
			"configuration calls its own. Register at the directory of the owner's domain."},
	directory.OfferChanged: {409, "Offer has changed", "conflict", "Conflict", 0,
		"The registration has other contents than when it was offered, so the offer can't be accepted. " +
			"Its owner may offer it again."},
	directory.NotFound: {404, "Not found", "not_found", "NotFound", 0,
		"The resource doesn't exist, or the caller may not see it."},
	directory.RegistrationExpired: {404, "Registration has expired", "not_found", "NotFound", 0,
		"The registration was not refreshed before its lifetime ended. Register the agent again."},
	directory.NameTaken: {409, "Agent name already registered", "conflict", "Conflict", 0,
		"Another identity holds this agent name. It is free again once that registration is removed or has " +
			"expired, or later if the directory reserves names for their former owners. Any caller may " +
			"learn that a name is taken, even if the registration itself is hidden from it."},
	directory.WrongKind: {409, "Registration of another kind", "conflict", "Conflict", 0,
		"The registration's document is of another kind than this surface writes. Use the surface of its kind."},
	directory.StaleMetadata: {409, "Stale metadata", "stale_metadata", "Stale", 0,
		"The document states that it is out of date."},
	directory.PreconditionFailed: {412, "Precondition failed", "conflict", "PreconditionFailed", 0,
		"The registration or the policy has changed since the version in If-Match. Read it again before you " +
			"repeat the change."},
	directory.Conflict: {409, "Conflict", "conflict", "Conflict", 0,
		"The change conflicts with the present state. The detail describes the conflict."},
	directory.RateLimited: {429, "Too many requests", "rate_limited", "RateLimited", 1,
		"The caller exceeded its rate limit. Wait for retry_after seconds."},
	directory.Unavailable: {503, "Unavailable", "unavailable", "Unavailable", 1,
		"The directory can't answer now, most often because it has no leader. Nothing was changed. Retry at " +
			"this node or another."},
	directory.Overloaded: {503, "Overloaded", "unavailable", "Unavailable", 1,
		"This node is overloaded or short of memory. It sheds queries first, then lookups, then " +
			"registrations, and refreshes last. Nothing was changed. Wait for retry_after seconds, or ask " +
			"another node."},
	directory.NotVoter: {503, "Not a voter", "unavailable", "Unavailable", 0,
		"This node has no vote in its domain, so it takes no operator's changes. Nothing was changed. Ask one " +
			"of the voters, whose URLs the detail names."},
	directory.PositionLost: {503, "Position lost", "unavailable", "Unavailable", 0,
		"A position in min is of an earlier epoch: the domain was restored from a backup that doesn't have it. " +
			"It will never be reached. Read again without it."},
	directory.Overtaken: {503, "Overtaken by other changes", "unavailable", "Unavailable", 1,
		"Concurrent changes of the domain's policy or of the registration overtook this one. Nothing was " +
			"changed. Retry."},
	directory.OutcomeUnknown: {503, "Outcome unknown", "unavailable", "Unavailable", 1,
		"The connection to the leader failed before the outcome was known. Repeating the change is safe."},
	directory.Internal: {500, "Internal error", "internal", "InternalError", 0,
		"The directory failed. Report correlation_id to its operator."},
	directory.BadInput: {400, "Invalid input", "invalid_request", "InvalidInput", 0,
		"The input doesn't meet the schema of the operation in the agent's registration. The pointer locates " +
			"the field. Nothing was sent."},
	directory.NotInvocable: {501, "Agent can't be invoked from here", "not_supported", "NotInvocable", 0,
		"The agent has no binding of a protocol that this node's gateway supports (HTTPS, WoA, MCP over HTTP, " +
			"A2A over JSON-RPC or HTTP+JSON), or its schemas can't be applied. Call the agent at its endpoint."},
	directory.EndpointRefused: {403, "Endpoint refused", "forbidden", "Forbidden", 0,
		"The agent's endpoint breaks a rule of the guard for outbound requests: scheme, port or address. The " +
			"detail names the rule. Nothing was sent."},
	directory.KeyReused: {422, "Idempotency key used for another request", "invalid_request", "InvalidInput", 0,
		"The Idempotency-Key was used with another body before. Use a new key for a new request."},
	directory.KeyInUse: {409, "First request with this key under way", "conflict", "Conflict", 0,
		"A request with this Idempotency-Key is in progress at a node of the domain. Nothing was sent to the " +
			"agent again. Repeat the request later to get the answer to the first one."},
	directory.KeySpent: {409, "Answer to this key is not kept", "conflict", "Conflict", 0,
		"The agent may have been invoked with this Idempotency-Key before, and its answer is not available: " +
			"it was a stream, too large to keep, or the node that invoked the agent failed. Nothing was sent again. " +
			"Check the agent's state before you repeat the request with another key."},
	directory.AgentFailed: {502, "Agent failed", "unavailable", "AgentError", 0,
		"The agent was unreachable, failed, or returned an invalid response. It may have acted " +
			"nevertheless, unless the detail says that nothing was sent. Its owner gets the class of the failure."},
	directory.AgentUnavailable: {503, "Agent unavailable", "unavailable", "Unavailable", 5,
		"The agent reported that it is unavailable. Wait for retry_after seconds."},
	directory.AgentTimeout: {504, "Agent did not answer in time", "unavailable", "Timeout", 0,
		"The agent did not answer in time. It may have acted nevertheless."},
	directory.AgentBadRequest: {400, "Agent refused the input", "invalid_request", "InvalidInput", 0,
		"The agent itself answered 400. The detail quotes its answer."},
	directory.AgentUnauthorized: {401, "Agent asks for credentials", "unauthorized", "Unauthorized", 0,
		"The agent itself answered 401 to the credentials of the request, which this node forwards."},
	directory.AgentForbidden: {403, "Agent refuses the caller", "forbidden", "Forbidden", 0,
		"The agent itself answered 403 to the credentials of the request, which this node forwards."},
	directory.AgentNotFound: {404, "Agent found nothing", "not_found", "NotFound", 0,
		"The agent itself answered 404. The detail quotes its answer."},
	directory.AgentConflict: {409, "Agent met a conflict", "conflict", "Conflict", 0,
		"The agent itself answered 409. The detail quotes its answer."},
	directory.AgentTooLarge: {413, "Too large for the agent", "invalid_request", "InvalidRequest", 0,
		"The agent itself answered 413. The detail quotes its answer."},
	directory.AgentUnprocessable: {422, "Agent can't process the input", "invalid_request", "InvalidInput", 0,
		"The agent itself answered 422. The detail quotes its answer."},
	directory.AgentRateLimited: {429, "Agent is asked too often", "rate_limited", "RateLimited", 1,
		"The agent itself answered 429. Wait for retry_after seconds."},
	MethodNotAllowed: {405, "Method not allowed", "invalid_request", "InvalidRequest", 0,
		"This resource doesn't support this method. Allow lists the supported ones."},
	MediaType: {415, "Unsupported media type", "invalid_request", "InvalidRequest", 0,
		"Bodies are JSON: say so with Content-Type: application/json."},
	UnsupportedFilter: {422, "Unsupported filter", "unsupported_filter", "UnsupportedFilter", 0,
		"The request is strict and has a filter that this directory doesn't support. unsupported_filters names " +
			"it; /.well-known/agent-discovery lists the supported ones."},
	URITooLong: {414, "URI too long", "invalid_request", "InvalidRequest", 0,
		"A request's URI has at most 8 KiB."},
	HeaderTooLarge: {431, "Header fields too large", "invalid_request", "InvalidRequest", 0,
		"A request's header fields have at most 16 KiB together."},
	NotImplemented: {501, "Not implemented", "not_supported", "NotInvocable", 0,
		"The directory supports this method on no resource."},
	Upstream: {502, "Bad answer from another domain", "unavailable", "AgentError", 0,
		"The answer of another domain was unavailable or failed verification."},
	timeout: {504, "Timeout", "unavailable", "Timeout", 0,
		"Another node did not answer in time."},
	Misdirected: {421, "Misdirected request", "invalid_request", "InvalidRequest", 0,
		"This member is not the domain's leader, and only the leader can answer this request. Ask the leader. " +
			"Or the Host of a request to the admin listener is not one of the listener's names."},
}

// RuleOf returns the rule of a problem; the zero Rule if it has none.
func RuleOf(p directory.Problem) Rule { return rules[p] }

// All returns every problem that has a rule, sorted by name.
func All() []directory.Problem {
	return slices.Sorted(maps.Keys(rules))
}

package wire

// A Problem is the body of a refusal (RFC 9457) with the members that a
// directory adds.
type Problem struct {
	// Type is a URL at the directory whose last segment is the problem's code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Pointer is a JSON pointer to the member at fault.
	Pointer string `json:"pointer"`
	// Errors are all faults of a body, if there are several.
	Errors []Fault `json:"errors"`
	// Class is the code of draft-xu, which several problems share.
	Class string `json:"code"`
	// RequestID is the request's id in the directory's log.
	RequestID string `json:"correlation_id"`
	// RetryAfterSeconds is the time after which a repetition may succeed.
	RetryAfterSeconds int `json:"retry_after"`
	// OriginAuthority is the domain of a registration that is changed there alone.
	OriginAuthority string `json:"origin_authority"`
	// OriginHref is where a registration of another domain is changed.
	OriginHref string `json:"origin_href"`
	// Policies are those that decided.
	Policies []string `json:"policies"`
}

// A Fault is one fault of a request's body.
type Fault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// Codes of problems that a client tells apart. Others are known by their status.
const (
	CodeUnavailable    = "unavailable"
	CodeOverloaded     = "overloaded"
	CodeNotVoter       = "not-a-voter"
	CodeOvertaken      = "overtaken"
	CodeOutcomeUnknown = "outcome-unknown"
	CodeRateLimited    = "rate-limited"
	CodeQuotaExceeded  = "quota-exceeded"
	CodeKeyInUse       = "idempotency-key-in-use"
	CodeNameTaken      = "agent-name-taken"
	CodeAgentFailed    = "agent-failed"
)

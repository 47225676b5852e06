package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/egress"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// passing are the statuses of an agent's that a client can do something about.
var passing = map[int]directory.Problem{
	400: directory.AgentBadRequest, 404: directory.AgentNotFound, 409: directory.AgentConflict,
	413: directory.AgentTooLarge, 422: directory.AgentUnprocessable, 429: directory.AgentRateLimited,
	503: directory.AgentUnavailable,
}

// refusalOf maps an agent's answer that is no success (AI-034).
func refusalOf(resp *http.Response, own bool) error {
	problem, ok := passing[resp.StatusCode]
	switch {
	case own && resp.StatusCode == 401:
		// Without fields of the caller's own, the status is about this node's credentials, which the caller can't mend.
		problem, ok = directory.AgentUnauthorized, true
	case own && resp.StatusCode == 403:
		problem, ok = directory.AgentForbidden, true
	}

	if !ok {
		return directory.Refuse(directory.AgentFailed, "the agent answered %d", resp.StatusCode)
	}

	refusal := directory.Refuse(problem, "the agent answered %d", resp.StatusCode)
	if words := messageOf(resp); words != "" && problem != directory.AgentUnavailable {
		refusal.Detail += ": " + words
	}

	refusal.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))

	return refusal
}

// messageOf returns an agent's own description of its error: of problem details, or of
// draft-cui's error object.
func messageOf(resp *http.Response) string {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return ""
	}

	var failure struct {
		Detail  jsontext.Value `json:"detail"`
		Message jsontext.Value `json:"message"`
		Error   jsontext.Value `json:"error"`
	}
	_ = json.Unmarshal(body, &failure)

	var inner struct {
		Message jsontext.Value `json:"message"`
	}

	_ = json.Unmarshal(failure.Error, &inner)
	for _, raw := range []jsontext.Value{failure.Detail, inner.Message, failure.Message, failure.Error} {
		var s string
		if _ = json.Unmarshal(raw, &s); s != "" { // only a text is one
			return oneLine(s)
		}
	}

	return ""
}

// maxMessage bounds an agent's own words in an error, in bytes.
const maxMessage = 512

// oneLine makes an agent's words fit to be shown: bounded, on one line.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if directory.IsUnseen(r) {
			return ' '
		}

		return r
	}, s)
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}

	return strings.ToValidUTF8(s, "")
}

// maxRetryAfter bounds the wait that a caller is asked for, in seconds.
const maxRetryAfter = 24 * 3600

// retryAfter reads the field in seconds, or as a date; 0 if it is neither.
func retryAfter(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return min(max(n, 0), maxRetryAfter)
	}

	if at, err := http.ParseTime(text); err == nil {
		return min(max(int(time.Until(at).Seconds()), 0), maxRetryAfter)
	}

	return 0
}

// explain turns an error on the way to the agent into the client's error. The agent's owner and
// operators also get the class of a failure to exchange anything, which is logged at a bounded rate.
func (i *invocation) explain(ctx context.Context, err error) error {
	var refusal *directory.Error

	// explain alone sets Err to err. Such an error is of the exchange, and not the agent's answer.
	if explained := explain(ctx, err); !errors.As(explained, &refusal) || refusal.Problem != directory.AgentFailed ||
		refusal.Err != err { //nolint:errorlint // it is this error, not one like it
		return explained
	}

	switch rule := RuleOf(err); {
	case errors.Is(err, egress.ErrCoding):
		return refusal
	case rule == "", rule == RuleCertificate, rule == RuleIdentity:
	default:
		// The answer names the guard's rule, so it needs no class.
		return refusal
	}

	if skipped, due := i.g.lines.Take(i.e.Origin); due {
		i.g.cfg.Logger.Info("calling an agent failed", "origin", i.e.Origin.Name(), "agent", i.e.Agent,
			"request_id", i.in.RequestID, "skipped", skipped, "err", err)
	}

	switch caller := i.in.Caller; {
	case caller.IsZero():
	case caller == i.e.Owner:
		refusal.Detail += " (to you as the owner: " + classOf(err) + ")"
	case i.g.cfg.Operates != nil && i.g.cfg.Operates(caller):
		refusal.Detail += " (to you as an operator: " + classOf(err) + ")"
	}

	return refusal
}

// explain returns the client's error, which never discloses the agent's address.
func explain(ctx context.Context, err error) error {
	var refusal *directory.Error
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}

	var unreached *unreachedError

	switch rule := RuleOf(err); {
	case rule == RuleScheme:
		refusal = directory.Refuse(directory.EndpointRefused,
			"the agent's binding is not https; the gateway calls https only (the guard's rule %q). Nothing was sent",
			rule)
	case rule == RulePort, rule == RuleAddress:
		refusal = directory.Refuse(directory.EndpointRefused,
			"the agent's endpoint breaks the guard's rule %q; nothing was sent", rule)
	case rule == RuleCertificate, rule == RuleIdentity:
		refusal = directory.Refuse(directory.AgentFailed,
			"the agent's server breaks the guard's rule %q; nothing was sent",
			rule)
	case errors.As(err, &unreached):
		refusal = directory.Refuse(directory.AgentFailed, "the agent could not be reached; nothing was sent")
	case rule == RuleTime, errors.Is(err, context.DeadlineExceeded):
		refusal = directory.Refuse(directory.AgentTimeout, "the agent did not answer in time")
	case rule == RuleSize:
		refusal = directory.Refuse(directory.AgentFailed, "the agent's answer is larger than this gateway passes on")
	case rule != "":
		refusal = directory.Refuse(directory.AgentFailed, "the agent's server breaks the guard's rule %q", rule)
	case errors.Is(err, egress.ErrCoding):
		refusal = directory.Refuse(directory.AgentFailed, "the agent's answer can't be read: %w", err)
	default:
		refusal = directory.Refuse(directory.AgentFailed, "the connection to the agent failed before its answer")
	}

	refusal.Err = err

	return refusal
}

// resultOf returns the result in a JSON-RPC answer.
func resultOf(body []byte) ([]byte, error) {
	var answer struct {
		Result jsontext.Value `json:"result"`
		Error  *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}

	malformed := directory.Refuse(directory.AgentFailed, "the agent's answer is no JSON-RPC response")

	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, malformed
	}

	switch failure := answer.Error; {
	case failure == nil && answer.Result == nil:
		return nil, malformed
	case failure == nil:
		return answer.Result, nil
	case failure.Code == -32602: // invalid parameters
		return nil, directory.Refuse(directory.AgentBadRequest, "the agent answered: %s", oneLine(failure.Message))
	}

	return nil, directory.Refuse(directory.AgentFailed, "the agent answered with the JSON-RPC error %d",
		answer.Error.Code)
}

// outputOf is an item of a batch's answer.
func outputOf(r *invoke.Reply, err error) []byte {
	if err == nil {
		return r.Body
	}

	data := strictjson.AppendText([]byte{'{'}, "code", codeOf(directory.ProblemOf(err)))

	message := "something went wrong"
	if refusal, ok := errors.AsType[*directory.Error](err); ok {
		message = refusal.Error()
	}

	return append(append([]byte(`{"error":`), append(strictjson.AppendText(data, "message", message), '}')...), '}')
}

// codeOf returns draft-cui's code for the error of an item (cui 5), as an answer of its
// own would have it.
func codeOf(p directory.Problem) string {
	switch p {
	case directory.BadRequest, directory.BadInput, directory.AgentBadRequest, directory.AgentUnprocessable:
		return "InvalidInput"
	case directory.NotFound, directory.AgentNotFound:
		return "NotFound"
	case directory.RateLimited, directory.AgentRateLimited:
		return "RateLimited"
	case directory.EndpointRefused, directory.AgentForbidden:
		return "Forbidden"
	case directory.AgentUnauthorized:
		return "Unauthorized"
	case directory.AgentConflict:
		return "Conflict"
	case directory.AgentTooLarge:
		return "InvalidRequest"
	case directory.AgentUnavailable:
		return "Unavailable"
	case directory.AgentTimeout:
		return "Timeout"
	case directory.NotInvocable:
		return "NotInvocable"
	case directory.Internal:
		return "InternalError"
	}

	return "AgentError"
}

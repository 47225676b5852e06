package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// callREST posts the input to the agent's endpoint: alone, or within WoA's
// envelope. An agent with several operations at one endpoint learns by a member
// which is meant (draft-cui, 5).
func (i *invoking) callREST(ctx context.Context, w *work) (*directory.Reply, error) {
	body := w.Value
	switch {
	case i.binding.Envelope == "woa":
		body = directory.AppendText([]byte{'{'}, "agent", i.contract.WoA.ID)
		if w.Name != "" {
			body = directory.AppendText(body, "operation", w.Name)
		}
		body = append(directory.AppendRaw(body, "input", w.Value), '}')
	case len(i.contract.Operations) > 1 && !w.Declares("operation"):
		var err error
		if body, err = naming(w); err != nil {
			return nil, err
		}
	}
	a, err := i.post(ctx, w, i.binding.Endpoint, body, nil)
	if err != nil {
		return nil, err
	}
	if a.Stream != nil {
		return a, nil
	}
	return a, noError(a.Body, w.Operation)
}

// naming returns an input with a member operation beside its own; of a batch, so is
// each.
func naming(w *work) (body []byte, err error) {
	items := w.Items()
	if items == nil {
		return nameIn(w.Value, w.Name)
	}
	body = []byte{'['}
	for n, item := range items {
		if n > 0 {
			body = append(body, ',')
		}
		named, err := nameIn(item, w.Name)
		if err != nil {
			return nil, err
		}
		body = append(body, named...)
	}
	return append(body, ']'), nil
}

func nameIn(input []byte, operation string) ([]byte, error) {
	if input[0] != '{' {
		return input, nil
	}
	members, err := directory.ParseObject(input)
	if err != nil {
		return nil, err
	}
	members = slices.DeleteFunc(members, func(m directory.Member) bool { return m.Name == "operation" })
	return directory.AppendObject(nil, append(members, directory.Member{Name: "operation", Value: directory.AppendString(nil, operation)})), nil
}

// post sends JSON to the agent, and returns its answer where that is a success.
func (i *invoking) post(ctx context.Context, w *work, address string, body []byte, header http.Header) (*directory.Reply, error) {
	to := i.endpoint
	if address != i.binding.Endpoint || to == nil {
		var err error
		if to, err = url.Parse(address); err != nil {
			return nil, directory.Refuse(directory.EndpointRefused, "the agent's endpoint is no URL that can be called: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(i.traced(ctx), http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.URL = to
	for name, values := range header {
		r.Header[name] = values
	}
	own := i.passed(ctx, r.Header)
	if i.in.Key != "" && w.number != "" {
		r.Header.Set("Idempotency-Key", r.Header.Get("Idempotency-Key")+"-"+w.number)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, application/problem+json")
	if i.in.Stream {
		r.Header.Set("Accept", "text/event-stream, application/json, application/problem+json")
	}
	r.Header.Set("User-Agent", "roster-gateway")
	resp, err := guarded{i.g.cfg.Guard, i.target()}.RoundTrip(r) // which follows no redirect
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, refusalOf(resp, own)
	}
	return i.read(resp)
}

// read returns a success's body: whole if it is JSON, and else as it comes.
func (i *invoking) read(resp *http.Response) (*directory.Reply, error) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	reply := &directory.Reply{Status: resp.StatusCode, ContentType: media}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		defer resp.Body.Close()
		return nil, directory.Refuse(directory.AgentFailed, "the agent packed its answer, which was not asked for")
	}
	streams := media == "text/event-stream" || media == "application/x-ndjson" || media == "application/jsonl"
	if streams {
		reply.Stream = resp.Body
		return reply, nil
	}
	defer resp.Body.Close()
	body, readErr := io.ReadAll(io.LimitReader(resp.Body, i.g.cfg.MaxBody+1))
	switch {
	case readErr != nil:
		return nil, readErr
	case int64(len(body)) > i.g.cfg.MaxBody:
		return nil, refuse(RuleSize, nil, "the answer has over %d bytes", i.g.cfg.MaxBody)
	case i.binding.Protocol == protocolA2A && media == "text/plain" && jsontext.Value(body).IsValid():
		// A2A's SDK for Go, as of 0.3.3, leaves the type of its answers to net/http's guess.
		reply.ContentType = "application/json"
	case err != nil || media != "application/json" && !strings.HasSuffix(media, "+json"):
		return nil, directory.Refuse(directory.AgentFailed, "the agent answered %d with %.100q, which is not JSON", resp.StatusCode, resp.Header.Get("Content-Type"))
	case !jsontext.Value(body).IsValid():
		return nil, directory.Refuse(directory.AgentFailed, "the agent's answer is not JSON")
	}
	reply.Body = bytes.TrimSpace(body)
	return reply, nil
}

// noError refuses a 2xx answer that tells of an error (AI-035).
func noError(body []byte, o directory.Operation) error {
	if len(body) == 0 || body[0] != '{' || !bytes.Contains(body, []byte("error")) && !bytes.ContainsRune(body, '\\') {
		return nil // it has no such member, however that is written
	}
	var told struct {
		Error jsontext.Value `json:"error"`
	}
	if json.Unmarshal(body, &told) != nil || len(told.Error) == 0 || told.Error[0] != '{' {
		return nil
	}
	if o.DeclaresOutput("error") {
		return nil
	}
	return directory.Refuse(directory.AgentFailed, "the agent answered with a success's status, and with an error")
}

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
		problem, ok = directory.AgentUnauthorized, true
	case own && resp.StatusCode == 403:
		problem, ok = directory.AgentForbidden, true
	}
	if !ok {
		return directory.Refuse(directory.AgentFailed, "the agent answered %d", resp.StatusCode)
	}
	e := directory.Refuse(problem, "the agent answered %d", resp.StatusCode)
	if words := messageOf(resp); words != "" && problem != directory.AgentUnavailable {
		e.Detail += ": " + words
	}
	e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return e
}

// messageOf returns an agent's own words for what is wrong: of problem details, or
// of draft-cui's error object.
func messageOf(resp *http.Response) string {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return ""
	}
	var told struct {
		Detail  jsontext.Value `json:"detail"`
		Message jsontext.Value `json:"message"`
		Error   jsontext.Value `json:"error"`
	}
	_ = json.Unmarshal(body, &told)
	var inner struct {
		Message jsontext.Value `json:"message"`
	}
	_ = json.Unmarshal(told.Error, &inner)
	for _, raw := range []jsontext.Value{told.Detail, inner.Message, told.Message, told.Error} {
		var s string
		if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil && s != "" {
			return sentence(s)
		}
	}
	return ""
}

// sentence makes an agent's words fit to be shown: bounded, on one line.
func sentence(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}
	return strings.ToValidUTF8(s, "")
}

// maxRetryAfter bounds what a caller is told to wait, in seconds.
const maxRetryAfter = 24 * 3600

// retryAfter reads the field in seconds, or as a date; 0 where it says nothing.
func retryAfter(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return min(max(n, 0), maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(int(time.Until(at).Seconds()), 0), maxRetryAfter)
	}
	return 0
}

// explain turns what went wrong on the way to the agent into what a client is
// told: never where it went.
func explain(ctx context.Context, err error) error {
	var told *directory.Error
	switch {
	case errors.As(err, &told):
		return told
	case context.Cause(ctx) != nil && errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}
	told = directory.Refuse(directory.AgentFailed, "the agent could not be reached")
	switch rule := RuleOf(err); {
	case rule == RuleScheme, rule == RulePort, rule == RuleAddress:
		told = directory.Refuse(directory.EndpointRefused, "the agent's endpoint breaks the guard's rule %q; nothing was sent", rule)
	case rule == RuleTime, errors.Is(err, context.DeadlineExceeded):
		told = directory.Refuse(directory.AgentTimeout, "the agent did not answer in time")
	case rule == RuleSize:
		told = directory.Refuse(directory.AgentFailed, "the agent's answer is larger than this gateway passes on")
	case rule != "":
		told = directory.Refuse(directory.AgentFailed, "the agent's server breaks the guard's rule %q", rule)
	}
	told.Err = err
	return told
}

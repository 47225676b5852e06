package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of a session.
const (
	maxTools  = 1024            // of a server that are looked at
	closeTime = 2 * time.Second // for which the server may hear that it ends
)

// callMCP calls a tool of the agent's MCP server (gaikwad 5.3), in a session of its
// own. Where the registration doesn't tell the tools, the server is asked.
func (i *invoking) callMCP(ctx context.Context, w *work) (*directory.Reply, error) {
	target := i.target()
	target.MaxBody, target.Timeout = i.g.cfg.MaxBody, i.g.cfg.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout, refuse(RuleTime, context.DeadlineExceeded, "the exchange took over %s", target.Timeout))
	defer cancel()
	within := &session{next: i.g.cfg.Guard.Client(target).Transport, ctx: ctx, i: i}
	client := mcp.NewClient(&mcp.Implementation{Name: "roster-gateway", Version: "1"}, nil)
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: i.binding.Endpoint, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: int(target.MaxBody),
		HTTPClient: &http.Client{Transport: within, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil)
	if err != nil {
		return nil, within.cause(err)
	}
	defer s.Close()
	name, err := i.tool(ctx, s, w)
	if err != nil {
		return nil, within.cause(err)
	}
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: jsontext.Value(w.Value)})
	if err != nil {
		return nil, within.cause(err)
	}
	return replyOf(result)
}

// tool returns the name of the tool to call.
func (i *invoking) tool(ctx context.Context, s *mcp.ClientSession, w *work) (string, error) {
	woa := i.contract.WoA
	if woa.ToolField == "" && i.contract.Operations[0].Name != "" {
		return w.Name, nil
	}
	var tools []*mcp.Tool
	for t, err := range s.Tools(ctx, nil) {
		if err != nil {
			return "", err
		}
		if tools = append(tools, t); len(tools) == maxTools {
			break
		}
	}
	if woa.ToolField != "" {
		name, err := toolOf(woa, w)
		if qualified := woa.ToolSpace + "_" + name; err == nil && (has(tools, qualified) || !has(tools, name)) {
			name = qualified // the bare name is for servers that list no other
		}
		return name, err
	}
	return pick(tools, w)
}

// toolOf returns what the envelope's tool_field says (WOA-027).
func toolOf(woa directory.WoATerms, w *work) (string, error) {
	switch woa.ToolField {
	case "agent":
		return woa.ID, nil
	case "operation":
		return w.Name, nil
	}
	if name, ok := directory.TextMember(w.Envelope, woa.ToolField); ok && name != "" {
		return name, nil
	}
	return "", directory.Refuse(directory.BadRequest, "the agent's tool is named by the envelope's member %q, which is missing", woa.ToolField).At("/" + woa.ToolField)
}

func has(tools []*mcp.Tool, name string) bool {
	for _, t := range tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// pick finds the tool that is meant among those that a server lists, and judges the
// input by its schema.
func pick(tools []*mcp.Tool, w *work) (string, error) {
	var names []string
	for _, t := range tools {
		names = append(names, strconv.Quote(t.Name))
		if t.Name != w.Name && (w.Name != "" || len(tools) > 1) {
			continue
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return "", err
		}
		w.Operation = directory.Operation{Name: t.Name, Input: schema}
		if t.OutputSchema != nil {
			if w.Output, err = json.Marshal(t.OutputSchema); err != nil {
				return "", err
			}
		}
		return t.Name, w.CheckInput()
	}
	list := strings.Join(names, ", ")
	if w.Name == "" {
		return "", directory.Refuse(directory.BadRequest, "the agent has several tools, or none: name one as operation; it has %.2000s", list).At("/operation")
	}
	return "", directory.Refuse(directory.NotFound, "the agent has no tool %.100q; it has %.2000s", w.Name, list)
}

// replyOf returns a tool's output: what is structured, else text that is JSON, else
// the content as it is. A tool's error is the agent's failure (AI-035).
func replyOf(r *mcp.CallToolResult) (*directory.Reply, error) {
	reply := &directory.Reply{Status: http.StatusOK, ContentType: "application/json"}
	if r.IsError {
		return nil, directory.Refuse(directory.AgentFailed, "the agent's tool answered with an error")
	}
	if len(r.Content) == 1 && r.StructuredContent == nil {
		if text, ok := r.Content[0].(*mcp.TextContent); ok && jsontext.Value(text.Text).IsValid() {
			reply.Body = []byte(text.Text)
			return reply, nil
		}
	}
	var err error
	if r.StructuredContent != nil {
		reply.Body, err = json.Marshal(r.StructuredContent)
	} else {
		reply.Body, err = r.MarshalJSON()
	}
	return reply, err
}

// A session is the transport of one MCP session: its requests end with the
// invocation that they are for, and the guard's own no is kept, which the library
// may not hand on.
type session struct {
	next http.RoundTripper
	ctx  context.Context
	i    *invoking // nil where it is for no invocation
	last atomic.Pointer[error]
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	if r.Method == http.MethodDelete { // the session's end is told the server also where the caller has gone
		time.AfterFunc(closeTime, func() { cancel(context.DeadlineExceeded) })
	} else {
		context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) }) // which comes when the invocation ends
	}
	if s.i != nil {
		ctx = s.i.traced(ctx)
	}
	if r = r.Clone(ctx); s.i != nil {
		s.i.passed(ctx, r.Header)
		r.Header.Del("Idempotency-Key") // a session is several requests, and one key is for one
	}
	resp, err := s.next.RoundTrip(r)
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusTooManyRequests:
		err = refusalOf(resp, false)
		s.last.Store(&err)
		return resp, nil
	}
	if err != nil {
		s.last.Store(&err)
	}
	return resp, err
}

// cause returns why a session failed.
func (s *session) cause(err error) error {
	var told *directory.Error
	if errors.As(err, &told) {
		return told
	}
	if last := s.last.Load(); last != nil {
		return *last
	}
	var rpc *jsonrpc.Error
	if errors.As(err, &rpc) && rpc.Code == jsonrpc.CodeInvalidParams {
		return directory.Refuse(directory.AgentBadRequest, "the agent answered: %s", sentence(rpc.Message))
	}
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return err
}

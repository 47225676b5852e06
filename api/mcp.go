package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// POST /mcp: the tools over MCP's streamable HTTP, without sessions, so that any
// node answers any request (OPS-022). A tool's request goes through this server's
// own handler as its caller's.

// maxMessage bounds one MCP message: the largest document, with all of its
// characters escaped, and what is around it.
const maxMessage = 4 * maxBody

// newMCP returns what answers /mcp behind this server's own checks.
func (s *Server) newMCP() http.Handler {
	tools := newToolServer(s.cfg.PublicURL, s.within)
	tools.AddReceivingMiddleware(s.offer)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // fromHere knows the public name as well
		MaxRequestBodyBytes:        maxMessage,
	})
}

// mcp answers POST /mcp.
func (s *Server) mcp(w http.ResponseWriter, c *call) error {
	private(w)
	w.Header().Set("Cache-Control", "no-store")
	if err := s.fromHere(c); err != nil {
		return err
	}
	body, m, err := readMessage(w, c)
	if err != nil || toolNamed(m.tool) == nil { // what a tool asks for is paced as that
		if err := s.pace(w, c, Reads); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if m.method == "subscriptions/listen" { // a stream, of which nothing would come
		write(w, c.Request, http.StatusNotFound, "application/json", m.unknownMethod("the tools of a directory never change: there is nothing to listen to"))
		return nil
	}
	r := c.WithContext(c.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	got := &captured{header: http.Header{}}
	s.tools().ServeHTTP(got, r)
	if bytes.HasPrefix(got.body.Bytes(), []byte(notHandled)) && len(m.id) > 0 {
		write(w, c.Request, http.StatusOK, "application/json", m.unknownMethod("there is no such method"))
		return nil
	}
	tool := toolNamed(m.tool)
	if tool != nil && !c.asked.Load() { // the call was refused before it asked for anything
		if err := s.pace(w, c, Reads); err != nil {
			return err
		}
	}
	return got.forward(w, c, tool == nil || !tool.writes)
}

// fromHere refuses requests that a web page made which is not this directory's:
// its browser names the page in Origin, and where the page's host was bound to
// this machine's loopback meanwhile, in Host (OPS-021; MCP, "Security Warning" of
// its transports).
func (s *Server) fromHere(c *call) error {
	for _, origin := range c.Header.Values("Origin") {
		if origin != s.cfg.PublicURL {
			return directory.Refuse(directory.Forbidden, "A page of %.100q may not call this directory's tools.", origin)
		}
	}
	at, _ := c.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if public, err := url.Parse(s.cfg.PublicURL); at != nil && isLoopback(at.String()) && !isLoopback(c.Host) && (err != nil || c.Host != public.Host) {
		return directory.Refuse(directory.Forbidden, "This directory is not called %.100q.", c.Host)
	}
	return nil
}

// isLoopback is whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// A message is what must be known of an MCP message before it is handed on.
type message struct {
	method, tool string
	id           []byte // JSON
}

// readMessage reads a request's body, and what must be known of it.
func readMessage(w http.ResponseWriter, c *call) (body []byte, m message, err error) {
	if body, err = readUpTo(w, c, maxMessage); err == nil {
		m, err = parseMessage(body)
	}
	return body, m, err
}

// parseMessage reads one strict JSON-RPC message. Batches are of a version of MCP
// that let one request be many.
func parseMessage(body []byte) (m message, err error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return m, directory.Refuse(directory.BadRequest, "Send one message at a time; batches are not answered here.")
	}
	members, err := directory.ParseObject(body)
	if err != nil {
		return m, err
	}
	args := arguments{given: valuesOf(members)}
	m.id = args.given["id"]
	if m.method, err = args.text("method"); err != nil || m.method != "tools/call" {
		return m, err
	}
	params, err := directory.ParseObject(args.given["params"])
	if err != nil {
		return m, err
	}
	m.tool, err = arguments{given: valuesOf(params)}.text("name")
	return m, err
}

// notHandled is how the SDK begins what it says, in plain text, to a request with a
// method that it doesn't know. JSON-RPC has an answer for that (2.0, 5.1), and clients
// that try what a server can do wait for it.
const notHandled = "JSON RPC not handled"

func (m message) unknownMethod(why string) []byte {
	if len(m.id) == 0 {
		m.id = []byte("null")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":%s}}`, m.id, strictjson.AppendString(nil, why))
}

// offer lists to a caller only tools that it may use. All policies that there are
// decide by who registers, not by what, so an empty registration will do to ask.
func (s *Server) offer(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (out mcp.Result, err error) {
		c, _ := ctx.Value(callKey{}).(*call)
		defer func() {
			if p := recover(); p != nil { // the goroutine is the SDK's: no server is below it to do it
				s.log.Error("a tool panicked", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				out, err = nil, errors.New("something went wrong here; the node's log has it")
			}
		}()
		out, err = next(ctx, method, r)
		list, ok := out.(*mcp.ListToolsResult)
		if err != nil || !ok || c == nil {
			return out, err
		}
		list.CacheScope = "private" // it is one caller's (AD-080)
		if s.mayRegister(c) {
			return list, nil
		}
		list.Tools = slices.DeleteFunc(slices.Clone(list.Tools), func(t *mcp.Tool) bool { return toolNamed(t.Name).writes })
		return list, nil
	}
}

func (s *Server) mayRegister(c *call) bool {
	return !c.id.IsZero() && s.cfg.Policy.Register(c.id, "an-agent", &directory.Projection{}, s.cfg.Policy.DefaultVisibility()).Allow
}

// behalfKey is the key of the call within which another one is made: who calls is
// the same, and was verified there.
type behalfKey struct{}

// within does a tool's request through this server's own handler, within the call
// that ctx is of, as its caller and for as long as it goes on.
func (s *Server) within(ctx context.Context, q *request) (*client.Reply, error) {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return nil, fmt.Errorf("a tool was called outside of a request")
	}
	c.asked.Store(true)
	ctx = context.WithValue(c.Context(), behalfKey{}, c)
	r, err := http.NewRequestWithContext(ctx, q.method, "https://"+c.Host+q.target, bytes.NewReader(q.body))
	if err != nil {
		return nil, directory.Refuse(directory.BadRequest, "The arguments make no request: %w", err)
	}
	r.RequestURI, r.RemoteAddr, r.TLS = q.target, c.RemoteAddr, c.TLS
	r.Header.Set("X-Request-Id", c.requestID)
	if len(q.body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	answer := &captured{header: http.Header{}}
	err = answer.from(s.handler, r)
	return &client.Reply{Status: answer.status, Header: answer.header, Body: answer.body.Bytes()}, err
}

// captured is an answer that is kept instead of sent.
type captured struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *captured) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *captured) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *captured) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// from has h answer r. A handler that breaks its answer off panics; on a goroutine
// that net/http doesn't know that would be the end of the node.
func (a *captured) from(h http.Handler, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the answer broke off: %v", p)
		}
	}()
	h.ServeHTTP(a, r)
	return nil
}

// refusedByMCP are the problems of what the SDK refuses in plain text.
var refusedByMCP = map[int]directory.Problem{
	http.StatusBadRequest: directory.BadRequest, http.StatusForbidden: directory.Forbidden, http.StatusNotFound: directory.NotFound,
	http.StatusRequestEntityTooLarge: directory.TooLarge, http.StatusUnsupportedMediaType: problem.MediaType,
}

// forward sends what the SDK answered: JSON as it is, a refusal in plain text as
// our problem. Only what changed nothing may be refused for being too much.
func (a *captured) forward(w http.ResponseWriter, c *call, unchanged bool) error {
	if a.status == 0 || a.status < 300 && a.body.Len() == 0 {
		w.WriteHeader(max(a.status, http.StatusAccepted))
		return nil
	}
	if !isJSON(a.header.Get("Content-Type")) {
		text := strings.TrimSpace(a.body.String())
		problem, known := refusedByMCP[a.status]
		if !known {
			return fmt.Errorf("MCP was answered with %d: %s", a.status, text)
		}
		return directory.Refuse(problem, "%s", text)
	}
	maps.DeleteFunc(a.header, func(name string, _ []string) bool { return !strings.HasPrefix(name, "Mcp-") })
	maps.Copy(w.Header(), a.header)
	if a.status == http.StatusOK && unchanged {
		return answer(w, c, "application/json", a.body.Bytes())
	}
	write(w, c.Request, a.status, "application/json", a.body.Bytes())
	return nil
}

func valuesOf(members []strictjson.Member) map[string]jsontext.Value {
	values := map[string]jsontext.Value{}
	for _, m := range members {
		values[m.Name] = m.Value
	}
	return values
}

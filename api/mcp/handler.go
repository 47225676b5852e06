package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/openapi"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/egress"
)

// Config configures a Handler.
type Config struct {
	PublicURL   string
	Description *openapi.Document
	// Routes is the server's handler: it answers the requests of tools.
	Routes func() http.Handler
	// MayRegister tells whether a caller may register agents at all.
	MayRegister func(*request.Call) bool
	// Invokes tells whether the node has a gateway.
	Invokes bool
	// Verify verifies proofs by the bundles that the node holds; nil offers no such tool.
	Verify Verifier
	Logger *slog.Logger
}

// A Handler answers POST /mcp: the tools over MCP's streamable HTTP, without sessions, so
// that any node answers any request (OPS-022). A tool's request goes through the server's
// own handler, on behalf of the tool's caller.
type Handler struct {
	cfg   Config
	tools *toolset
	sdk   func() http.Handler // answers messages, behind this handler's checks
}

// NewHandler returns a Handler.
func NewHandler(cfg Config) *Handler {
	handler := &Handler{cfg: cfg, tools: newToolset(cfg.Description, cfg.Verify)}
	handler.sdk = sync.OnceValue(func() http.Handler {
		server := newServer(handler.tools, cfg.PublicURL, handler.delegate)
		server.AddReceivingMiddleware(handler.offer)

		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
			return server
		}, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, PropagateRequestCancellation: true,
			DisableLocalhostProtection: true, // checkOrigin knows the public name as well
			MaxRequestBodyBytes:        MaxMessage,
		})
	})

	return handler
}

// Post answers POST /mcp.
func (h *Handler) Post(w http.ResponseWriter, call *request.Call) error {
	response.Private(w)
	response.NoStore(w)

	if err := h.checkOrigin(call); err != nil {
		return err
	}

	if err := checkAccept(call); err != nil {
		return err
	}

	body, message, err := readMessage(w, call)
	if err != nil {
		return err
	}

	if message.method == "subscriptions/listen" { // a stream on which nothing would come
		answer := message.unknownMethod("the tools of a directory never change, so there is nothing to listen to")
		response.Write(w, call.Request, http.StatusNotFound, "application/json", answer)

		return nil
	}

	r := call.WithContext(call.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	captured := newCapture()

	called := h.tools.named(message.tool)

	// An agent has its own time limit, so the server's write deadline waits for it.
	if called != nil && called.offered == toInvokers {
		held := call.Pools.HoldAnswers(call.Caller())
		defer held.Release()

		r = r.WithContext(context.WithValue(r.Context(), heldKey{}, held))
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Time{})
		h.sdk().ServeHTTP(captured, r)
		_ = rc.SetWriteDeadline(time.Now().Add(admission.BodyTime))
	} else {
		h.sdk().ServeHTTP(captured, r)
	}

	if bytes.HasPrefix(captured.body.Bytes(), []byte(notHandled)) && len(message.id) > 0 {
		response.Write(w, call.Request, http.StatusOK, "application/json",
			message.unknownMethod("there is no such method"))

		return nil
	}

	return captured.forward(w, call, called == nil || !called.writes)
}

// checkOrigin refuses requests of a web page that is not this directory's. Its browser
// names the page in Origin; if the page's host was bound to this machine's loopback
// address meanwhile, it names it in Host (OPS-021; MCP, "Security Warning").
func (h *Handler) checkOrigin(call *request.Call) error {
	for _, origin := range call.Header.Values("Origin") {
		if origin != h.cfg.PublicURL {
			return directory.Refuse(directory.Forbidden, "a page of %.64q may not call this directory's tools",
				origin)
		}
	}

	local, _ := call.Context().Value(http.LocalAddrContextKey).(net.Addr)

	public, err := url.Parse(h.cfg.PublicURL)
	if local != nil && egress.IsLoopback(local.String()) && !egress.IsLoopback(call.Host) &&
		(err != nil || call.Host != public.Host) {
		return directory.Refuse(directory.Forbidden, "host %.64q is not a name of this directory", call.Host)
	}

	return nil
}

// checkAccept names the media type that Accept doesn't cover (MCP, "Streamable HTTP").
func checkAccept(call *request.Call) error {
	accepts := strings.ToLower(strings.Join(call.Header.Values("Accept"), ","))

	for _, media := range []string{"application/json", "text/event-stream"} {
		kind, _, _ := strings.Cut(media, "/")
		if !strings.Contains(accepts, media) && !strings.Contains(accepts, kind+"/*") &&
			!strings.Contains(accepts, "*/*") {
			return directory.Refuse(directory.BadRequest,
				"the header field Accept doesn't name %s. Send Accept: application/json, text/event-stream", media)
		}
	}

	return nil
}

// offer lists to a caller only tools that it may use. It also turns a panic of a tool
// into an error: the goroutine is the SDK's, and no server beneath it would recover.
func (h *Handler) offer(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (out mcp.Result, err error) {
		call := request.Of(ctx)
		defer func() {
			if p := recover(); p != nil {
				h.cfg.Logger.Error("a tool panicked", "method", method, "panic", fmt.Sprint(p), "stack",
					string(debug.Stack()))
				out = nil
				err = errors.New("internal error; see the log of the node")
			}
		}()

		out, err = next(ctx, method, r)

		list, ok := out.(*mcp.ListToolsResult)
		if err != nil || !ok || call == nil {
			return out, err
		}

		list.CacheScope = "private" // the list is for one caller (AD-080)
		mayRegister := h.cfg.MayRegister(call)
		list.Tools = slices.DeleteFunc(slices.Clone(list.Tools), func(t *mcp.Tool) bool {
			switch h.tools.named(t.Name).offered {
			case toRegistrants:
				return !mayRegister
			case toInvokers:
				return !h.cfg.Invokes || call.Anonymous()
			default:
				return false
			}
		})

		return list, nil
	}
}

// behalfKey is the key of the call within which another one is made: their caller is the
// same, and was verified for the outer call.
type behalfKey struct{}

// Delegator returns the call on whose behalf a tool made this one; nil if it is no tool's.
func Delegator(c *request.Call) *request.Call {
	outer, _ := c.Context().Value(behalfKey{}).(*request.Call)
	return outer
}

// heldKey is the key of the memory that the answer of an agent takes until the tool's result was
// sent: an *admission.AnswerHold.
type heldKey struct{}

// copies is how often a result has an agent's answer: as text, as structured content, and as it came.
const copies = 3

// delegate makes a tool's request through the server's own handler, on behalf of the call
// that ctx belongs to, and for as long as that lasts.
func (h *Handler) delegate(ctx context.Context, toolRequest *toolRequest) (*client.Reply, error) {
	call := request.Of(ctx)
	if call == nil {
		return nil, errors.New("a tool was called outside of a request")
	}

	captured := newCapture()
	if held, is := ctx.Value(heldKey{}).(*admission.AnswerHold); is {
		captured.hold = func(bytes int64) error { return held.More(copies * bytes) }
	}

	ctx = context.WithValue(call.Context(), behalfKey{}, call)

	r, err := http.NewRequestWithContext(ctx, toolRequest.method, "https://"+call.Host+toolRequest.target,
		bytes.NewReader(toolRequest.body))
	if err != nil {
		return nil, directory.Refuse(directory.BadRequest, "the arguments don't make a valid request: %w", err)
	}

	// Limits are those of the address from which the tool was called.
	r.RequestURI = toolRequest.target
	r.RemoteAddr = call.RemoteAddr
	r.Header.Set("X-Request-Id", call.RequestID)

	if len(toolRequest.body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}

	err = captured.serve(h.cfg.Routes(), r)

	return &client.Reply{Status: captured.status, Header: captured.header, Body: captured.body.Bytes()}, err
}

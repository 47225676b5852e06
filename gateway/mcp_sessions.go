package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of sessions with MCP servers, and of those that are kept for the next call.
const (
	toolsLife        = 30 * time.Second // for which a list of them is believed
	closeTime        = 2 * time.Second  // for which the server may hear that a session ends
	maxSessions      = 256
	maxAgentSessions = 16 // of one agent's
	maxSessionBytes  = 1 << 20
	maxSessionsHeld  = 16 << 20 // bytes of the descriptions of servers and tools
	sessionIdle      = time.Minute
	maxClosing       = 32 // that are ended in the background
)

// A sessionKey identifies a session's server and its caller. Calls whose keys differ
// never share a session.
type sessionKey struct {
	agent     agentKey
	statement uint64 // a registration that changed has new ones
	endpoint  string
	caller    directory.Identity
	passed    [sha256.Size]byte // of the caller's header fields that the agent gets
}

func (i *invocation) sessionKey() sessionKey {
	k := sessionKey{agent: agentKey{i.e.Origin, i.e.RID}, statement: i.e.Statement, endpoint: i.binding.Endpoint,
		caller: i.in.Caller}

	// The agent may know different callers by the header fields that are passed on.
	if names := i.g.passHeaders(i.e); len(names) > 0 {
		h := sha256.New()
		for _, name := range names {
			fmt.Fprintf(h, "%q: %q\n", name, i.in.Header[http.CanonicalHeaderKey(name)])
		}

		h.Sum(k.passed[:0])
	}

	return k
}

// A session is one with an MCP server. One invocation at a time has it, or the pool.
type session struct {
	*mcp.ClientSession
	key  sessionKey
	now  atomic.Pointer[exchange] // whose requests these are; nil between invocations
	last func(*http.Request) (*http.Response, error)

	tools toolList
	until time.Time   // for which the tools are believed
	fresh atomic.Bool // the server has not said since that they changed

	read         atomic.Int64 // bytes of answers
	opened, held int64        // of those, how many the opening took, and how many are kept with it
	idle         *time.Timer  // ends it; the pool's
}

// A toolList is a server's list of its tools.
type toolList struct {
	tools   []tool
	missing string // why there may be more of them; "" if the list is whole
}

// A tool is a server's description of one tool.
type tool struct {
	name          string
	input, output []byte // schemas; nil for none
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
	do := s.last
	if x := s.now.Load(); x != nil {
		do = x.RoundTrip
	}

	resp, err := do(r)
	if err == nil {
		resp.Body = &counted{resp.Body, &s.read}
	}

	return resp, err
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))

	return n, err
}

// listed returns the tools that the server listed, and whether they are still valid.
func (s *session) listed() (toolList, bool) {
	return s.tools, s.fresh.Load() && time.Now().Before(s.until)
}

// list asks the server for its tools.
func (s *session) list(ctx context.Context) (toolList, error) {
	before := s.read.Load()

	// A change that is announced from here on may be missing in the answer.
	s.fresh.Store(true)

	listed, missing, err := listTools(ctx, s)
	if err != nil {
		return toolList{}, err
	}

	tools := toolList{missing: missing}
	for _, t := range listed {
		read, err := toolOfServer(t)
		if err != nil {
			return toolList{}, err
		}

		tools.tools = append(tools.tools, read)
	}

	s.tools, s.until = tools, time.Now().Add(toolsLife)
	s.held = s.opened + s.read.Load() - before

	return tools, nil
}

func toolOfServer(t *mcp.Tool) (tool, error) {
	read := tool{name: t.Name}

	var err error
	if read.input, err = json.Marshal(t.InputSchema, json.Deterministic(true)); err == nil && t.OutputSchema != nil {
		read.output, err = json.Marshal(t.OutputSchema, json.Deterministic(true))
	}

	return read, err
}

// sessions keeps sessions that no invocation has, for the next one of the same caller
// with the same agent.
type sessions struct {
	mu      sync.Mutex // guards the fields below
	idle    []*session // the one that was used last is the last
	held    int64
	closed  bool
	ending  int // in the background
	closing sync.WaitGroup
}

// take returns a kept session, or nil if there is none. The caller returns it by leave.
func (p *sessions) take(key sessionKey) *session {
	p.mu.Lock()
	defer p.mu.Unlock()

	for n, session := range slices.Backward(p.idle) {
		if session.key == key {
			p.remove(n)
			return session
		}
	}

	return nil
}

// remove takes the nth session out. The caller holds mu.
func (p *sessions) remove(n int) *session {
	session := p.idle[n]
	p.idle = slices.Delete(p.idle, n, n+1)
	p.held -= session.held
	session.idle.Stop()

	return session
}

// open begins a session. The caller returns it by leave. Its requests are use's.
func (p *sessions) open(i *invocation, use *exchange, target Target) (*session, error) {
	last := i.farewell(use.ctx, target) //nolint:bodyclose // its caller closes the response
	s := &session{key: i.sessionKey(), last: last}
	s.now.Store(use)
	client := newMCPClient("roster-gateway")
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "notifications/tools/list_changed" {
				s.fresh.Store(false)
			}

			return next(ctx, method, r)
		}
	})
	// Nothing of this invocation is to stay with the session.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(use.ctx, func() { cancel(context.Cause(use.ctx)) })()

	var err error
	s.ClientSession, err = client.Connect(ctx, mcpTransport(i.binding.Endpoint, target.MaxBody, s), nil)
	s.opened = s.read.Load()
	s.held = s.opened

	return s, err
}

// farewell returns the function that sends a session's requests when no invocation has
// it: the one that ends it, in the name of its caller.
func (i *invocation) farewell(ctx context.Context, target Target) func(*http.Request) (*http.Response, error) {
	gateway, endpoint, header := i.g, i.binding.Endpoint, http.Header{}
	i.setHeader(ctx, header)

	for _, name := range []string{"Authorization", "Idempotency-Key", "Traceparent", "X-Request-Id"} {
		header.Del(name) // differs with each request
	}

	return func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancelCause(r.Context())

		// The body is read after this function, so a timer ends the request instead of a deferred call.
		time.AfterFunc(closeTime, func() { cancel(context.DeadlineExceeded) })

		r = r.Clone(ctx)
		maps.Copy(r.Header, header)

		if token := gateway.tokens.of(ctx, endpoint); token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}

		return gateway.cfg.Guard.Client(target).Transport.RoundTrip(r)
	}
}

// leave takes a session back after use, and keeps it. It ends the session instead if it
// must not be used again, has no caller, or is too large. If the kept sessions exceed
// their bounds, leave ends the least recently used ones.
func (p *sessions) leave(s *session, use *exchange) {
	// From here on, last sends the library's own requests.
	s.now.Store(nil)

	var gone []*session
	p.mu.Lock()
	if p.closed || use.spoiled.Load() || use.ctx.Err() != nil || s.key.caller.IsZero() || s.held > maxSessionBytes {
		gone = append(gone, s)
	} else {
		s.idle = time.AfterFunc(sessionIdle, func() { p.drop(s) })
		p.idle, p.held = append(p.idle, s), p.held+s.held

		ofAgent := func(o *session) bool { return o.key.agent == s.key.agent }
		if n := slices.IndexFunc(p.idle, ofAgent); p.count(ofAgent) > maxAgentSessions {
			gone = append(gone, p.remove(n))
		}

		for len(p.idle) > maxSessions || p.held > maxSessionsHeld {
			gone = append(gone, p.remove(0))
		}
	}

	p.mu.Unlock()

	// end takes the lock, and may wait for a server.
	for _, s := range gone {
		p.end(s)
	}
}

func (p *sessions) count(which func(*session) bool) (n int) {
	for _, s := range p.idle {
		if which(s) {
			n++
		}
	}

	return n
}

// drop ends a session that was idle for too long.
func (p *sessions) drop(session *session) {
	p.mu.Lock()

	n := slices.Index(p.idle, session)
	if n >= 0 {
		p.remove(n)
	}

	p.mu.Unlock()

	if n >= 0 {
		p.end(session)
	}
}

// end notifies the server that a session is over. It does so in the background, unless
// too many sessions are being ended.
func (p *sessions) end(session *session) {
	p.mu.Lock()

	beside := !p.closed && p.ending < maxClosing
	if beside {
		p.ending++
		p.closing.Go(func() {
			_ = session.Close() // the server forgets it anyway
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ending--
		})
	}

	p.mu.Unlock()

	if !beside {
		_ = session.Close()
	}
}

// close ends all sessions, and waits until that is done or bound ends.
func (p *sessions) close(bound context.Context) error {
	p.mu.Lock()

	p.closed = true
	for len(p.idle) > 0 {
		s := p.remove(0)
		p.closing.Go(func() { _ = s.Close() })
	}

	// The sessions that end in the background need the lock.
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { p.closing.Wait(); close(done) }()

	select {
	case <-done:
		return nil
	case <-bound.Done():
		return bound.Err()
	}
}

// Close ends the running invocations and the kept sessions, and waits for them until
// bound ends. No invocation starts after it.
func (g *Gateway) Close(bound context.Context) error {
	return errors.Join(g.lifecycle.Close(bound), g.sessions.close(bound))
}

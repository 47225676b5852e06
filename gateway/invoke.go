package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of a Gateway, where its configuration names none.
const (
	DefaultStreamTimeout = 10 * time.Minute
	DefaultMaxStream     = 64 << 20 // bytes of an answer that is passed on as it comes
	DefaultConcurrent    = 64       // invocations of one agent at once
	DefaultPerSecond     = 100.0    // invocations of one agent
	DefaultKeyWindow     = 10 * time.Minute
	maxItems             = 100 // of a batch
	itemsAtOnce          = 8
	maxMessage           = 512 // bytes of an agent's own words that a client is told
)

// Config is what a Gateway needs. Guard is required; what is 0 has its default.
type Config struct {
	Guard         *Guard
	Timeout       time.Duration // of an invocation; the guard's where it is 0
	StreamTimeout time.Duration // of one whose answer comes as a stream
	MaxBody       int64         // bytes of an answer
	MaxStream     int64
	Concurrent    int     // invocations of one agent at once
	PerSecond     float64 // invocations of one agent
	KeyWindow     time.Duration
	// Claims are the domain's; where it is nil, no Idempotency-Key is taken.
	Claims Claims
	// Tokens are shown to agents beside the node's certificate; nil shows none.
	Tokens Tokens
	// Domain is the node's own: its agents go by their bare names in PassHeaders.
	Domain spiffeid.TrustDomain
	// PassHeaders are the names of header fields of the caller's that an agent gets,
	// by the agent's name or rid, with DOMAIN/ before those of other domains. No others
	// are passed on (draft-cui, 7).
	PassHeaders map[string][]string
}

// A Gateway invokes agents for callers of this node (draft-cui, 5). It is safe for
// concurrent use.
type Gateway struct {
	cfg    Config
	paces  paces
	tokens tokens
	ends
}

// New returns a gateway.
func New(cfg Config) *Gateway {
	cfg.Timeout = cmp.Or(cfg.Timeout, cfg.Guard.cfg.Timeout)
	cfg.StreamTimeout = cmp.Or(cfg.StreamTimeout, DefaultStreamTimeout)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, DefaultMaxBody)
	cfg.MaxStream = cmp.Or(cfg.MaxStream, DefaultMaxStream)
	cfg.Concurrent = cmp.Or(cfg.Concurrent, DefaultConcurrent)
	cfg.PerSecond = cmp.Or(cfg.PerSecond, DefaultPerSecond)
	cfg.KeyWindow = cmp.Or(cfg.KeyWindow, DefaultKeyWindow)
	g := &Gateway{cfg: cfg}
	g.ends.init()
	g.paces.init(cfg)
	g.tokens.init(cfg.Tokens)
	return g
}

// Fronts reports whether the gateway speaks a protocol by which e's agent is
// reached, and the agent may be called, as far as its registration says and the
// guard can tell without asking for addresses.
func (g *Gateway) Fronts(e *directory.Entry) bool {
	p := e.Projection()
	b, ok := g.bindingOf(p)
	u, err := url.Parse(b.Endpoint)
	return ok && invocable(p.Status) && err == nil && g.cfg.Guard.Check(u) == nil
}

// invocable are the states in which an agent may be called (draft-xu, 4.8).
func invocable(status string) bool {
	return status == "active" || status == "testing" || status == "deprecated"
}

// Invoke has e's agent do what in asks for. e is the registration as it is now.
// An array is a batch, unless the operation takes arrays. Errors are
// *directory.Error, or the context's.
func (g *Gateway) Invoke(ctx context.Context, e *directory.Entry, in directory.Invocation) (*directory.Reply, error) {
	p := e.Projection()
	if !invocable(p.Status) { // XU-065
		return nil, directory.Refuse(directory.AgentUnavailable, "the agent's registration says that it is %s", p.Status)
	}
	b, ok := g.bindingOf(p)
	if !ok {
		return nil, directory.Refuse(directory.NotInvocable, "the agent has no binding that this gateway speaks: https, WoA, MCP over streamable HTTP, or A2A over JSON-RPC or HTTP+JSON")
	}
	in.Body = bytes.TrimSpace(in.Body)
	if len(in.Body) == 0 {
		return nil, directory.Refuse(directory.BadRequest, "the body is empty; send the operation's input as JSON")
	}
	i := &invoking{g: g, e: e, p: p, in: in, binding: b, operations: directory.Operations(e.Document, p)}
	c, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	streams := false
	defer func() {
		if !streams {
			c.leave()
		}
	}()
	reply, err := i.begin(c.ctx)
	switch {
	case err == nil && reply.Stream != nil:
		streams, reply.Stream = true, g.stream(c, reply.Stream)
	case errors.Is(err, context.Canceled) && g.closing.Err() != nil:
		err = errStopping
	}
	return reply, err
}

// begin uses up what the request came with that is good once, and calls the agent.
func (i *invoking) begin(ctx context.Context) (*directory.Reply, error) {
	claims := i.g.cfg.Claims
	if claims == nil && (i.in.Key != "" || !i.in.Proof.IsZero()) {
		return nil, directory.Refuse(directory.Unavailable, "this gateway keeps neither Idempotency-Keys nor proofs; use a client certificate, and no key")
	}
	if !i.in.Proof.IsZero() {
		if err := claims.Spend(ctx, i.in.Proof, i.in.ProofUntil); err != nil {
			return nil, err
		}
	}
	if i.in.Key == "" {
		return i.run(ctx)
	}
	return i.once(ctx)
}

// An invoking is one invocation under way.
type invoking struct {
	g          *Gateway
	e          *directory.Entry
	p          *directory.Projection // of e
	in         directory.Invocation
	binding    directory.Binding
	operations []directory.Operation
	reached    atomic.Bool // a request may have reached the agent
}

func (i *invoking) run(ctx context.Context) (*directory.Reply, error) {
	if i.batches() {
		return i.batch(ctx)
	}
	return i.one(ctx, i.in.Body, "", false)
}

// batches reports whether the body is an array that the agent doesn't take itself.
func (i *invoking) batches() bool {
	if i.in.Body[0] != '[' {
		return false
	}
	o, ok := i.sole()
	return !ok || !takesArrays(o) && !o.Batch
}

// sole is the operation that needs no body to be known.
func (i *invoking) sole() (directory.Operation, bool) {
	if i.in.Operation != "" {
		return find(i.operations, i.in.Operation)
	}
	return i.operations[0], len(i.operations) == 1
}

func takesArrays(o directory.Operation) bool {
	s, err := directory.CompileSchema(o.Input)
	return o.Input != nil && err == nil && s.TakesArrays()
}

// one invokes the agent with one body. at is where in the request it stands, and
// patient is whether it waits for its turn.
func (i *invoking) one(ctx context.Context, body []byte, at string, patient bool) (*directory.Reply, error) {
	w, err := i.choose(body, at)
	if err != nil {
		return nil, err
	}
	w.number = strings.TrimPrefix(at, "/")
	if err := w.checkInput(); err != nil {
		return nil, err
	}
	release, err := i.g.paces.enter(ctx, i.e, patient)
	if err != nil {
		return nil, err
	}
	reply, err := i.drive(ctx, w)
	if err != nil {
		release()
		return nil, explain(ctx, err)
	}
	if reply.Stream != nil {
		reply.Stream = &releasing{reply.Stream, release}
		return reply, nil
	}
	release()
	return reply, w.checkOutput(reply)
}

// releasing gives an agent's place back when a stream is closed.
type releasing struct {
	io.ReadCloser
	release func()
}

func (r *releasing) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}

// drive speaks to the agent by its protocol.
func (i *invoking) drive(ctx context.Context, w *work) (*directory.Reply, error) {
	switch i.binding.Protocol {
	case protocolMCP:
		return i.callMCP(ctx, w)
	case protocolA2A:
		return i.callA2A(ctx, w)
	}
	return i.callREST(ctx, w)
}

// The protocols that are spoken, by the names of bindings.
const (
	protocolHTTPS = "https"
	protocolMCP   = "mcp"
	protocolA2A   = "a2a"
)

// bindingOf returns the first binding that a driver speaks.
func (g *Gateway) bindingOf(p *directory.Projection) (directory.Binding, bool) {
	all := p.Bindings
	if len(all) == 0 {
		for _, protocol := range p.Protocols {
			all = append(all, directory.Binding{Protocol: protocol, Endpoint: p.Base})
		}
	}
	for _, b := range all {
		if spoken(b) {
			return b, true
		}
	}
	return directory.Binding{}, false
}

// spoken reports whether there is a driver for a binding.
func spoken(b directory.Binding) bool {
	if !strings.HasPrefix(b.Endpoint, "https://") {
		return false
	}
	switch strings.ToLower(b.Protocol) {
	case protocolHTTPS, "http", "rest":
		return b.Envelope == "" || b.Envelope == "woa"
	case protocolMCP:
		return b.Transport == "" || slices.Contains([]string{"streamable-http", "streamable"}, b.Transport)
	case protocolA2A:
		return b.Transport == "JSONRPC" || b.Transport == "HTTP+JSON" || b.Transport == ""
	}
	return false
}

// target is for whom the guard sends a request.
func (i *invoking) target() Target {
	t := Target{MaxBody: i.g.cfg.MaxBody, Timeout: i.g.cfg.Timeout}
	if i.in.Stream {
		t.MaxBody, t.Timeout = i.g.cfg.MaxStream, i.g.cfg.StreamTimeout
	}
	t.Registrant, _ = i.e.Owner.SPIFFE()
	t.MutualTLS = !t.Registrant.IsZero() && saysMutualTLS(i.p.Authentication)
	return t
}

// saysMutualTLS reports whether an agent authenticates by mTLS: as draft-cui's
// type has it, or as an A2A card's security scheme.
func saysMutualTLS(authentication []byte) bool {
	text := strings.ToLower(string(authentication))
	for _, name := range []string{`"mtls"`, `"mutualtls"`, `"mutual_tls"`, `"mutual-tls"`, `"mtlssecurityscheme"`, `"x509-svid"`} {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// passed sets the header fields that go to the agent: what the operator lets
// through, who this node is, and what tells one request from another. It reports
// whether any was the caller's own.
func (i *invoking) passed(ctx context.Context, h http.Header) (own bool) {
	before := ""
	if i.e.Origin != i.g.cfg.Domain {
		before = i.e.Origin.Name() + "/" // another domain's agent may have the name of one of ours
	}
	for _, name := range append(i.g.cfg.PassHeaders[before+i.e.Agent], i.g.cfg.PassHeaders[before+i.e.RID.String()]...) {
		name = http.CanonicalHeaderKey(name)
		if values := i.in.Header[name]; len(values) > 0 {
			h[name], own = slices.Clone(values), true
		}
	}
	if h.Get("Authorization") == "" {
		if token := i.g.tokens.of(ctx, i.binding.Endpoint); token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
	}
	if i.in.RequestID != "" {
		h.Set("X-Request-Id", i.in.RequestID)
	}
	if trace := i.in.Header["Traceparent"]; len(trace) == 1 && traceparent.MatchString(trace[0]) {
		h["Traceparent"] = trace
	}
	if i.in.Key != "" { // the agent knows all callers as this node: it must not take two callers' keys for one
		key := i.keyHash()
		h.Set("Idempotency-Key", hex.EncodeToString(key[:]))
	}
	return own
}

// traceparent is W3C Trace Context's, 3.2: it says nothing but which request it is.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// neverPassed are header fields that no operator can have passed on: they are about
// a connection, or say what this node itself says to the agent.
var neverPassed = []string{
	"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent", "Accept",
	"Accept-Encoding", "Workload-Identity-Token", "X-Request-Id", "Traceparent",
}

// CheckPassHeader returns an error where a header field can't be passed on to an
// agent.
func CheckPassHeader(name string) error {
	switch canonical := http.CanonicalHeaderKey(name); {
	case !fieldName.MatchString(name):
		return fmt.Errorf("%q is no name of a header field", name)
	case slices.Contains(neverPassed, canonical):
		return fmt.Errorf("%s is not passed on: it is about the connection, or this node's own to say", canonical)
	}
	return nil
}

// fieldName is RFC 9110's token.
var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/schema"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/limit"
)

// Bounds of a Gateway, if its configuration names none.
const (
	DefaultStreamTimeout = 10 * time.Minute
	DefaultMaxStream     = 64 << 20 // bytes of an answer that is passed on as it comes
	DefaultConcurrent    = 64       // invocations of one agent at once
	DefaultPerSecond     = 100.0    // invocations of one agent
	DefaultKeyWindow     = 10 * time.Minute
	maxItems             = 100 // of a batch
)

// Config is the configuration of a Gateway. Guard is required; a field that is 0 has its
// default.
type Config struct {
	Guard         *Guard
	Timeout       time.Duration // of an invocation; the guard's if it is 0
	StreamTimeout time.Duration // of one whose answer comes as a stream
	MaxBody       int64         // bytes of an answer
	MaxStream     int64
	Concurrent    int     // invocations of one agent at once
	PerSecond     float64 // invocations of one agent
	KeyWindow     time.Duration
	// Claims are the domain's; if it is nil, no Idempotency-Key is accepted.
	Claims Claims
	// Tokens are shown to agents beside the node's certificate; nil shows none.
	Tokens Tokens
	// Domain is the node's own: its agents go by their bare names in PassHeaders.
	Domain spiffeid.TrustDomain
	// PassHeaders are the names of header fields of the caller's that an agent gets,
	// by the agent's name or rid, with DOMAIN/ before those of other domains. No others
	// are passed on (draft-cui, 7).
	PassHeaders map[string][]string
	// Operates tells whether an identity is an operator, who gets the class of a failure to reach an
	// agent as its owner does; nil is no.
	Operates func(directory.Identity) bool
	Logger   *slog.Logger // slog's default if it is nil
}

// Bounds of the log lines about a domain's agents that can't be reached: any caller causes one by each call.
var failureRate = limit.Rate{PerSecond: 0.2, Burst: 20}

const maxFailingDomains = 1024

// A Gateway invokes agents for callers of this node (draft-cui, 5). It is safe for
// concurrent use.
type Gateway struct {
	cfg        Config
	judgements judgements
	plans      plans
	rateLimits rateLimits
	tokens     tokens
	sessions   sessions
	lines      *limit.Lines[spiffeid.TrustDomain] // of the log, about agents that can't be reached
	lifecycle
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	gateway := &Gateway{cfg: cfg, lines: limit.NewLines[spiffeid.TrustDomain](maxFailingDomains, failureRate)}
	gateway.lifecycle.init()
	gateway.judgements.init()
	gateway.rateLimits.init(cfg.Concurrent, cfg.PerSecond)
	gateway.tokens.init(cfg.Tokens)

	return gateway
}

// Invocable reports whether the gateway supports a protocol of e's agent, and the agent
// may be called. It checks the registration, and the guard's rules that need no
// resolution of addresses.
func (g *Gateway) Invocable(e *directory.Entry) bool {
	projection := e.Projection()

	target, err := url.Parse(bindingOf(projection).Endpoint)
	if err != nil {
		return false
	}

	// Without a binding that is supported, the guard refuses the empty URL.
	return isCallable(projection.Status) && g.cfg.Guard.Check(target) == nil
}

// isCallable reports whether a status is one in which an agent may be called (draft-xu, 4.8).
func isCallable(status string) bool {
	return slices.Contains([]string{"active", "testing", "deprecated"}, status)
}

// Invoke invokes e's agent with the request in. e is the registration in its present
// form. An array is a batch, unless the operation takes arrays. Errors are
// *directory.Error, or the context's.
func (g *Gateway) Invoke(ctx context.Context, entry *directory.Entry, in invoke.Request) (reply *invoke.Reply,
	err error) {
	err = span.Do(ctx, span.Invoke, func(step span.Span) (err error) {
		reply, err = g.invoke(step.In(ctx), entry, in)
		return err
	})

	return reply, err
}

func (g *Gateway) invoke(ctx context.Context, entry *directory.Entry, in invoke.Request) (reply *invoke.Reply,
	err error) {
	plan := g.plans.of(entry, in.Redaction)
	if status := plan.contract.Projection.Status; !isCallable(status) { // XU-065
		return nil, directory.Refuse(directory.AgentUnavailable, "the agent's registration says that it is %s", status)
	}

	if plan.binding.Endpoint == "" {
		return nil, directory.Refuse(directory.NotInvocable,
			"the agent has no binding that this gateway speaks: https, WoA, MCP over streamable HTTP, or A2A "+
				"over JSON-RPC or HTTP+JSON")
	}

	in.Body = bytes.TrimSpace(in.Body)
	if len(in.Body) == 0 {
		return nil, directory.Refuse(directory.BadRequest, "the body is empty; send the operation's input as JSON")
	}

	i := &invocation{plan: plan, g: g, e: entry, in: in}

	call, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}

	// A stream outlives this function, so its Close ends the call.
	streams := false
	defer func() {
		if !streams {
			call.leave()
		}
	}()

	reply, err = i.begin(call.ctx)
	switch {
	case err == nil && reply.Stream != nil:
		streams, reply.Stream = true, g.stream(call, reply.Stream)
	case errors.Is(err, context.Canceled) && g.closing.Err() != nil:
		err = errStopping
	}

	return reply, err
}

// begin uses up the one-time credentials of the request, and calls the agent.
func (i *invocation) begin(ctx context.Context) (*invoke.Reply, error) {
	claims := i.g.cfg.Claims
	if claims == nil && (i.in.Key != "" || !i.in.Proof.IsZero()) {
		return nil, directory.Refuse(directory.Unavailable,
			"this gateway keeps neither Idempotency-Keys nor proofs; use a client certificate, and no key")
	}

	// A request whose proof is refused must not claim the key.
	if !i.in.Proof.IsZero() {
		if err := claims.Spend(ctx, i.in.Proof, i.in.ProofUntil); err != nil {
			return nil, err
		}
	}

	if i.in.Key == "" {
		return i.run(ctx)
	}

	return i.runOnce(ctx)
}

// An invocation is one invocation under way.
type invocation struct {
	*plan   // of e
	g       *Gateway
	e       *directory.Entry
	in      invoke.Request
	reached atomic.Bool // a request with a key may have reached the agent
}

// An agentTask is the work of an agent, as a part of an invocation.
type agentTask struct {
	invoke.Task
	number string // of an item of a batch
}

func (i *invocation) run(ctx context.Context) (*invoke.Reply, error) {
	items, err := i.split(ctx)
	if err != nil {
		return nil, err
	}

	if items != nil {
		return i.batch(ctx, items)
	}

	return i.one(ctx, i.in.Body, "", false)
}

// judge bounds a judgement. size is the bytes of the value and the schemas.
func (i *invocation) judge(ctx context.Context, size int, judge func(*schema.Budget) error) error {
	return i.g.judgements.do(ctx, i.in.Party, size, judge)
}

// one invokes the agent with one body. at is where in the request it stands, and
// patient is whether it waits for its turn.
func (i *invocation) one(ctx context.Context, body []byte, at string, patient bool) (*invoke.Reply, error) {
	// An input that is refused below has taken its turn: judging it was work for the caller, too.
	release, err := i.g.rateLimits.enter(ctx, i.e, i.in.Party, patient)
	if err != nil {
		return nil, err
	}

	w, err := span.Get(ctx, span.Judge, func() (*agentTask, error) { return i.accept(ctx, body, at) })
	if err != nil {
		release()
		return nil, i.explain(ctx, err)
	}

	reply, err := i.drive(ctx, w)
	if err != nil {
		release()
		return nil, i.explain(ctx, err)
	}

	// The invocation holds its place at the agent until its stream is closed.
	if reply.Stream != nil {
		reply.Stream = &releasing{reply.Stream, release}
		return reply, nil
	}

	release()

	return reply, span.Do(ctx, span.Judge, func(span.Span) error { return i.checkOutput(ctx, w, reply) })
}

// accept determines the task of a body, and judges its input.
func (i *invocation) accept(ctx context.Context, body []byte, at string) (w *agentTask, err error) {
	err = i.judge(ctx, len(body)+i.schemas, func(budget *schema.Budget) error {
		task, err := i.contract.Choose(i.in.Operation, body, at)
		if err != nil {
			return err
		}

		w = &agentTask{*task, strings.TrimPrefix(at, "/")}

		if err := w.CheckInput(budget); err != nil {
			return err
		}

		return i.judgeWithheld(&w.Task, budget)
	})
	if err != nil {
		return nil, err
	}

	if items := w.Items(); items != nil {
		return w, i.count(items)
	}

	return w, nil
}

// checkOutput refuses an answer that is no success by the operation's schema
// (AI-035, WOA-009).
func (i *invocation) checkOutput(ctx context.Context, w *agentTask, reply *invoke.Reply) error {
	var violations []directory.Violation

	size := len(reply.Body) + len(w.Input) + len(w.Output)
	err := i.judge(ctx, size, func(budget *schema.Budget) (err error) {
		violations, err = w.JudgeOutput(reply.Body, "", budget)
		return err
	})

	switch problem := directory.ProblemOf(err); {
	case problem == directory.Unavailable, problem == directory.RateLimited, ctx.Err() != nil:
		// The node's shortage, the caller's used-up share or its end is no fault of the agent's.
		return err
	case err != nil:
		return directory.Refuse(directory.AgentFailed,
			"the agent's answer can't be judged by its own output schema: %w", err)
	case len(violations) > 0:
		return directory.Refuse(directory.AgentFailed, "the agent's answer breaks its own output schema at %s",
			cmp.Or(violations[0].Pointer, "its root"))
	}

	return nil
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
func (i *invocation) drive(ctx context.Context, w *agentTask) (reply *invoke.Reply, err error) {
	call := i.callREST

	switch i.binding.Protocol {
	case protocolMCP:
		call = i.callMCP
	case protocolA2A:
		call = i.callA2A
	}

	err = span.Do(ctx, span.Agent, func(step span.Span) (err error) {
		reply, err = call(step.In(ctx), w)
		return err
	})

	return reply, err
}

// target is for whom the guard sends a request.
func (i *invocation) target() Target {
	t := Target{MaxBody: i.g.cfg.MaxBody, Timeout: i.g.cfg.Timeout}
	if i.in.Stream {
		t.MaxBody, t.Timeout = i.g.cfg.MaxStream, i.g.cfg.StreamTimeout
	}

	t.Registrant, _ = i.e.VerifiedOwner()
	t.MutualTLS = !t.Registrant.IsZero() && i.mutual

	return t
}

// setHeader sets the header fields of the request to the agent: those that the operator
// lets through, this node's identity, and the identifiers of the request. It reports
// whether any field was the caller's own.
func (i *invocation) setHeader(ctx context.Context, header http.Header) (own bool) {
	for _, name := range i.g.passHeaders(i.e) {
		name = http.CanonicalHeaderKey(name)
		if values := i.in.Header[name]; len(values) > 0 {
			header[name], own = slices.Clone(values), true
		}
	}

	if token := i.g.tokens.of(ctx, i.binding.Endpoint); token != "" {
		header.Set("Authorization", "Bearer "+token)
	}

	header["Via"] = slices.Repeat([]string{invoke.ViaGateway}, 1+invoke.Gateways(i.in.Header))
	if i.in.RequestID != "" {
		header.Set("X-Request-Id", i.in.RequestID)
	}

	if trace := i.in.Header["Traceparent"]; len(trace) == 1 && traceparent.MatchString(trace[0]) {
		header["Traceparent"] = trace
	}

	// If this node records the invocation, its span takes the place of the caller's; else the node is no part of the
	// trace.
	span.Inject(ctx, header)

	// The agent knows all callers as this node, so it must not take the keys of two callers for one.
	if i.in.Key != "" {
		key := i.keyHash()
		header.Set("Idempotency-Key", hex.EncodeToString(key[:]))
	}

	return own
}

// passHeaders are the names of the header fields that an operator lets through to e's
// agent.
func (g *Gateway) passHeaders(entry *directory.Entry) []string {
	before := ""
	if entry.Origin != g.cfg.Domain {
		// Another domain's agent may have the name of one of ours.
		before = entry.Origin.Name() + "/"
	}

	return slices.Concat(g.cfg.PassHeaders[before+entry.Agent], g.cfg.PassHeaders[before+entry.RID.String()])
}

// traceparent is W3C Trace Context's, 3.2: it identifies the request and has no other
// content.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

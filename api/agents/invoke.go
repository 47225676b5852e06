package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/limit"
)

// A Gateway invokes agents for this node's callers. Its errors are *directory.Error, or
// the context's.
type Gateway interface {
	// Invoke calls e's agent. e is the registration as it is now.
	Invoke(ctx context.Context, e *directory.Entry, in invoke.Request) (*invoke.Reply, error)
}

// An AuditLog records invocations: Intend before the agent is called, and done with the
// outcome. If Intend fails, which is Unavailable, the agent is not called.
type AuditLog interface {
	Intend(directory.AuditEvent) (done func(directory.AuditEvent), err error)
}

// DefaultMaxInvocation bounds the body of an invocation, in bytes.
const DefaultMaxInvocation = 1 << 20

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 255

// An Invoker answers the routes that invoke agents.
type Invoker struct {
	Domain  spiffeid.TrustDomain
	Reader  *registration.Reader
	Gateway Gateway
	Limiter *admission.Limiter
	// MayInvoke is policy's decision whether an identity may invoke an agent.
	MayInvoke func(directory.Identity, *directory.Entry) directory.Decision
	Frozen    func() []spiffeid.TrustDomain // domains whose agents are not invoked
	AuditLog  AuditLog
	Logger    *slog.Logger
	Failures  *limit.Lines[spiffeid.TrustDomain] // samples the log lines about streams of a domain's agents
}

// Invoke answers POST /agents/{id}/invoke and POST /agents/{id}/{operation} (cui 5;
// gaikwad 5). The registration is read now, whenever the caller found it (XU-065).
func (v *Invoker) Invoke(w http.ResponseWriter, call *request.Call) error {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // an agent has its own time limit; each write gets a deadline

	found, err := v.Reader.Find(w, call, func(e *directory.Entry) string {
		return view.AgentHref(e) + "/" + lastSegment(call)
	})
	if err != nil {
		return err
	}

	entry := found.Entry
	if err := v.authorise(call, entry); err != nil {
		return err
	}

	in, err := v.parse(w, call)
	if err != nil {
		return err
	}

	in.Redaction = found.Redaction

	return v.audit(call, entry, func() error { return v.call(w, call, entry, in) })
}

// audit calls an agent between two lines of the audit log: which caller asked, and with
// which outcome, but neither input nor output (AI-018).
func (v *Invoker) audit(c *request.Call, entry *directory.Entry, call func() error) (err error) {
	event := c.Audit(directory.AuditEvent{Action: "invoke", Owner: entry.Owner, Agent: entry.Agent, RID: entry.RID})
	if entry.Origin != v.Domain {
		event.Target = entry.Origin.Name()
	}

	done, err := v.AuditLog.Intend(event)
	if err != nil {
		return err
	}

	c.Audited = true

	// A panic that aborts the answer leaves this outcome.
	event.Outcome = "cut off"
	defer func() { done(event) }()

	if err = call(); !errors.Is(err, context.Canceled) {
		event.Outcome = request.OutcomeOf(err)
	}

	return err
}

// authorise refuses an invocation that policy forbids, or of an agent whose origin is
// frozen.
func (v *Invoker) authorise(call *request.Call, entry *directory.Entry) error {
	if slices.Contains(v.Frozen(), entry.Origin) {
		return directory.Refuse(directory.Forbidden,
			"this domain has frozen %s, so it doesn't invoke its agents", entry.Origin.Name())
	}

	decision := v.MayInvoke(call.Identity, entry)
	if !decision.Allow && call.Anonymous() {
		return v.Reader.Guard.Unauthenticated("Anonymous callers may not invoke this agent.", nil)
	}

	return access.Require(call, decision, "%s may not invoke %q", call.Identity, entry.Agent)
}

// parse reads an invocation.
func (v *Invoker) parse(w http.ResponseWriter, call *request.Call) (in invoke.Request, err error) {
	if media, _, _ := mime.ParseMediaType(call.Header.Get("Content-Type")); strings.HasPrefix(media, "multipart/") {
		return in, directory.Refuse(problem.MediaType, "an invocation must be JSON, got %s. Name large or binary "+
			"content by a URL, or encode it as base64 in the JSON", media)
	}

	keys := call.Header.Values("Idempotency-Key")
	if len(keys) > 1 || len(keys) == 1 && (keys[0] == "" || len(keys[0]) > maxKey) {
		return in, directory.Refuse(directory.BadRequest, "Idempotency-Key must be one key of 1 to %d bytes", maxKey)
	}

	if len(keys) == 1 && call.Anonymous() {
		return in, directory.Refuse(directory.BadRequest,
			"an Idempotency-Key needs a verified identity, because keys are per caller. Authenticate, or leave it out")
	}

	in = invoke.Request{
		Operation: call.Vars["operation"], Caller: call.Identity, Party: call.Party,
		Header: call.Header, RequestID: call.RequestID,
		Proof: call.Credential.Proof, ProofUntil: call.Credential.ProofUntil,
		More:   func(n int) error { return v.Limiter.PaceMore(call.Caller(), admission.Invocations, n) },
		Stream: strings.Contains(strings.Join(call.Header.Values("Accept"), ","), wire.MediaEvents),
	}
	if len(keys) == 1 {
		in.Key = keys[0]
	}

	// The body is read last, so a header that is refused costs no memory.
	in.Body, err = request.ReadBody(w, call)

	return in, err
}

// call has the gateway call an agent, and passes its answer on.
func (v *Invoker) call(w http.ResponseWriter, c *request.Call, entry *directory.Entry, in invoke.Request) error {
	rc := http.NewResponseController(w)
	ctx, cut := context.WithCancel(c.Context())
	defer cut()

	held := c.Pools.HoldAnswers(c.Caller())
	defer held.Release()

	in.Hold = func(n int64) error {
		if err := held.More(n); err != nil {
			return directory.Refuse(directory.AgentFailed,
				"the agent's answer was not read to its end; the agent may have acted: %v", err)
		}

		return nil
	}

	reply, err := v.Gateway.Invoke(ctx, entry, in)
	if err != nil {
		return err
	}

	// The answer is the agent's, not a read's.
	header := w.Header()
	header.Del("Roster-Stale")
	header.Del("Vary")
	response.NoStore(w)

	if reply.Replayed {
		header.Set("Idempotency-Replayed", "true")
	}

	if reply.Stream == nil {
		_ = rc.SetWriteDeadline(time.Now().Add(admission.BodyTime))
		response.Write(w, c.Request, reply.Status, reply.ContentType, reply.Body)

		if c.ProtoMajor == 1 { // HTTP/2 would send a frame of its own at the end
			_ = rc.Flush() // the client doesn't wait for the line of the audit log
		}

		return nil
	}

	defer reply.Stream.Close()

	// A stream must not outlive the credential that it was asked for with.
	if until := c.Credential.Until; !until.IsZero() {
		defer time.AfterFunc(time.Until(until), cut).Stop()
	}

	header.Set("Content-Type", reply.ContentType)
	header.Set("X-Accel-Buffering", "no") // for proxies that would buffer the stream
	w.WriteHeader(reply.Status)

	if err := forward(w, rc, reply); err != nil {
		if skipped, due := v.Failures.Take(entry.Origin); due {
			v.Logger.Info("an agent's stream ended early", "request_id", c.RequestID, "skipped", skipped, "err", err)
		}

		// The client must not take the stream for complete.
		panic(http.ErrAbortHandler)
	}

	return nil
}

// lastSegment is the part of a path after the agent's id.
func lastSegment(c *request.Call) string {
	path := c.URL.EscapedPath()
	return path[strings.LastIndexByte(path, '/')+1:]
}

// forward sends a stream on as it arrives. If a stream of events ends early, an event
// tells why; if it ends because this node stops, that event is its regular end.
func forward(w http.ResponseWriter, rc *http.ResponseController, reply *invoke.Reply) error {
	// The client gets the header at once, however late the agent's first byte is.
	f := forwarder{w: w, rc: rc}
	_ = rc.Flush()
	buf := make([]byte, 4<<10)

	for {
		n, err := reply.Stream.Read(buf)
		if n > 0 {
			if err := f.send(buf[:n]); err != nil {
				return err
			}
		}

		var explained *directory.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &explained) && reply.ContentType == wire.MediaEvents && f.betweenEvents():
			if failed := f.send(errorEvent(explained)); failed != nil || explained.Problem == directory.Unavailable {
				return failed
			}

			return err
		default:
			return err
		}
	}
}

// A forwarder sends a stream to its client.
type forwarder struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	tail []byte // the last four bytes that were sent
}

func (f *forwarder) send(data []byte) error {
	_ = f.rc.SetWriteDeadline(time.Now().Add(response.WriteTime)) // if the connection has deadlines
	if _, err := f.w.Write(data); err != nil {
		return err
	}

	if err := f.rc.Flush(); err != nil {
		return err
	}

	_ = f.rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, even if nothing is sent

	kept := max(0, 4-len(data))
	f.tail = append(f.tail[max(0, len(f.tail)-kept):], data[max(0, len(data)-4):]...)

	return nil
}

// betweenEvents tells whether no event has been sent in part.
func (f *forwarder) betweenEvents() bool {
	tail := string(f.tail)

	return tail == "" || strings.HasSuffix(tail, "\n\n") || strings.HasSuffix(tail, "\r\n\r\n") ||
		strings.HasSuffix(tail, "\r\r")
}

// errorEvent is draft-cui's error object as an event.
func errorEvent(e *directory.Error) []byte {
	object := strictjson.AppendText([]byte{'{'}, "code", problem.RuleOf(e.Problem).ErrorCode)
	object = append(strictjson.AppendText(object, "message", e.Error()), '}')

	return fmt.Appendf(nil, "event: error\ndata: {\"error\":%s}\n\n", object)
}

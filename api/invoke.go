package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Gateway invokes agents for this node's callers. Its errors are
// *directory.Error, or the context's.
type Gateway interface {
	// Invoke has e's agent do what is asked for. e is the registration as it is now.
	Invoke(ctx context.Context, e *directory.Entry, in invoke.Request) (*invoke.Reply, error)
}

// DefaultMaxInvocation is how many bytes the body of an invocation has, at most.
const DefaultMaxInvocation = 1 << 20

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 255

// invoke answers POST /agents/{id}/invoke and POST /agents/{id}/{operation} (cui 5;
// gaikwad 5). The registration is read now, whenever the caller found it (XU-065).
func (s *Server) invoke(w http.ResponseWriter, c *call) error {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // an agent has its own time; each write has one
	e, _, err := s.find(w, c, func(e *directory.Entry) string { return agentHref(e) + "/" + lastSegment(c) })
	if e == nil {
		return err
	}
	if err := s.mayInvoke(c, e); err != nil {
		return err
	}
	in, err := s.invocation(w, c)
	if err != nil {
		return err
	}
	return s.noting(c, e, func() error { return s.call(w, c, e, in) })
}

// noting has an agent called between the lines of the audit trail: who asked and what
// came of it, and never what was asked or answered (AI-018).
func (s *Server) noting(c *call, e *directory.Entry, call func() error) (err error) {
	if s.cfg.Trail == nil {
		return call()
	}
	line := c.by(directory.AuditEvent{Action: "invoke", Owner: e.Owner, Agent: e.Agent, RID: e.RID})
	if e.Origin != s.cfg.Domain {
		line.Target = e.Origin.Name()
	}
	if err := s.cfg.Trail.Intend(line); err != nil {
		return err
	}
	c.audited = true
	line.Outcome = "cut off" // where call doesn't return
	defer func() { s.cfg.Trail.Done(line) }()
	if err = call(); !errors.Is(err, context.Canceled) {
		line.Outcome = outcomeOf(err)
	}
	return err
}

// call has the gateway call an agent, and passes its answer on.
func (s *Server) call(w http.ResponseWriter, c *call, e *directory.Entry, in invoke.Request) error {
	rc := http.NewResponseController(w)
	ctx, cut := context.WithCancel(c.Context())
	defer cut()
	reply, err := s.cfg.Gateway.Invoke(ctx, e, in)
	if err != nil {
		return err
	}
	h := w.Header()
	for _, name := range []string{"Roster-Stale", "Vary"} {
		h.Del(name) // of a read's answer; this one is the agent's
	}
	h.Set("Cache-Control", "no-store")
	if reply.Replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if reply.Stream == nil {
		_ = rc.SetWriteDeadline(time.Now().Add(bodyTime))
		write(w, c.Request, reply.Status, reply.ContentType, reply.Body)
		if c.ProtoMajor == 1 { // HTTP/2 would end it by a frame of its own
			_ = rc.Flush() // its client doesn't wait for the trail's line
		}
		return nil
	}
	defer reply.Stream.Close()
	if until := c.credential.Until; !until.IsZero() {
		defer time.AfterFunc(time.Until(until), cut).Stop()
	}
	h.Set("Content-Type", reply.ContentType)
	h.Set("X-Accel-Buffering", "no") // of proxies that would wait for the end
	w.WriteHeader(reply.Status)
	err = pass(w, rc, reply)
	if err != nil {
		s.log.Info("a stream of an agent ended early", "request_id", c.requestID, "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for a whole one
	}
	return nil
}

// mayInvoke is policy's word, and what this node knows of the agent's origin.
func (s *Server) mayInvoke(c *call, e *directory.Entry) error {
	if s.cfg.Frozen != nil && slices.Contains(s.cfg.Frozen(), e.Origin) {
		return directory.Refuse(directory.Forbidden, "nothing of %s is invoked: this domain has frozen it", e.Origin.Name())
	}
	d := s.cfg.Policy.Invoke(c.id, e)
	if !d.Allow && c.id.IsZero() {
		return s.challenge("To invoke this agent is not for everybody. ", nil)
	}
	return c.denied(d, "%s may not invoke %q", c.id, e.Agent)
}

// invocation reads what is asked for.
func (s *Server) invocation(w http.ResponseWriter, c *call) (in invoke.Request, err error) {
	if media, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); strings.HasPrefix(media, "multipart/") {
		return in, directory.Refuse(problem.MediaType, "Invocations are JSON, and not %s: name large or binary content by a URL, or put it into the JSON in base64.", media)
	}
	keys := c.Header.Values("Idempotency-Key")
	if len(keys) > 1 || len(keys) == 1 && (keys[0] == "" || len(keys[0]) > maxKey) {
		return in, directory.Refuse(directory.BadRequest, "Idempotency-Key is one key of 1 to %d bytes.", maxKey)
	}
	most := s.cfg.MaxInvocation
	if most == 0 {
		most = DefaultMaxInvocation
	}
	in = invoke.Request{
		Operation: c.vars["operation"], Caller: c.id, Header: c.Header, RequestID: c.requestID,
		Proof: c.credential.Proof, ProofUntil: c.credential.ProofUntil,
		More:   func(n int) error { return s.paceMore(c, Invocations, n) },
		Stream: strings.Contains(strings.Join(c.Header.Values("Accept"), ","), "text/event-stream"),
	}
	if len(keys) == 1 {
		in.Key = keys[0]
		if c.id.IsZero() {
			return in, directory.Refuse(directory.BadRequest, "An Idempotency-Key is a caller's own, and this request is nobody's: present an identity, or leave it out.")
		}
	}
	in.Body, err = readUpTo(w, c, most)
	return in, err
}

// lastSegment is what a path has behind the agent's id.
func lastSegment(c *call) string {
	return c.URL.EscapedPath()[strings.LastIndexByte(c.URL.EscapedPath(), '/')+1:]
}

// pass sends a stream on as it comes. Why one of events ended early it tells as an
// event, and where it ends because this node does, that is its end.
func pass(w http.ResponseWriter, rc *http.ResponseController, reply *invoke.Reply) error {
	p := passage{w: w, rc: rc}
	_ = rc.Flush()
	buf := make([]byte, 4<<10)
	for {
		n, err := reply.Stream.Read(buf)
		if n > 0 {
			if err := p.send(buf[:n]); err != nil {
				return err
			}
		}
		var told *directory.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &told) && reply.ContentType == eventStream && p.between():
			if failed := p.send(errorEvent(told)); failed != nil || told.Problem == directory.Unavailable {
				return failed
			}
			return err
		default:
			return err
		}
	}
}

const eventStream = "text/event-stream"

// A passage is a stream's way to its client.
type passage struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	tail []byte // the last bytes that were sent
}

func (p *passage) send(b []byte) error {
	_ = p.rc.SetWriteDeadline(time.Now().Add(writeTime)) // where the connection has deadlines
	if _, err := p.w.Write(b); err != nil {
		return err
	}
	if err := p.rc.Flush(); err != nil {
		return err
	}
	_ = p.rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, quiet or not
	kept := max(0, 4-len(b))
	p.tail = append(p.tail[max(0, len(p.tail)-kept):], b[max(0, len(b)-4):]...)
	return nil
}

// between reports whether no event has been sent in part.
func (p *passage) between() bool {
	t := string(p.tail)
	return t == "" || strings.HasSuffix(t, "\n\n") || strings.HasSuffix(t, "\r\n\r\n") || strings.HasSuffix(t, "\r\r")
}

// errorEvent is draft-cui's error object as an event.
func errorEvent(e *directory.Error) []byte {
	told := strictjson.AppendText([]byte{'{'}, "code", problem.RuleOf(e.Problem).ErrorCode)
	told = append(strictjson.AppendText(told, "message", e.Error()), '}')
	return fmt.Appendf(nil, "event: error\ndata: {\"error\":%s}\n\n", told)
}

// appendGateway appends where this node's gateway fronts an agent, if it does.
func (s *Server) appendGateway(b []byte, e *directory.Entry) []byte {
	if s.cfg.Fronts == nil || !s.cfg.Fronts(e) {
		return b
	}
	return strictjson.AppendText(b, "gateway", agentHref(e)+"/invoke")
}

package api

import (
	"context"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A Gateway invokes agents for this node's callers. Its errors are
// *directory.Error, or the context's.
type Gateway interface {
	// Invoke has e's agent do what is asked for. e is the registration as it is now.
	Invoke(ctx context.Context, e *directory.Entry, in directory.Invocation) (*directory.Reply, error)
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
	reply, err := s.cfg.Gateway.Invoke(c.Context(), e, in)
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
		return nil
	}
	defer reply.Stream.Close()
	h.Set("Content-Type", reply.ContentType)
	h.Set("X-Accel-Buffering", "no") // of proxies that would wait for the end
	w.WriteHeader(reply.Status)
	if err := pass(w, rc, reply.Stream); err != nil {
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
func (s *Server) invocation(w http.ResponseWriter, c *call) (in directory.Invocation, err error) {
	if media, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); strings.HasPrefix(media, "multipart/") {
		return in, directory.Refuse(MediaType, "Invocations are JSON, and not %s: name large or binary content by a URL, or put it into the JSON in base64.", media)
	}
	keys := c.Header.Values("Idempotency-Key")
	if len(keys) > 1 || len(keys) == 1 && (keys[0] == "" || len(keys[0]) > maxKey) {
		return in, directory.Refuse(directory.BadRequest, "Idempotency-Key is one key of 1 to %d bytes.", maxKey)
	}
	most := s.cfg.MaxInvocation
	if most == 0 {
		most = DefaultMaxInvocation
	}
	in = directory.Invocation{
		Operation: c.vars["operation"], Caller: c.id, Header: c.Header, RequestID: c.requestID,
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

// pass sends a stream on as it comes.
func pass(w http.ResponseWriter, rc *http.ResponseController, stream io.Reader) error {
	buf := make([]byte, 4<<10)
	_ = rc.Flush()
	for {
		n, err := stream.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(writeTime)) // where the connection has deadlines
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := rc.Flush(); err != nil {
				return err
			}
			_ = rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, quiet or not
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// appendGateway appends where this node's gateway fronts an agent, if it does.
func (s *Server) appendGateway(b []byte, e *directory.Entry) []byte {
	if s.cfg.Fronts == nil || !s.cfg.Fronts(e) {
		return b
	}
	return directory.AppendText(b, "gateway", agentHref(e)+"/invoke")
}

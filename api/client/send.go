package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

// A repetition says after which failures a request may be sent again.
type repetition int

const (
	// once: only if the failed attempt certainly had no effect.
	once repetition = iota
	// idempotent: after each failure that may pass. Two such requests have the
	// effect of one.
	idempotent
)

// A request is one call of the HTTP surface.
type request struct {
	method, target string
	header         http.Header
	body           []byte
	repeat         repetition
	// unbounded is whether only the context bounds how long the answer may take.
	unbounded bool
	// wait is how long the directory was asked to wait before it answers.
	wait time.Duration
	// stream, if set, returns the body of a request that is sent once, of size bytes, from its
	// beginning.
	stream func() io.Reader
	size   int64
	media  string // of the body; JSON if it is empty
}

// Do sends a request that this package has no method for. It is repeated as other
// requests are: a GET after each failure that may pass, and others only after one
// without effect. A status of 300 and above is an *Error beside the reply.
func (c *Client) Do(ctx context.Context, method, target string, header http.Header, body []byte) (*Reply, error) {
	q := &request{method: method, target: target, header: header, body: body}
	if method == http.MethodGet || method == http.MethodHead {
		q.repeat = idempotent
	}

	return c.do(ctx, q)
}

// do sends a request, as often as it may and must, and reads the answer.
func (c *Client) do(ctx context.Context, q *request) (*Reply, error) {
	var r *Reply
	err := c.send(ctx, q, func(resp *http.Response) (err error) {
		defer func() { _ = resp.Body.Close() }()
		r, err = readReply(resp)

		return err
	})

	return r, err
}

// send sends a request until take accepts an answer, or the failure does not pass,
// or all attempts were made. take closes the answer's body when it is done with it.
func (c *Client) send(ctx context.Context, request *request, take func(*http.Response) error) error {
	var refusal error // the last answer of the directory; it says more than the end of ctx

	unreached := 0 // addresses in a row to which no connection could be made

	lasting := 0 // addresses in a row that are no nodes of this directory
	for attempt := 1; ; attempt++ {
		address := c.addresses.next()

		err := c.attempt(ctx, address, request, take)
		if err == nil {
			return nil
		}

		if errors.As(err, new(*Error)) {
			refusal = err
		} else if ctx.Err() != nil && refusal != nil {
			return refusal
		}

		verdict := judge(request, err)
		if verdict.leave {
			c.addresses.leave(address)
		}

		if !verdict.again || attempt >= c.attempts || ctx.Err() != nil {
			return err
		}

		addresses := c.addresses.count()

		if unreached++; !isDial(err) {
			unreached = 0
		}

		if lasting++; !isLasting(err) {
			lasting = 0
		}

		// Each address failed in a row, by a fault that doesn't pass by waiting.
		if c.failFast && unreached >= addresses || lasting >= addresses {
			return err
		}

		// Another address is asked at once. When all have failed, the client waits.
		delay := backoff(attempt / addresses)
		if verdict.leave && attempt%addresses != 0 {
			delay = 0
		}

		delay = max(delay, verdict.after)
		if !pause(ctx, delay) {
			return err
		}
	}
}

// attempt sends a request once.
func (c *Client) attempt(ctx context.Context, address string, request *request, take func(*http.Response) error) error {
	var body io.Reader = bytes.NewReader(request.body)
	if request.stream != nil {
		body = io.NopCloser(request.stream())
	}

	req, err := http.NewRequestWithContext(ctx, request.method, address+request.target, body)
	if err != nil {
		return err
	}

	maps.Copy(req.Header, request.header)

	if c.addresses.wants(time.Now()) {
		req.Header.Set(wire.HeaderNodes, "?")
	}

	if request.stream != nil {
		req.ContentLength = request.size
	}

	if request.stream != nil || len(request.body) > 0 {
		req.Header.Set("Content-Type", mediaOf(request))
	}

	if err := c.certificate.prove(req, request); err != nil {
		return err
	}

	// Without a connection the request was not sent, so a repetition can't do harm.
	var sought, got atomic.Bool // of connections
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sought.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	}))

	resp, err := c.httpFor(request).Do(req)
	if err == nil {
		c.addresses.observe(address, resp)

		// The transport asks for gzip and unpacks it; the reader of the content bounds it.
		if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
			resp.Body.Close()

			err = fmt.Errorf("%w: it is in Content-Encoding %.100q; gzip and identity are taken", ErrAnswer, coding)
		} else {
			err = take(resp)
		}
	}

	return explain(ctx, req, sought.Load() && !got.Load(), err)
}

func mediaOf(q *request) string {
	if q.media != "" {
		return q.media
	}

	return wire.MediaJSON
}

// httpFor returns the HTTP client with the timeout that q needs.
func (c *Client) httpFor(request *request) *http.Client {
	if c.http.Timeout == 0 || !request.unbounded && request.wait == 0 {
		return c.http
	}

	// The copy shares the transport, and so its connections.
	hc := *c.http

	hc.Timeout += request.wait
	if request.unbounded {
		hc.Timeout = 0
	}

	return &hc
}

// explain makes a transportError of an error of the connection. Refusals, answers
// of other programs and faults of certificates stay what they are. unsent is
// whether there was no connection to send the request on.
func explain(ctx context.Context, req *http.Request, unsent bool, err error) error {
	var refused *Error
	if err == nil || errors.As(err, &refused) || isCertificate(err) {
		return err
	}

	if errors.Is(err, ErrAnswer) || errors.Is(err, errLongAnswer) {
		return err
	}

	unsent = unsent || isDial(err)

	return &transportError{err: err, effect: isChange(req) && !unsent, aborted: ctx.Err() != nil}
}

// isChange reports whether a request may change something. The questions that
// have a body change nothing.
func isChange(req *http.Request) bool {
	if req == nil || req.Method == http.MethodGet || req.Method == http.MethodHead {
		return false
	}

	path := req.URL.Path

	return path != discoverPath && path != resolvePath
}

// isDial reports whether an error is of a connection that was never there.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// ErrWrongServer is of an error of Config.HTTP that says that the server is no node of a directory. The
// client doesn't ask it again.
var ErrWrongServer = errors.New("the server is no node of a directory")

// isLasting reports whether the server at an address is not a node of the directory, by its certificate or because it
// speaks no TLS. Asking it again does not help.
func isLasting(err error) bool {
	return errors.Is(err, ErrWrongServer) || errors.As(err, new(*ServerError)) ||
		errors.As(err, new(tls.RecordHeaderError)) || errors.Is(err, http.ErrSchemeMismatch)
}

// isCertificate reports whether one end did not accept the other's certificate.
func isCertificate(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		op          *net.OpError
	)

	return errors.As(err, &certificate) || errors.As(err, &op) && op.Op == "remote error"
}

// A verdict is the consequence of a failure.
type verdict struct {
	again bool          // the request may be sent again
	leave bool          // another address may answer better
	after time.Duration // not sooner than this
}

// judge returns the consequence of a failure of q.
func judge(request *request, err error) verdict {
	if request.stream != nil {
		return verdict{leave: true} // its body is spent
	}

	if refused, ok := errors.AsType[*Error](err); ok {
		return judgeRefusal(request, refused)
	}

	if broken, ok := errors.AsType[*transportError](err); ok {
		return verdict{again: !broken.effect || request.repeat == idempotent, leave: true}
	}

	return verdict{}
}

func judgeRefusal(request *request, e *Error) verdict {
	v := verdict{after: e.RetryAfter()}
	switch {
	case v.after > longestWait:
		return verdict{leave: true} // the caller decides
	case e.Code == wire.CodeRateLimited:
		v.again = true // nothing was done
	case e.Code == wire.CodeUnavailable, e.Code == wire.CodeOverloaded, e.Code == wire.CodeNotVoter,
		e.Code == wire.CodeOvertaken:
		v.again = true // nothing was done
		v.leave = e.Code != wire.CodeOvertaken
	case e.Code == wire.CodeKeyInUse:
		v.again = request.repeat == idempotent
	case errors.Is(e, ErrUnavailable), errors.Is(e, ErrOutcomeUnknown):
		v.again = request.repeat == idempotent
		v.leave = true
	}

	return v
}

// Bounds of the time between two attempts.
const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// longestWait bounds the Retry-After that a client waits for by itself.
	longestWait = 30 * time.Second
)

// backoff returns the time to wait after so many rounds: twice as long after each,
// and half to one and a half of that by chance, so that not all who wait for the
// same directory come back together.
func backoff(rounds int) time.Duration {
	d := lastBackoff
	if rounds < 6 {
		d = min(lastBackoff, firstBackoff<<max(rounds-1, 0))
	}

	return Jitter(d)
}

// pause waits, and reports whether it did. It does not begin to wait for longer
// than ctx has.
func pause(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}

	return Pause(ctx, d)
}

// seconds returns a duration as whole seconds, rounded up, so that a request never asks for less than its caller.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

func secondsText(d time.Duration) string { return strconv.FormatInt(seconds(d), 10) }

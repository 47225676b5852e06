package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory/egress"
)

// An Answer is the result of a fetch.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte   // the whole of it
	URL    *url.URL // where it was found, behind redirects
}

// Fetch sends a request for metadata and reads the whole answer. Redirects are
// followed within the authority that was asked, five at most. Errors that are the
// guard's own no are *Refusal.
func (g *Guard) Fetch(ctx context.Context, r *http.Request, t Target) (*Answer, error) {
	client := g.Client(t)
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		switch {
		case Authority(next.URL) != Authority(via[0].URL):
			return refuse(RuleRedirect, nil, "a redirect leads from %s to %s", Authority(via[0].URL),
				Authority(next.URL))
		case len(via) > maxRedirects:
			return refuse(RuleRedirect, nil, "over %d redirects", maxRedirects)
		}

		return nil
	}

	resp, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}

	return &Answer{resp.StatusCode, resp.Header, body, resp.Request.URL}, nil
}

// Client returns a client whose requests to t go through the guard. It follows no
// redirect. Reading more of an answer's body than t wants is a *Refusal.
func (g *Guard) Client(t Target) *http.Client {
	return &http.Client{
		Transport:     guarded{g, t},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Authority returns the scheme, host and port of a URL, with the default port written out.
func Authority(target *url.URL) string {
	port := target.Port()
	if port == "" && target.Scheme == "https" {
		port = "443"
	}

	return target.Scheme + "://" + strings.ToLower(target.Hostname()) + ":" + port
}

// guarded is the guard as a client's transport.
type guarded struct {
	g *Guard
	t Target
}

// RoundTrip implements http.RoundTripper. The exchange ends with its time, also
// while the body is being read.
func (t guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	// Each redirect comes here as well, so its target is judged like the first one.
	if err := t.g.Check(r.URL); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}

		return nil, err
	}

	timeout, most := t.t.Timeout, t.t.MaxBody
	timeout = cmp.Or(timeout, t.g.cfg.Timeout)

	most = cmp.Or(most, DefaultMaxBody)

	ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, overTime(timeout))

	r = r.WithContext(ctx)
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header = r.Header.Clone()
		r.Header.Set("Accept-Encoding", codingsFor(r))
	}

	resp, err := t.g.transport(t.t).RoundTrip(r)
	if err != nil {
		// ended reads the state of ctx, which cancel changes.
		err = ended(ctx, err)
		cancel()

		return nil, err
	}

	// The bound is for the unpacked body. The packed one may be little larger.
	sent := &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, left: most + most/64 + 1<<10, most: most}
	resp.Body = sent

	if err := egress.Unpack(resp); err != nil {
		sent.Close()
		return nil, err
	}

	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, left: most, most: most}

	return resp, nil
}

// codingsFor returns the codings that a request asks for: none if the answer may be a stream, whose
// events a server that packs them may hold back.
func codingsFor(r *http.Request) string {
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return "identity"
	}

	return egress.Codings
}

// overTime is why an exchange ended that took over so long: in words once they are
// needed, for each exchange has it ready.
type overTime time.Duration

func (o overTime) Error() string { return o.Unwrap().Error() }

// Unwrap returns the *Refusal.
func (o overTime) Unwrap() error {
	return refuse(RuleTime, context.DeadlineExceeded, "the exchange took over %s", time.Duration(o))
}

// ended returns why an exchange ended: its own timeout, if that was the cause; nil if it goes on.
func ended(ctx context.Context, err error) error {
	var over *Refusal
	if cause := context.Cause(ctx); errors.As(cause, &over) {
		return over
	}

	var waited interface{ Timeout() bool }
	if errors.As(err, &waited) && waited.Timeout() && ctx.Err() == nil {
		return refuse(RuleTime, err, "%v", err)
	}

	return err
}

// body is an answer's body with a bound.
type body struct {
	io.ReadCloser
	ctx        context.Context
	cancel     context.CancelFunc
	left, most int64
}

// Read implements io.Reader.
func (b *body) Read(data []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLarge()
	}

	// One byte over the bound shows that the answer is too large.
	if int64(len(data)) > b.left+1 {
		data = data[:b.left+1]
	}

	n, err := b.ReadCloser.Read(data)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.tooLarge()
	}

	if !errors.Is(err, io.EOF) {
		err = ended(b.ctx, err)
	}

	return n, err
}

func (b *body) tooLarge() error {
	return refuse(RuleSize, nil, "the answer has over %d bytes", b.most)
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/api/wire"
)

// maxAnswer bounds an answer's body, in bytes.
const maxAnswer = 64 << 20

var errLongAnswer = errors.New("the answer is larger than a directory's can be")

// A Reply is an answer as it came.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte

	change bool // whether the request was one for a change
}

// Index returns the positions of the origins' histories that the answer is from:
// DOMAIN=EPOCH.REVISION, separated by commas. A later read that must not be older
// names them in ReadOptions.Min.
func (r *Reply) Index() string { return r.Header.Get("Roster-Index") }

// Without returns the domains whose registrations the answering node does not show, because it is short
// of memory. Only callers of the node's domain are told.
func (r *Reply) Without() string { return r.Header.Get(wire.HeaderWithout) }

// An Ignored is a part of a request that has no effect.
type Ignored = wire.Ignored

// Ignored returns the parts of the request that the directory ignored: query parameters,
// members of the document that are probably misspelt, and peers:DOMAIN of domains in the
// visibility that are no peers. At most eight are named.
func (r *Reply) Ignored() []Ignored {
	return wire.ParseIgnored(r.Header.Values(wire.HeaderIgnored))
}

// NextPage returns the path of the next page of a list; empty on the last one.
func (r *Reply) NextPage() string {
	for _, link := range r.Header.Values("Link") {
		if target, ok := strings.CutSuffix(link, `>; rel="next"`); ok && strings.HasPrefix(target, "</") {
			return target[1:]
		}
	}

	return ""
}

// readReply reads an answer to its end. One of 300 and above is an *Error beside
// the reply.
func readReply(resp *http.Response) (*Reply, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}

	if len(body) > maxAnswer {
		return nil, errLongAnswer
	}

	r := &Reply{Status: resp.StatusCode, Header: resp.Header, Body: body, change: isChange(resp.Request)}
	if r.Status >= http.StatusMultipleChoices {
		return r, newError(r)
	}

	return r, nil
}

// decode decodes into v a JSON object that has that member. An answer of {} to
// every request is no directory's.
func decode(r *Reply, member string, v any) error {
	var members map[string]jsontext.Value

	err := json.Unmarshal(r.Body, &members)
	if err == nil {
		err = json.Unmarshal(r.Body, v)
	}

	if err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}

	if _, ok := members[member]; !ok {
		return fmt.Errorf("%w: it has no %q", ErrAnswer, member)
	}

	return nil
}

// read GETs target and decodes the answer.
func read[T any](ctx context.Context, c *Client, target, member string) (out T, r *Reply, err error) {
	r, err = c.do(ctx, &request{method: http.MethodGet, target: target, repeat: idempotent})
	if err == nil {
		err = decode(r, member, &out)
	}

	return out, r, err
}

// ask POSTs in as JSON and decodes the answer.
func ask[T any](
	ctx context.Context, c *Client, target string, in any, repeat repetition, member string,
) (out T, r *Reply, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, nil, err
	}

	r, err = c.do(ctx, &request{method: http.MethodPost, target: target, body: body, repeat: repeat})
	if err == nil {
		err = decode(r, member, &out)
	}

	return out, r, err
}

// change asks for a change that is answered by 204. Another success is no
// directory's: other programs answer 200 to every request.
func (c *Client) change(ctx context.Context, q *request) (*Reply, error) {
	r, err := c.do(ctx, q)
	if err != nil {
		return r, err
	}

	if r.Status != http.StatusNoContent {
		media := r.Header.Get("Content-Type")
		return r, fmt.Errorf("%w: it is %d %s, of type %q", ErrAnswer, r.Status, http.StatusText(r.Status), media)
	}

	return r, nil
}

// command POSTs in as JSON for a change that is answered by 204.
func (c *Client) command(ctx context.Context, target string, in any, repeat repetition) (*Reply, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}

	return c.change(ctx, &request{method: http.MethodPost, target: target, body: body, repeat: repeat})
}

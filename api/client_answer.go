package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// A Reply is an answer as it came.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Index returns how far the origins' histories had come: DOMAIN=EPOCH.REVISION,
// separated by commas.
func (r *Reply) Index() string { return r.Header.Get("Roster-Index") }

// An Error is a node's refusal: its status and problem body (RFC 9457).
type Error struct {
	Reply      `json:"-"`
	Type       string            `json:"type"`
	Title      string            `json:"title"`
	Detail     string            `json:"detail"`
	Pointer    string            `json:"pointer"`
	Code       string            `json:"code"`
	RequestID  string            `json:"correlation_id"`
	RetryAfter int               `json:"retry_after"` // seconds
	OriginHref string            `json:"origin_href"`
	Policies   []string          `json:"policies"`
	Problem    directory.Problem `json:"-"` // the last segment of Type; empty where the body is no problem
}

func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = fmt.Sprintf("the directory answered %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Pointer != "" {
		text += " (at " + e.Pointer + ")"
	}
	return text
}

func newError(r *Reply) *Error {
	e := &Error{}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && media == "application/problem+json" { // proxies add a charset
		if err := json.Unmarshal(r.Body, e); err == nil {
			e.Problem = directory.Problem(e.Type[strings.LastIndexByte(e.Type, '/')+1:])
		}
	}
	e.Reply = *r
	if r.Status == http.StatusMultipleChoices {
		e.Detail = "several domains have a registration of this id: " + strings.Join(r.Header.Values("Link"), ", ")
	}
	return e
}

// ErrAnswer says that something answered, and not as a directory does: what is at its
// address is something else, or something stands between. A change that was asked for may
// have been made.
var ErrAnswer = errors.New("the answer is not what a directory sends")

// decoded decodes into v what was answered without an error: a JSON object that has a
// member. What says {} to everything is no directory either.
func decoded(r *Reply, err error, member string, v any) error {
	if err != nil {
		return err
	}
	var members map[string]jsontext.Value
	if err = json.Unmarshal(r.Body, &members); err == nil {
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

// change asks for a change whose answer has no body. Another success is none of a
// directory: much that is no directory answers 200 to everything.
func (c *Client) change(ctx context.Context, method, target string, header http.Header, body []byte) (*Reply, error) {
	r, err := c.do(ctx, method, target, header, body)
	if err == nil && r.Status != http.StatusNoContent {
		err = fmt.Errorf("%w: it is %d %s, of type %q", ErrAnswer, r.Status, http.StatusText(r.Status), r.Header.Get("Content-Type"))
	}
	return r, err
}

// order asks for a change by a body, which is answered by none.
func (c *Client) order(ctx context.Context, target string, in any) error {
	body, err := json.Marshal(in)
	if err == nil {
		_, err = c.change(ctx, http.MethodPost, target, nil, body)
	}
	return err
}

// ask asks for what v is to be by a body, as decoded does.
func (c *Client) ask(ctx context.Context, path string, in any, member string, v any) (*Reply, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := c.do(ctx, http.MethodPost, path, nil, body)
	return r, decoded(r, err, member, v)
}

// refusalOf is the refusal that an answer is.
func refusalOf(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return newError(&Reply{resp.StatusCode, resp.Header, body})
}

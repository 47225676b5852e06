package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

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
	if media := r.Header.Get("Content-Type"); media == "application/problem+json" {
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

// change asks for a change whose answer has no body. Another success is none of a
// directory: much that is no directory answers 200 to everything.
func (c *Client) change(ctx context.Context, method, target string, header http.Header, body []byte) (*Reply, error) {
	r, err := c.do(ctx, method, target, header, body)
	if err == nil && r.Status != http.StatusNoContent {
		err = fmt.Errorf("%w: it is %d %s, of type %q", ErrAnswer, r.Status, http.StatusText(r.Status), r.Header.Get("Content-Type"))
	}
	return r, err
}

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// InvokeOptions say by what a client judges an invocation's input before it is sent,
// and its output when it has come (draft-gaikwad-woa, 4.2).
type InvokeOptions struct {
	// NoValidate leaves the judgement to the gateway.
	NoValidate bool
	// Contract is the agent's; where it is nil, it is asked for.
	Contract *directory.Contract
}

// A BadAnswer is an agent's answer that doesn't meet its operation's schema. The agent
// has acted.
type BadAnswer struct{ Violations []directory.Violation }

func (e *BadAnswer) Error() string {
	return fmt.Sprintf("the answer doesn't meet the operation's schema at %q: %s", e.Violations[0].Pointer, e.Violations[0].Detail)
}

// Invoke has an agent do something through the directory's gateway (draft-cui, 5):
// the operation of that name, or by what the input says where it is "". The input
// is JSON. The reply's body is the agent's output.
//
// Both are judged by the schemas of the registration as it is now, where it can be
// read (WOA-024): an input that breaks one is a *directory.Error, BadInput, and
// nothing is sent; an answer that does is a *BadAnswer, beside the reply. Other errors
// are *Error. How long the call may take is for the gateway to say, and for ctx.
func (c *Client) Invoke(ctx context.Context, id, operation string, input []byte, o InvokeOptions) (*Reply, error) {
	judge := func([]byte) []directory.Violation { return nil }
	if !o.NoValidate {
		var err error
		if judge, err = c.foresee(ctx, id, operation, input, o.Contract); err != nil {
			return nil, err
		}
	}
	if operation == "" {
		operation = "invoke" // an operation can't be called so
	}
	patient := &Client{c.base, c.patient()} // the gateway bounds what its agents take, and a batch of calls has the time of each
	reply, err := patient.do(ctx, http.MethodPost, "/agents/"+url.PathEscape(id)+"/"+url.PathEscape(operation), nil, input)
	if err != nil {
		return reply, err
	}
	if vs := judge(reply.Body); len(vs) > 0 {
		return reply, &BadAnswer{vs}
	}
	return reply, nil
}

// foresee judges the input, and returns what judges the answer.
func (c *Client) foresee(ctx context.Context, id, operation string, input []byte, by *directory.Contract) (func([]byte) []directory.Violation, error) {
	if by == nil {
		var err error
		var refused *Error
		switch by, err = c.Contract(ctx, id); {
		case errors.As(err, &refused), errors.Is(err, errUnknownForm): // what there is to say is the gateway's to say
			return func([]byte) []directory.Violation { return nil }, nil
		case err != nil:
			return nil, err
		}
	}
	return by.Foresee(operation, input)
}

// errUnknownForm is of a registration of a kind that a newer release knows.
var errUnknownForm = errors.New("this release does not know such documents")

// Contract reads what the registration of that name or rid says of how its agent is
// invoked: for who invokes one agent more than once.
func (c *Client) Contract(ctx context.Context, id string) (*directory.Contract, error) {
	r, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	contents, err := c.Contents(ctx, r.Href)
	if err != nil {
		return nil, err
	}
	p, err := directory.Reproject(contents.Agent, contents.Document)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknownForm, err)
	}
	e := &directory.Entry{Agent: contents.Agent, Document: contents.Document, Packed: directory.Pack(contents.Document, p)}
	if e.RID, err = directory.ParseRID(r.RID()); err != nil {
		return nil, err
	}
	return directory.ContractOf(e), nil
}

// Contents reads what the signed record of the registration at href holds: the
// document as its registrant wrote it. Its signature is not judged here.
func (c *Client) Contents(ctx context.Context, href string) (*directory.Contents, error) {
	reply, err := c.Record(ctx, href)
	if err != nil {
		return nil, err
	}
	record, err := directory.ParseRecord(string(reply.Body))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(record.JWS, ".")
	text, _, _ := strings.Cut(rest, ".")
	payload, err := directory.B64.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return directory.OpenRecord(payload, record.Disclosures)
}

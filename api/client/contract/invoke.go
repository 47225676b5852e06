// Package contract invokes agents and validates, at the caller, inputs and
// outputs by the schemas of the agent's registration (draft-gaikwad-woa, 4.2).
// The gateway validates both as well; to do it here saves the request, and does
// not rest on the gateway.
//
// It is beside package client because it needs a JSON Schema validator.
package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
)

// An OutputError is an agent's output that breaks its operation's schema. The
// agent has acted.
type OutputError struct{ Violations []directory.Violation }

func (e *OutputError) Error() string {
	first := e.Violations[0]
	return fmt.Sprintf("the answer doesn't meet the operation's schema at %q: %s", first.Pointer, first.Detail)
}

// An Invocation names an operation of an agent, and its input.
type Invocation struct {
	ID        string // name or rid of the registration
	Operation string // "" for the only one
	Input     []byte
	Contract  *invoke.Contract // nil if it has yet to be read
}

// Invoke is Client.Invoke with validation by the agent's contract. An input that breaks a
// schema is a *directory.Error, BadInput, and nothing is sent; an output that does is an
// *OutputError, beside the reply. If the caller may not read the registration, only the
// gateway validates.
func Invoke(ctx context.Context, client *client.Client, call Invocation,
	opt client.InvokeOptions) (*client.Reply, error) {
	validate, err := foresee(ctx, client, call)
	if err != nil {
		return nil, err
	}

	reply, err := client.Invoke(ctx, call.ID, call.Operation, call.Input, opt)
	if err != nil {
		return reply, err
	}

	outputs, failed := reply.Outputs()
	if failed != nil || len(outputs) != 1 { // a schema is not of the parts of a stream
		return reply, nil //nolint:nilerr // who reads the outputs has the error, beside those before it
	}

	if violations := validate(outputs[0]); len(violations) > 0 {
		return reply, &OutputError{violations}
	}

	return reply, nil
}

// foresee validates the input, and returns the validator of the output.
func foresee(ctx context.Context, c *client.Client, call Invocation) (func([]byte) []directory.Violation, error) {
	contract := call.Contract
	if contract == nil {
		var (
			err     error
			refused *client.Error
		)

		contract, err = Read(ctx, c, call.ID)
		if errors.As(err, &refused) || errors.Is(err, errUnknownKind) {
			// The gateway explains the error.
			return func([]byte) []directory.Violation { return nil }, nil
		}

		if err != nil {
			return nil, err
		}
	}

	return contract.Precheck(call.Operation, call.Input)
}

// errUnknownKind is of a document of a kind that a newer release knows.
var errUnknownKind = errors.New("this release does not know such documents")

// Read reads what the registration of that name or rid says of how its agent is
// invoked, for a caller that invokes one agent more than once.
func Read(ctx context.Context, client *client.Client, id string) (*invoke.Contract, error) {
	r, err := client.Get(ctx, id)
	if err != nil {
		return nil, err
	}

	contents, err := Contents(ctx, client, r.Href)
	if err != nil {
		return nil, err
	}

	projection, err := kinds.Reproject(contents.Agent, contents.Document)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknownKind, err)
	}

	entry := &directory.Entry{Agent: contents.Agent, Document: contents.Document,
		Packed: directory.Pack(contents.Document, projection)}
	if entry.RID, err = directory.ParseRID(r.RID()); err != nil {
		return nil, err
	}

	return invoke.ContractOf(entry), nil
}

// Contents reads the contents of the signed record of the registration at href: the
// document as its registrant wrote it. Its signature is not verified here.
func Contents(ctx context.Context, c *client.Client, href string) (*signed.Contents, error) {
	reply, err := c.Record(ctx, href)
	if err != nil {
		return nil, err
	}

	record, err := signed.ParseRecord(string(reply.Body))
	if err != nil {
		return nil, err
	}

	_, rest, _ := strings.Cut(record.JWS, ".")
	text, _, _ := strings.Cut(rest, ".")

	payload, err := directory.B64.DecodeString(text)
	if err != nil {
		return nil, err
	}

	return signed.OpenRecord(payload, record.Disclosures)
}

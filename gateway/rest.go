package gateway

import (
	"bytes"
	"context"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// callREST posts the input to the agent's endpoint: alone, or within WoA's
// envelope. An agent with several operations at one endpoint learns by a member
// which is meant (draft-cui, 5).
func (i *invocation) callREST(ctx context.Context, w *agentTask) (*invoke.Reply, error) {
	body := w.Value
	switch {
	case i.binding.Envelope == "woa":
		body = strictjson.AppendText([]byte{'{'}, "agent", i.contract.WoA.ID)
		if w.Name != "" {
			body = strictjson.AppendText(body, "operation", w.Name)
		}

		body = append(strictjson.AppendRaw(body, "input", w.Value), '}')
	case len(i.contract.Operations) > 1 && !w.Declares("operation"):
		var err error
		if body, err = naming(w); err != nil {
			return nil, err
		}
	}

	reply, err := i.post(ctx, w, i.binding.Endpoint, body, nil)
	if err != nil {
		return nil, err
	}

	// A stream has no body.
	return reply, noError(reply.Body, w.Operation)
}

// naming returns an input with a member operation beside its own; of a batch, so is
// each.
func naming(w *agentTask) (body []byte, err error) {
	items := w.Items()
	if items == nil {
		return nameIn(w.Value, w.Name)
	}

	body = []byte{'['}
	for n, item := range items {
		if n > 0 {
			body = append(body, ',')
		}

		named, err := nameIn(item, w.Name)
		if err != nil {
			return nil, err
		}

		body = append(body, named...)
	}

	return append(body, ']'), nil
}

func nameIn(input []byte, operation string) ([]byte, error) {
	if input[0] != '{' {
		return input, nil
	}

	members, err := directory.ParseObject(input)
	if err != nil {
		return nil, err
	}

	// The caller's own member could name another operation than the judged one.
	members = slices.DeleteFunc(members, func(m strictjson.Member) bool { return m.Name == "operation" })

	return strictjson.AppendObject(nil,
		append(members, strictjson.Member{Name: "operation", Value: strictjson.AppendString(nil, operation)})), nil
}

// noError refuses a 2xx answer that contains an error (AI-035).
func noError(body []byte, operation invoke.Operation) error {
	if !bytes.Contains(body, []byte("error")) && !bytes.ContainsRune(body, '\\') {
		// The body has no such member, in whatever spelling.
		return nil
	}

	var failure struct {
		Error jsontext.Value `json:"error"`
	}
	_ = json.Unmarshal(body, &failure) // any other answer has no error

	if failure.Error.Kind() != '{' {
		return nil
	}

	// The member may be a part of the operation's output.
	if operation.DeclaresOutput("error") {
		return nil
	}

	return directory.Refuse(directory.AgentFailed, "the agent answered with a success's status, and with an error")
}

package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory/sse"
)

// InvokeOptions say how an invocation is made.
type InvokeOptions struct {
	// IdempotencyKey, if it is set, makes the invocation safe to repeat: the agent is
	// invoked once for all requests of this caller with one key, and each gets the
	// first one's answer. The client then repeats it as other requests. Use a new,
	// random key for each invocation.
	IdempotencyKey string
}

// Invoke invokes an agent, by rid or name, through the directory's gateway
// (draft-cui, 5): the operation of that name, or what the input says if it is
// empty. The input is JSON. The reply's body is the agent's output; of an agent that
// answers with a stream, [Reply.Outputs] has its parts. ErrAgent is the
// agent's failure; it may have acted. Only the gateway and ctx bound how long the
// call takes. The gateway validates input and output by the registration's schemas;
// package contract does it at the caller.
func (c *Client) Invoke(ctx context.Context, id, operation string, input []byte, opt InvokeOptions) (*Reply, error) {
	operation = cmp.Or(operation, "invoke") // no operation has this name

	q := &request{
		method:    http.MethodPost,
		target:    "/agents/" + url.PathEscape(id) + "/" + url.PathEscape(operation),
		header:    http.Header{},
		body:      input,
		unbounded: true,
	}
	if opt.IdempotencyKey != "" {
		q.header.Set("Idempotency-Key", opt.IdempotencyKey)
		q.repeat = idempotent
	}

	return c.do(ctx, q)
}

// Outputs returns an agent's output without the framing of a stream: the body, or, of an
// agent that answers with a stream, the data of each event, or each line. JSON is on one line.
// A failure that the stream reports is an error that is ErrAgent, beside the outputs before it.
func (r *Reply) Outputs() (outputs [][]byte, err error) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))

	var parts iter.Seq2[[]byte, error]
	switch media {
	case wire.MediaEvents:
		parts = r.events()
	case "application/x-ndjson", "application/jsonl":
		parts = r.lines()
	default:
		return [][]byte{r.Body}, nil
	}

	for part, err := range parts {
		if err != nil {
			return outputs, err
		}

		// Output that isn't JSON stays as it came.
		if value := jsontext.Value(bytes.Clone(part)); value.Compact() == nil {
			part = value
		}

		outputs = append(outputs, part)
	}

	return outputs, nil
}

func (r *Reply) lines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for line := range bytes.Lines(r.Body) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line, nil) {
				return
			}
		}
	}
}

// events are the data of a stream's events. The last event may lack the empty line at its end,
// because the answer is whole.
func (r *Reply) events() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		reader := sse.NewReader(io.MultiReader(bytes.NewReader(r.Body), strings.NewReader("\n\n")), len(r.Body)+2, "")

		for {
			event, err := reader.Next()

			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil && !event.HasData:
				continue
			case err == nil && event.Name == "error":
				err = r.failure(event.Data)
			}

			var data []byte
			if err == nil {
				data = event.Data
			}

			if !yield(data, err) || err != nil {
				return
			}
		}
	}
}

// failure is what an event named error says, which a gateway writes as draft-cui's error object.
func (r *Reply) failure(data []byte) error {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}

	failed := &Error{Reply: *r, Code: wire.CodeAgentFailed}

	failed.Detail = "the agent's stream ended with an error"
	if json.Unmarshal(data, &body) == nil && body.Error.Message != "" {
		failed.Detail += ": " + body.Error.Message
	}

	return failed
}

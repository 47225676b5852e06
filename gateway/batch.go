package gateway

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/schema"
)

// split returns the items of a body that is a batch; nil for any other body.
func (i *invocation) split(ctx context.Context) (items []jsontext.Value, err error) {
	if i.in.Body[0] != '[' {
		return nil, nil
	}

	err = i.judge(ctx, len(i.in.Body)+i.schemas, func(*schema.Budget) error {
		if !i.contract.Batches(i.in.Operation, i.in.Body) {
			return nil
		}

		if json.Unmarshal(i.in.Body, &items) != nil {
			return directory.Refuse(directory.BadRequest, "the body is not JSON")
		}

		return i.count(items)
	})

	return items, err
}

// batch invokes the agent with each item of an array, eight at a time, and answers with
// an array of the outputs in the same order, or errors (AI-011). An item that is not
// done when its time is over has a timeout error as its answer.
func (i *invocation) batch(ctx context.Context, items []jsontext.Value) (*invoke.Reply, error) {
	// The answer of an item is an element of an array, so no item streams.
	i.in.Stream = false
	outputs := make([][]byte, len(items))
	limit := i.g.cfg.StreamTimeout
	timed, cancel := context.WithTimeoutCause(ctx, limit,
		refuse(RuleTime, context.DeadlineExceeded, "the batch took over %s", limit))
	defer cancel()
	group, within := errgroup.WithContext(timed)
	group.SetLimit(itemsAtOnce)

	for n, item := range items {
		group.Go(func() error {
			reply, err := i.item(within, bytes.TrimSpace(item), invoke.ItemAt(n))

			// Without its caller the batch has no answer. The end of the batch's own time is an error of its items
			// alone.
			if err != nil && ctx.Err() != nil {
				return ctx.Err()
			}

			outputs[n] = outputOf(reply, err)

			return nil
		})
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	if size := len(bytes.Join(outputs, nil)); int64(size) > i.g.cfg.MaxBody {
		return nil, directory.Refuse(directory.AgentFailed,
			"the batch's answer has %d bytes, which is more than this gateway passes on; the agent has acted on "+
				"each item", size)
	}

	body := append(append([]byte{'['}, bytes.Join(outputs, []byte{','})...), ']')

	return &invoke.Reply{Status: 200, ContentType: "application/json", Body: body}, nil
}

// count has the items of a batch counted as the invocations that they are.
func (i *invocation) count(items []jsontext.Value) error {
	if len(items) == 0 || len(items) > maxItems {
		return directory.Refuse(directory.BadRequest, "a batch has 1 to %d items; this one has %d", maxItems,
			len(items))
	}

	// Each item is as dear as an invocation, and takes the turns of other callers.
	if i.in.More != nil {
		return i.in.More(len(items) - 1)
	}

	return nil
}

// item invokes the agent with one item. One that is itself an array, or whose
// answer streams, is refused.
func (i *invocation) item(ctx context.Context, item []byte, at string) (reply *invoke.Reply, err error) {
	defer func() {
		// This goroutine has no server below it that recovers.
		if p := recover(); p != nil {
			i.g.cfg.Logger.Error("an item of a batch panicked", "request_id", i.in.RequestID, "item", at, "panic",
				fmt.Sprint(p), "stack", string(debug.Stack()))
			reply, err = nil, directory.Refuse(directory.Internal,
				"something went wrong here; the node's log has it under this request's correlation_id")
		}
	}()

	reply, err = i.one(ctx, item, at, true)
	if err == nil && reply.Stream != nil {
		reply.Stream.Close()
		return nil, directory.Refuse(directory.AgentFailed, "the agent answered an item of a batch with a stream")
	}

	return reply, err
}

package gateway

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// errStopping ends the pending calls and streams when the node stops.
var errStopping = directory.Refuse(directory.Unavailable,
	"the node stops, and ends what is under way; the agent may have acted")

// lifecycle ends a Gateway's calls and streams before their time.
type lifecycle struct {
	draining, closing context.Context
	drain, end        context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	calls  sync.WaitGroup
}

func (e *lifecycle) init() {
	e.closing, e.end = context.WithCancel(context.Background())
	e.draining, e.drain = context.WithCancel(e.closing)
}

// Drain ends the streams: a node that stops calls it first, since they would go on
// for long. Reading one of them then is Unavailable.
func (e *lifecycle) Drain() { e.drain() }

// Close ends the pending calls and waits for them, until bound ends. No invocation
// starts after it.
func (e *lifecycle) Close(bound context.Context) error {
	// No call may enter once the pending ones are awaited.
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	done := make(chan struct{})
	go func() { e.calls.Wait(); close(done) }()

	select {
	case <-done:
		return nil
	case <-bound.Done():
		return bound.Err()
	}
}

// An activeCall is one invocation under way, or its stream.
type activeCall struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	leave  func()
}

// enter counts a call until leave, and ends its context when the gateway closes.
func (e *lifecycle) enter(ctx context.Context) (*activeCall, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.closed {
		return nil, errStopping
	}

	e.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.closing, func() { cancel(errStopping) })

	return &activeCall{ctx, cancel, sync.OnceFunc(func() { stop(); cancel(nil); e.calls.Done() })}, nil
}

// stream has a call go on until its stream is closed, or the node drains.
func (e *lifecycle) stream(c *activeCall, from io.ReadCloser) io.ReadCloser {
	return &callStream{from, c, context.AfterFunc(e.draining, func() { c.cancel(errStopping) })}
}

// A callStream is a stream on its way to a caller.
type callStream struct {
	io.ReadCloser
	call *activeCall
	stop func() bool
}

// Read implements io.Reader. The error of a stream that ends early is a
// *directory.Error, or the caller's context's error.
func (f *callStream) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case errors.Is(context.Cause(f.call.ctx), errStopping):
		return n, errStopping
	}

	return n, explain(f.call.ctx, err)
}

// Close implements io.Closer.
func (f *callStream) Close() error {
	defer f.call.leave()
	f.stop()

	return f.ReadCloser.Close()
}

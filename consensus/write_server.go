package consensus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/stream"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A writeServer executes writes as the leader: this member's own and those that other
// members forward over their write streams.
type writeServer struct {
	cfg       *Config
	log       *slog.Logger
	life      *lifecycle
	group     *group
	messenger *messenger
	preparer  *preparer
	proposer  *proposer
	operator  *operator
	orders    *orderDesk
	commits   *commitNotifier
	streams   *stream.Server
}

// answerFrame answers a message of a member with a frame.
func (w *writeServer) answerFrame(from spiffeid.ID, body []byte) (frame []byte) {
	ctx, cancel := context.WithTimeout(w.life.closing, w.cfg.Timing.Write)
	defer cancel()

	data, err := w.messenger.encode(w.serve(ctx, from, body))
	if err != nil {
		w.log.Error("cannot encode an answer to a member", "err", err)
	}

	return append(stream.NewFrame(len(data)), data...)
}

// drain lets the requests of members that were read be answered, within a bound.
func (w *writeServer) drain(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	w.streams.Drain(ctx)

	if err := w.messenger.cluster.Drain(ctx); err != nil {
		w.log.Debug("answers to members are cut off", "err", err)
	}
}

// finish returns the outcome of a prepared write.
func (w *writeServer) finish(ctx context.Context, write *preparedWrite) (directory.Outcome, error) {
	if write.err != nil {
		return directory.Outcome{}, write.err
	}

	ctx = write.span.In(ctx)

	out, err := w.proposer.outcome(ctx, write.proposal)
	if write.req.Moved(write.command, err) {
		return w.lead(ctx, write.req)
	}

	return out, err
}

// lead executes a request as the leader: it prepares a command, with all that apply may
// not find out by itself, and proposes it.
func (w *writeServer) lead(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	if req.Order != nil {
		return w.operator.handle(ctx, req)
	}

	if req.Offer != nil {
		w.orders.traces(ctx) // the version of the log that has origins has offers as well
	}

	for range maxPrepared {
		_, step := span.Start(ctx, span.Prepare)

		command, err := w.preparer.prepareFor(req)
		if err == nil {
			err = w.orders.sign(ctx, req, command)
		}

		step.Done(err)

		if err != nil {
			return directory.Outcome{}, err
		}

		out, err := w.proposer.propose(ctx, command)
		if !req.Moved(command, err) {
			if req.Renew != nil && err == nil {
				w.leadAlone(ctx, req, &out)
			}

			return out, err
		}
	}

	return directory.Outcome{}, tooManyUpdates()
}

func tooManyUpdates() error {
	return directory.Refuse(directory.Unavailable, "too many concurrent updates; nothing was changed; retry")
}

// leadAlone refreshes, one by one, the items that could not share the command of a
// RefreshMany: a restored registration that is not confirmed yet needs a statement of its
// own.
func (w *writeServer) leadAlone(ctx context.Context, req *message.Request, out *directory.Outcome) {
	var all sync.WaitGroup

	var mu sync.Mutex // guards out.Position
	slots := make(chan struct{}, maxAlone)
	who := req.Renew.Caller
	who.Proof = directory.Hash{}
	who.ProofUntil = 0

	who.PolicyVersion = nil // the command that found these has spent it, and was judged
	for i := range out.Each {
		if !errors.Is(out.Each[i].Err, state.ErrMoved) {
			continue
		}

		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r := req.Renew.Renewals.At(i)
			one, err := w.lead(ctx,
				&message.Request{From: req.From, Mark: req.Mark, Refresh: &message.Refresh{
					Caller: who, RID: r.RID, Lifetime: r.Lifetime}})

			out.Each[i] = directory.RenewalResult{Granted: one.Granted, Err: err}
			if errors.Is(err, message.ErrNotLeader) {
				out.Each[i].Err = directory.Refuse(directory.Unavailable,
					"the leader changed meanwhile; nothing was changed: try again")
			}

			mu.Lock()
			defer mu.Unlock()

			if out.Position.Before(one.Position) {
				out.Position = one.Position
			}
		})
	}

	all.Wait()
}

// acceptLoop answers the write streams that members open.
func (w *writeServer) acceptLoop() {
	for {
		conn, err := w.messenger.cluster.AcceptWrites()
		if err != nil {
			return
		}

		w.life.loops.Go(func() { w.streams.Serve(conn) })
	}
}

// serve executes the writes of a message as the leader, each by itself.
func (w *writeServer) serve(ctx context.Context, from spiffeid.ID, body []byte) *message.Answers {
	var writes message.Writes
	if !w.group.leading.Load() || message.Unmarshal(body, &writes) != nil || len(writes.Requests) > maxMessage {
		return &message.Answers{NotLeader: true}
	}

	got := message.Answers{Replies: make([]message.Reply, len(writes.Requests))}
	begun := make([]preparedWrite, len(writes.Requests))

	var all sync.WaitGroup
	for i, raw := range writes.Requests {
		write := &begun[i]

		req, err := w.requestFrom(from, raw)
		switch {
		case err != nil:
			write.err = err
		case req.Brief():
			w.prepare(ctx, write, req)
		default:
			all.Go(func() {
				ctx, accepted := w.cfg.Tracer.Accept(ctx, req.Trace)
				out, err := w.lead(ctx, req)
				accepted.Done(err)

				got.Replies[i] = *message.Answer(out, err)
			})
		}
	}

	for i := range begun { // once all are prepared: so they share an entry
		if b := &begun[i]; b.command != nil && b.err == nil {
			b.proposal, b.err = w.proposer.submit(ctx, b.command)
		}
	}

	for i := range begun {
		if b := &begun[i]; b.req != nil || b.err != nil {
			out, err := w.finish(ctx, b)
			b.span.Done(err)

			got.Replies[i] = *message.Answer(out, err)
		}
	}

	all.Wait()

	if got.Last().Epoch != 0 {
		got.Commit = w.commits.notice()
	}

	return &got
}

// A preparedWrite is a request of a message that needs no goroutine of its own. Most are
// of this kind, and come by the dozen.
type preparedWrite struct {
	req      *message.Request
	command  *state.Command
	proposal *proposal
	span     span.Span
	err      error
}

// prepare prepares a request that waits for nothing.
func (w *writeServer) prepare(ctx context.Context, write *preparedWrite, req *message.Request) {
	ctx, write.span = w.cfg.Tracer.Accept(ctx, req.Trace)
	_, step := span.Start(ctx, span.Prepare)

	write.req = req
	write.command, write.err = w.preparer.prepareFor(req)
	step.Done(write.err)
}

// requestFrom reads a request of a member's. One without a vote brings its own key and nothing else.
func (w *writeServer) requestFrom(from spiffeid.ID, raw cbor.RawMessage) (*message.Request, error) {
	member, is := w.group.server(from)
	req, err := message.DecodeRequest(raw)

	switch {
	case err != nil:
		return nil, directory.Refuse(directory.BadRequest,
			"the leader cannot read this request, because it runs another release: %w", err)
	case req.Attest != nil && req.Attest.Node != from:
		return nil, directory.Refuse(directory.Forbidden, "a member attests its own key only")
	case !is:
		return nil, directory.Refuse(directory.Forbidden, "%s is no member; nothing was changed", from)
	case !member.voter && req.Attest == nil:
		return nil, refuseWithoutVote(from)
	}

	req.From = from

	return req, nil
}

func refuseWithoutVote(id spiffeid.ID) error {
	return directory.Refuse(directory.NotVoter,
		"%s has no vote, and changes go through voters; nothing was changed", id)
}

// maxPrepared bounds how often a command is prepared again because the state has changed.
const maxPrepared = 8

// maxAlone bounds how many items of a RefreshMany that need commands of their own are
// under way at once.
const maxAlone = 64

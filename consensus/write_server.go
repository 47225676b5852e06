package consensus

import (
	"context"
	"errors"
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

// A writeServer takes the writes that other members forward over their write streams.
type writeServer struct {
	*member

	terms   *terms
	streams *stream.Server
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

// serve executes the writes of a message, if this member leads.
func (w *writeServer) serve(ctx context.Context, from spiffeid.ID, body []byte) *message.Answers {
	leader := w.terms.leader()
	if leader == nil {
		return &message.Answers{NotLeader: true}
	}

	return leader.serve(ctx, from, body)
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

// serve executes the writes of a message, each by itself.
func (l *Leader) serve(ctx context.Context, from spiffeid.ID, body []byte) *message.Answers {
	var writes message.Writes
	if message.Unmarshal(body, &writes) != nil || len(writes.Requests) > maxMessage {
		// No write was begun, so another leader may take them.
		return &message.Answers{NotLeader: true}
	}

	got := message.Answers{Replies: make([]message.Reply, len(writes.Requests))}
	begun := make([]preparedWrite, len(writes.Requests))

	var all sync.WaitGroup
	for i, raw := range writes.Requests {
		write := &begun[i]

		req, err := l.requestFrom(from, raw)
		switch {
		case err != nil:
			write.err = err
		case req.Brief():
			l.prepare(ctx, write, req)
		default:
			all.Go(func() {
				ctx, accepted := l.cfg.Tracer.Accept(ctx, req.Trace)
				out, err := l.write(ctx, req)
				accepted.Done(err)

				got.Replies[i] = *message.Answer(out, err)
			})
		}
	}

	// They wait once all are prepared, so that they share an entry.
	for i := range begun {
		if b := &begun[i]; b.command != nil && b.err == nil {
			b.proposal, b.err = l.proposer.submit(ctx, b.command)
		}
	}

	for i := range begun {
		if b := &begun[i]; b.req != nil || b.err != nil {
			out, err := l.finish(ctx, b)
			b.span.Done(err)

			got.Replies[i] = *message.Answer(out, err)
		}
	}

	all.Wait()

	// If all were refused, there is no new commit.
	if got.Last().Epoch != 0 {
		got.Commit = l.notice()
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

// requestFrom reads a request of a member's. One without a vote brings its own key and nothing else.
func (l *Leader) requestFrom(from spiffeid.ID, raw cbor.RawMessage) (*message.Request, error) {
	member, is := l.group.server(from)
	req, err := message.DecodeRequest(raw)

	switch {
	case err != nil:
		return nil, directory.Refuse(directory.BadRequest,
			"the leader cannot read this request, because it runs another release: %w", err)
	case req.Attest != nil && req.Attest.Node != from:
		return nil, directory.Refuse(directory.Forbidden, "a member attests its own key only")
	case req.Pin != nil && req.Pin.Node != from:
		return nil, directory.Refuse(directory.Forbidden, "a member has the head of its own audit log logged only")
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

// prepare prepares a request that waits for nothing.
func (l *Leader) prepare(ctx context.Context, write *preparedWrite, req *message.Request) {
	ctx, write.span = l.cfg.Tracer.Accept(ctx, req.Trace)
	_, step := span.Start(ctx, span.Prepare)

	write.req = req
	write.command, write.err = l.preparer.prepareFor(req)
	step.Done(write.err)
}

// finish returns the outcome of a prepared write.
func (l *Leader) finish(ctx context.Context, write *preparedWrite) (directory.Outcome, error) {
	if write.err != nil {
		return directory.Outcome{}, write.err
	}

	ctx = write.span.In(ctx)

	out, err := l.proposer.outcome(ctx, write.proposal)
	if write.req.Moved(write.command, err) {
		return l.write(ctx, write.req)
	}

	return out, err
}

// maxPrepared bounds how often a command is prepared again because the state has changed.
const maxPrepared = 8

// write executes a request: it prepares a command, with all that apply may
// not find out by itself, and proposes it.
func (l *Leader) write(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	if req.Order != nil {
		return l.operator.handle(ctx, req)
	}

	for range maxPrepared {
		_, step := span.Start(ctx, span.Prepare)

		command, err := l.preparer.prepareFor(req)
		if err == nil {
			err = l.orders.sign(ctx, req, command)
		}

		step.Done(err)

		if err != nil {
			return directory.Outcome{}, err
		}

		out, err := l.proposer.propose(ctx, command)
		if !req.Moved(command, err) {
			if req.Renew != nil && err == nil {
				l.writeAlone(ctx, req, &out)
			}

			return out, err
		}
	}

	return directory.Outcome{}, tooManyUpdates()
}

func tooManyUpdates() error {
	return directory.Refuse(directory.Unavailable, "too many concurrent updates; nothing was changed; retry")
}

// maxAlone bounds how many items of a RefreshMany that need commands of their own are
// under way at once.
const maxAlone = 64

// writeAlone refreshes, one by one, the items that could not share the command of a
// RefreshMany: a restored registration that is not confirmed yet needs a statement of its
// own.
func (l *Leader) writeAlone(ctx context.Context, req *message.Request, out *directory.Outcome) {
	var all sync.WaitGroup

	var mu sync.Mutex // guards out.Position
	slots := make(chan struct{}, maxAlone)
	who := req.Renew.Caller

	// The command that found these items was judged by the policy, and has spent the proof.
	who.Proof = directory.Hash{}
	who.ProofUntil = 0

	who.PolicyVersion = nil
	for i := range out.Each {
		if !errors.Is(out.Each[i].Err, state.ErrMoved) {
			continue
		}

		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r := req.Renew.Renewals.At(i)
			one, err := l.write(ctx,
				&message.Request{From: req.From, Mark: req.Mark, Refresh: &message.Refresh{
					Caller: who, RID: r.RID, Lifetime: r.Lifetime}})

			out.Each[i] = directory.RenewalResult{Granted: one.Granted, Err: err}

			// The request is done, so an item must not send all of it to another leader.
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

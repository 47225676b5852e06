package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/limit"
)

// Claims are the members' shared memory of one-time proofs and Idempotency-Keys. Errors
// are *directory.Error; the request may be retried after one whose outcome is unknown.
type Claims interface {
	// Claim makes a request the first with its Idempotency-Key, and returns nil; or it
	// returns the answer of the first.
	Claim(context.Context, directory.Claim) (*directory.StoredAnswer, error)
	// Settle stores the outcome of the request that holds a claim.
	Settle(context.Context, directory.Settlement) error
	// Spend uses up a proof, which is good once, until when it would be good (Unix
	// seconds).
	Spend(ctx context.Context, proof directory.Hash, until int64) error
}

// Bounds of a call's claim.
const (
	claimTries  = 3
	settleTime  = 5 * time.Second  // for the attempts to store a call's outcome
	leaseBeyond = 30 * time.Second // the call's own time
	batchBeyond = time.Second      // a batch's own time, for its answer
)

// runOnce calls run only for the first request with a key (AI-012). Repetitions get its
// answer, or the error that explains its absence.
func (i *invocation) runOnce(ctx context.Context) (*invoke.Reply, error) {
	limit := i.g.cfg.Timeout
	switch {
	case i.in.Body[0] == '[':
		limit = i.g.cfg.StreamTimeout + batchBeyond
	case i.in.Stream:
		limit = i.g.cfg.StreamTimeout
	}

	// The lease outlasts the call: else a repetition could call the agent while the first call goes on.
	claim := i.claim(limit)

	kept, err := i.claimKey(ctx, claim)
	if err != nil {
		return nil, err
	}

	if kept != nil {
		return replay(kept)
	}

	reply, err := i.runDetached(ctx, limit)
	i.settle(ctx, settlement(claim, reply, err, i.reached.Load()))

	return reply, err
}

// claim returns the domain's copy of the key. It holds only hashes, so that it discloses
// nothing. Two bodies are the same only if their bytes are: JSON that is written
// differently is another body (AI-012).
func (i *invocation) claim(limit time.Duration) directory.Claim {
	return directory.Claim{
		Key:    i.keyHash(),
		Caller: i.claimant(),
		Body:   hash(i.in.Operation, string(i.in.Body)),
		Holder: hash(rand.Text()),
		Lease:  uint32((limit + leaseBeyond) / time.Second),
		Window: uint32(i.g.cfg.KeyWindow / time.Second),
	}
}

// claimant returns the party whose keys are bounded together: a foreign domain, however many
// identities it has (rule S3), or one identity of the own domain.
func (i *invocation) claimant() directory.Hash {
	if i.in.Party.Kind == limit.Foreign {
		return directory.ForeignClaimant(i.in.Party.Group)
	}

	return hash(i.in.Caller.String())
}

// keyHash is of the key's text, of whose it is and for which agent.
func (i *invocation) keyHash() directory.Hash {
	return hash(i.in.Caller.String(), i.e.Origin.Name(), i.e.RID.String(), i.in.Key)
}

func hash(parts ...string) directory.Hash {
	return directory.HashOf([]byte(strings.Join(parts, "\x00")))
}

// claimKey claims the key. A claim with an unknown outcome is repeated, because the holder
// is the same; the agent is not called before a claim succeeds.
func (i *invocation) claimKey(ctx context.Context, claim directory.Claim) (kept *directory.StoredAnswer, err error) {
	for range claimTries {
		kept, err = i.g.cfg.Claims.Claim(ctx, claim)

		var refusal *directory.Error
		if errors.As(err, &refusal) && refusal.Problem == directory.KeyInUse {
			later := *refusal
			later.RetryAfter = 1

			return nil, &later
		}

		if directory.ProblemOf(err) != directory.OutcomeUnknown {
			return kept, err
		}
	}

	// One of the claims may have been applied. It is released, because nothing was sent to the agent.
	i.settle(ctx, directory.Settlement{Key: claim.Key, Holder: claim.Holder, Release: true})

	return nil, directory.Refuse(directory.Unavailable,
		"the domain could not note the Idempotency-Key, and without that nothing is sent to the agent; try again: %w",
		err)
}

// runDetached calls the agent within a time limit. A client that disconnects ends only a
// stream: a repetition of its request must find the answer.
func (i *invocation) runDetached(ctx context.Context, limit time.Duration) (*invoke.Reply, error) {
	if i.in.Stream {
		return i.run(ctx)
	}

	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit,
		refuse(RuleTime, context.DeadlineExceeded, "the invocation took over %s", limit))
	defer cancel()
	defer context.AfterFunc(i.g.closing, cancel)()

	r, err := i.run(ctx)
	if err == nil && r.Stream != nil {
		r.Stream.Close()
		return nil, directory.Refuse(directory.AgentFailed, "the agent answered with a stream, which was not asked for")
	}

	return r, err
}

// traceConn notes whether a request with a key may have reached the agent.
func (i *invocation) traceConn(ctx context.Context) context.Context {
	if i.in.Key == "" {
		return ctx // no one reads it
	}

	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		i.reached.Store(true)
	}})
}

// settlement returns the outcome of a call. If the request has not reached the agent, or
// the agent answers that it is unavailable now, a repetition calls the agent again.
func settlement(c directory.Claim, r *invoke.Reply, err error, reached bool) directory.Settlement {
	s := directory.Settlement{Key: c.Key, Holder: c.Holder}

	var refusal *directory.Error
	switch problem := directory.ProblemOf(err); {
	case err == nil && r.Stream == nil:
		s.Answer = &directory.StoredAnswer{Status: r.Status, ContentType: r.ContentType, Body: r.Body}
	case err == nil:
	// A stream is not kept, so a repetition learns only that there was a call.
	case !reached, problem == directory.AgentUnavailable, problem == directory.AgentRateLimited:
		s.Release = true
	case problem == directory.Unavailable, problem == directory.RateLimited:
	// The agent's answer could not be judged now. A second call could repeat its effects.
	case errors.As(err, &refusal):
		s.Answer = &directory.StoredAnswer{Problem: refusal.Problem, Detail: refusal.Detail, Pointer: refusal.Pointer}
	}

	return s
}

// settle stores the outcome of a call before its caller gets it. If that fails, the key
// stays claimed, and a repetition is answered that the outcome is unknown.
func (i *invocation) settle(ctx context.Context, settlement directory.Settlement) {
	// A caller that has gone may repeat the request, and must find the outcome.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()

	for range claimTries {
		if i.g.cfg.Claims.Settle(ctx, settlement) == nil {
			return
		}
	}
}

func replay(k *directory.StoredAnswer) (*invoke.Reply, error) {
	if k.Problem != "" {
		return nil, &directory.Error{Problem: k.Problem, Detail: k.Detail, Pointer: k.Pointer}
	}

	return &invoke.Reply{Status: k.Status, ContentType: k.ContentType, Body: k.Body, Replayed: true}, nil
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/limit"
)

// maxLimitedAgents bounds the agents in rateLimits. When it is exceeded, agents without
// invocations are removed.
const maxLimitedAgents = 4096

// itemsAtOnce is the number of a batch's items that are invoked at once.
const itemsAtOnce = 8

// rateLimits limits the rate and the concurrency of invocations of each agent (AI-040). Both are
// divided between the callers of the agent (rule S3).
type rateLimits struct {
	concurrent int     // of one agent at once
	perSecond  float64 // of one agent

	mu  sync.Mutex // guards the rest
	all map[agentKey]*agentLimit
}

// An agentLimit limits the invocations of one agent.
type agentLimit struct {
	revision   uint64 // of the statement that the limits are by
	concurrent int
	perSecond  float64
	places     *limit.Shares // one for each invocation under way
	rate       *limit.DividedRate
}

func (p *rateLimits) init(concurrent int, perSecond float64) {
	p.concurrent = concurrent
	p.perSecond = perSecond
	p.all = map[agentKey]*agentLimit{}
}

// newAgentLimit returns limits of which nothing is used.
func (p *rateLimits) newAgentLimit(concurrent int, perSecond float64) *agentLimit {
	places := limit.Divide(int64(concurrent), nil)
	places.ForOperators = 0 // they have no part of an agent

	// An agent that takes few at once is not for one caller after the other: one may have half of its
	// places, up to those that a batch uses.
	places.OwnID = max(places.OwnID, min(int64(concurrent)/2, itemsAtOnce))

	return &agentLimit{
		concurrent: concurrent, perSecond: perSecond, places: limit.NewShares(places),
		rate: limit.NewDividedRate(limit.Rate{PerSecond: perSecond, Burst: max(1, int(perSecond))}),
	}
}

// enter takes a place at e's agent for a caller, and returns the function that releases it. If the
// caller's share is used up, a patient caller waits for a place, and another is refused.
func (p *rateLimits) enter(ctx context.Context, e *directory.Entry, caller limit.Caller, patient bool) (release func(),
	err error) {
	agent := p.of(e)

	if patient {
		// The rate comes first, so that a call which waits for it holds no place.
		if err := agent.rate.Wait(ctx, caller); err != nil {
			return nil, notAsked(ctx)
		}

		release, err := agent.places.Wait(ctx, caller)
		if err != nil {
			return nil, notAsked(ctx)
		}

		return release, nil
	}

	if wait, ok := agent.rate.Allow(caller); !ok {
		return nil, tooOften(int(min(math.Ceil(wait.Seconds()), maxRetryAfter)))
	}

	release, refused := agent.places.Take(caller, 1)
	if refused != nil {
		return nil, tooMany(refused)
	}

	return release, nil
}

// notAsked returns the error of a call that waited for its slot until its time was over.
func notAsked(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}

	return directory.Refuse(directory.AgentTimeout,
		"the agent was not asked: its turn would have come after the invocation's time")
}

func tooOften(wait int) error {
	e := directory.Refuse(directory.RateLimited,
		"the agent is called as often as it takes, by you or by all; wait for %d s", wait)
	e.RetryAfter = wait

	return e
}

// tooMany explains why an invocation got no place.
func tooMany(refused *limit.ShareError) error {
	why := "the agent is called by as many at once as it takes"
	if refused.OfCaller() {
		why = fmt.Sprintf("you, or your domain, have %d invocations of the agent under way, as many as may be",
			refused.Limit)
	}

	e := directory.Refuse(directory.RateLimited, "%s; wait for 1 s", why)
	e.RetryAfter = 1

	return e
}

// of returns e's limits: this node's, or lower ones if the registration names them. A
// registration that changed has new limits.
func (p *rateLimits) of(entry *directory.Entry) *agentLimit {
	key := agentKey{entry.Origin, entry.RID}
	p.mu.Lock()
	defer p.mu.Unlock()

	if a, ok := p.all[key]; ok && a.revision == entry.Statement {
		return a
	}

	own := invoke.PaceOf(entry.Document)
	concurrent := p.concurrent
	perSecond := p.perSecond

	if own.Concurrent > 0 {
		concurrent = min(concurrent, own.Concurrent)
	}

	if own.PerSecond > 0 {
		perSecond = min(perSecond, own.PerSecond)
	}

	if old, ok := p.all[key]; ok && old.concurrent == concurrent && old.perSecond == perSecond {
		// Another change of the registration must not reset the quota.
		old.revision = entry.Statement
		return old
	}

	p.forget()

	agent := p.newAgentLimit(concurrent, perSecond)
	agent.revision = entry.Statement
	p.all[key] = agent

	return agent
}

// forget removes idle agents to make room. The caller holds mu.
func (p *rateLimits) forget() {
	for key, agent := range p.all {
		if len(p.all) < maxLimitedAgents {
			return
		}

		if agent.places.Held() == 0 && agent.rate.Idle() {
			delete(p.all, key)
		}
	}
}

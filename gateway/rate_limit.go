package gateway

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// maxLimitedAgents bounds the agents in rateLimits. When it is exceeded, agents without
// invocations are removed.
const maxLimitedAgents = 4096

// rateLimits limits the rate and the concurrency of invocations of each agent (AI-040).
type rateLimits struct {
	concurrent int     // of one agent at once
	perSecond  float64 // of one agent

	mu  sync.Mutex // guards the rest
	all map[agentKey]*agentLimit
}

// An agentLimit limits the invocations of one agent.
type agentLimit struct {
	revision uint64        // of the statement that the limits are by
	slots    chan struct{} // holds one for each invocation under way
	limiter  *rate.Limiter
}

func (p *rateLimits) init(concurrent int, perSecond float64) {
	p.concurrent = concurrent
	p.perSecond = perSecond
	p.all = map[agentKey]*agentLimit{}
}

// enter takes a slot at e's agent, and returns the function that releases it. If all
// slots are taken, a patient caller waits for one, and another is refused.
func (p *rateLimits) enter(ctx context.Context, e *directory.Entry, patient bool) (release func(), err error) {
	limit := p.of(e)
	if patient {
		if err := limit.limiter.Wait(ctx); err != nil {
			return nil, notAsked(ctx)
		}

		select {
		case limit.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, notAsked(ctx)
		}
	} else {
		if !limit.limiter.Allow() {
			return nil, tooOften(int(min(math.Ceil(1/float64(limit.limiter.Limit())), maxRetryAfter)))
		}

		select {
		case limit.slots <- struct{}{}:
		default:
			return nil, tooOften(1)
		}
	}

	return sync.OnceFunc(func() { <-limit.slots }), nil
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
		"the agent is called as often, or by as many at once, as it takes; wait for %d s", wait)
	e.RetryAfter = wait

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

	limit := &agentLimit{entry.Statement, make(chan struct{}, concurrent),
		rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))}
	if old, ok := p.all[key]; ok && cap(old.slots) == concurrent && float64(old.limiter.Limit()) == perSecond {
		old.revision = entry.Statement // another change of the registration must not reset the quota
		return old
	}

	p.forget()
	p.all[key] = limit

	return limit
}

// forget removes idle agents to make room. The caller holds mu.
func (p *rateLimits) forget() {
	for key, limit := range p.all {
		if len(p.all) < maxLimitedAgents {
			return
		}

		if len(limit.slots) == 0 && limit.limiter.TokensAt(time.Now()) >= float64(limit.limiter.Burst()) {
			delete(p.all, key)
		}
	}
}

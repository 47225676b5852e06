package gateway

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of a ledger: results, and bytes of them, that are kept.
const (
	maxResults     = 10_000
	maxResultBytes = 64 << 20
)

// A ledger keeps first results by their Idempotency-Key, for a window (AI-012). It
// is this node's own: another node of the domain knows nothing of it.
type ledger struct {
	window time.Duration

	mu    sync.Mutex // guards what follows
	all   map[string]*result
	order []*result // as they began
	bytes int
}

// A result is what the first request with a key came to.
type result struct {
	key   string
	body  directory.Hash // of the operation and the body
	until time.Time
	done  chan struct{} // closed when the rest is there
	reply *directory.Reply
	err   error
	gone  bool // it was no result: the next request is the first again
}

func (l *ledger) init(window time.Duration) { l.window, l.all = window, map[string]*result{} }

// ledgerKey is a key's caller, agent and text.
func ledgerKey(e *directory.Entry, in directory.Invocation) string {
	return strings.Join([]string{in.Caller.String(), e.Origin.Name(), e.RID.String(), in.Key}, "\x00")
}

// once returns the first result for a key: of run, where nobody has used it in the
// window. Requests at the same time wait for the first. What the agent may not have
// decided, as when it could not be reached, is no result.
func (l *ledger) once(ctx context.Context, key string, body directory.Hash, run func(context.Context) (*directory.Reply, error)) (*directory.Reply, error) {
	for {
		r, first, err := l.enter(key, body)
		if err != nil {
			return nil, err
		}
		if first {
			reply, err := run(ctx)
			l.leave(r, reply, err)
			return reply, err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.gone {
			continue
		}
		if r.err != nil {
			return nil, r.err
		}
		again := *r.reply
		again.Replayed = true
		return &again, nil
	}
}

func (l *ledger) enter(key string, body directory.Hash) (r *result, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(time.Now())
	if r, ok := l.all[key]; ok {
		if r.body != body {
			return nil, false, directory.Refuse(directory.KeyReused, "the Idempotency-Key was used with another body in the last %s", l.window)
		}
		return r, false, nil
	}
	if len(l.all) >= maxResults {
		return nil, false, directory.Refuse(directory.Unavailable, "this node keeps as many results for Idempotency-Keys as it can; try without one, or later")
	}
	r = &result{key: key, body: body, until: time.Now().Add(l.window), done: make(chan struct{})}
	l.all[key] = r
	l.order = append(l.order, r)
	return r, true, nil
}

// leave keeps a result, if it is one. A stream is not: it has been passed on.
func (l *ledger) leave(r *result, reply *directory.Reply, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(r.done)
	r.reply, r.err = reply, err
	size := 0
	if reply != nil {
		size = len(reply.Body)
	}
	if !decided(err) || reply != nil && reply.Stream != nil || l.bytes+size > maxResultBytes {
		r.gone = true
		delete(l.all, r.key)
		return
	}
	l.bytes += size
}

// decided reports whether the agent itself, or its schema, said what err says.
func decided(err error) bool {
	switch directory.ProblemOf(err) {
	case directory.BadRequest, directory.AgentBadRequest, directory.AgentNotFound, directory.AgentConflict,
		directory.AgentTooLarge, directory.AgentUnprocessable:
		return true
	}
	return err == nil
}

// sweep forgets what is past its window, for whoever holds mu.
func (l *ledger) sweep(now time.Time) {
	n := 0
	for _, r := range l.order {
		select {
		case <-r.done:
		default:
			if now.Before(r.until) {
				return
			}
		}
		if !r.gone && now.Before(r.until) {
			break
		}
		if !r.gone {
			delete(l.all, r.key)
			if r.reply != nil {
				l.bytes -= len(r.reply.Body)
			}
		}
		n++
	}
	l.order = l.order[n:]
}

package federation

import (
	"log/slog"
	"sync"
	"time"

	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// senders paces what peers push, one by one. Only peers reach it, so it has as
// many members as there are peerings.
type senders struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]*rate.Limiter
}

func (s *senders) allow(td spiffeid.TrustDomain) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.all[td]
	if l == nil {
		if s.all == nil {
			s.all = map[spiffeid.TrustDomain]*rate.Limiter{}
		}
		l = rate.NewLimiter(senderRate, senderBurst)
		s.all[td] = l
	}
	return l.Allow()
}

// A refusalLog counts the messages that were refused and those that were taken, and
// writes refusals down.
type refusalLog struct {
	log      *slog.Logger
	byOrigin counts // by the origin that a message names, if that is known
	bySender counts // refusals, by the domain whose node brought the message
	lines    logLimiter
}

// refusals lets one line a second through for each code and domain that caused it, so
// that nobody's messages keep another's out of the log. Only peers and the own domain
// cause any; the zero domain is for what isn't known to be of one.
type logLimiter struct {
	mu   sync.Mutex
	last map[refusal]time.Time
}

type refusal struct {
	code protocol.Code
	from spiffeid.TrustDomain
}

func (r *logLimiter) allow(c protocol.Code, from spiffeid.TrustDomain) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, key := time.Now(), refusal{c, from}
	if t, ok := r.last[key]; ok && now.Sub(t) < refusalsEach {
		return false
	}
	if r.last == nil {
		r.last = map[refusal]time.Time{}
	}
	r.last[key] = now
	return true
}

// counts counts messages by domain and code.
type counts struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]map[protocol.Code]uint64
}

// add counts a message of a domain, or of none.
func (c *counts) add(td spiffeid.TrustDomain, code protocol.Code) {
	if td.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[spiffeid.TrustDomain]map[protocol.Code]uint64{}
	}
	if c.all[td] == nil {
		c.all[td] = map[protocol.Code]uint64{}
	}
	c.all[td][code]++
}

// forget drops a domain's counts.
func (c *counts) forget(td spiffeid.TrustDomain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, td)
}

// of returns a copy of one domain's counts.
func (c *counts) of(td spiffeid.TrustDomain) map[protocol.Code]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[protocol.Code]uint64{}
	for k, v := range c.all[td] {
		out[k] = v
	}
	return out
}

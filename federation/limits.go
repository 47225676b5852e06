package federation

import (
	"sync"
	"time"

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

// refusals lets one line a second through for each code.
type refusals struct {
	mu   sync.Mutex
	last map[Code]time.Time
}

func (r *refusals) allow(c Code) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if t, ok := r.last[c]; ok && now.Sub(t) < refusalsEach {
		return false
	}
	if r.last == nil {
		r.last = map[Code]time.Time{}
	}
	r.last[c] = now
	return true
}

// counts counts messages by origin and code. The zero origin is for messages
// that name none that is known.
type counts struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]map[Code]uint64
}

func (c *counts) add(origin spiffeid.TrustDomain, code Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[spiffeid.TrustDomain]map[Code]uint64{}
	}
	if c.all[origin] == nil {
		c.all[origin] = map[Code]uint64{}
	}
	c.all[origin][code]++
}

// of returns a copy of one origin's counts.
func (c *counts) of(origin spiffeid.TrustDomain) map[Code]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[Code]uint64{}
	for k, v := range c.all[origin] {
		out[k] = v
	}
	return out
}

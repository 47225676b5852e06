package federation

import (
	"net/http"
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

// refusals lets one line a second through for each code and domain that caused it, so
// that nobody's messages keep another's out of the log. Only peers and the own domain
// cause any; the zero domain is for what isn't known to be of one.
type refusals struct {
	mu   sync.Mutex
	last map[refusal]time.Time
}

type refusal struct {
	code Code
	from spiffeid.TrustDomain
}

func (r *refusals) allow(c Code, from spiffeid.TrustDomain) bool {
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
	all map[spiffeid.TrustDomain]map[Code]uint64
}

// add counts a message of a domain, or of none.
func (c *counts) add(td spiffeid.TrustDomain, code Code) {
	if td.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[spiffeid.TrustDomain]map[Code]uint64{}
	}
	if c.all[td] == nil {
		c.all[td] = map[Code]uint64{}
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
func (c *counts) of(td spiffeid.TrustDomain) map[Code]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[Code]uint64{}
	for k, v := range c.all[td] {
		out[k] = v
	}
	return out
}

// traffic counts the bytes of bodies that a domain's nodes answered and were
// answered. Only peers and the own domain reach it.
type traffic struct {
	mu  sync.Mutex
	all map[spiffeid.TrustDomain]*[2]uint64
}

func (t *traffic) add(td spiffeid.TrustDomain, in, out int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[spiffeid.TrustDomain]*[2]uint64{}
	}
	if t.all[td] == nil {
		t.all[td] = new([2]uint64)
	}
	t.all[td][0] += uint64(in)
	t.all[td][1] += uint64(out)
}

func (t *traffic) of(td spiffeid.TrustDomain) (in, out uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.all[td]; n != nil {
		return n[0], n[1]
	}
	return 0, 0
}

// A metered answer counts what is written to a domain's node.
type metered struct {
	http.ResponseWriter
	traffic *traffic
	to      spiffeid.TrustDomain
}

func (w *metered) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.traffic.add(w.to, 0, n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *metered) Unwrap() http.ResponseWriter { return w.ResponseWriter }

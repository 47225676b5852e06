package api

import (
	lists "container/list"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/directory"
)

// Limits are how often one caller may ask, in requests per second; 0 is as often
// as it likes. A caller is an identity, or an address where none was verified. It
// may use what it left unused for ten seconds at once.
type Limits struct {
	Writes float64 // registrations, refreshes, removals
	Reads  float64 // lookups and registrations, with their evidence
	// Queries are what is ranked: they cost more than a lookup, and tell more of what
	// there is (AI-016).
	Queries float64
	// Invocations are of agents through the gateway.
	Invocations float64
}

// limitWindow is how many seconds' worth of requests a caller may make at once.
const limitWindow = 10

// maxBuckets bounds how many callers are known. One that has been away for the
// window has its whole quota, as one that is not known; if there are more at
// once, the one that has been away for longest is taken for a new one.
const maxBuckets = 1 << 16

// A quota is the policy of one class of routes.
type quota struct {
	name  string
	rate  rate.Limit // per second
	burst int
}

func newQuota(name string, perSecond float64) quota {
	return quota{name, rate.Limit(perSecond), max(1, int(math.Ceil(perSecond*limitWindow)))}
}

// window is how many seconds an empty bucket takes to fill.
func (q quota) window() int { return int(math.Ceil(float64(q.burst) / float64(q.rate))) }

// A bucket is what one caller has left of one quota.
type bucket struct {
	key     bucketKey
	limiter *rate.Limiter
	used    time.Time // last
}

type bucketKey struct{ class, caller string }

// A limiter keeps every caller's buckets.
type limiter struct {
	writes, reads, queries, invocations quota

	mu    sync.Mutex // guards what follows
	all   map[bucketKey]*lists.Element
	order *lists.List // of *bucket, the last used first
}

func newLimiter(l Limits) *limiter {
	return &limiter{
		writes: newQuota("writes", l.Writes), reads: newQuota("reads", l.Reads), queries: newQuota("queries", l.Queries),
		invocations: newQuota("invocations", l.Invocations),
		all:         map[bucketKey]*lists.Element{}, order: lists.New(),
	}
}

// quota returns the policy that a route is under, if there is one. Operators and
// nodes are under none: they must get through, and the nodes' own are the
// federation's.
func (l *limiter) quota(who access) (quota, bool) {
	var q quota
	switch {
	case who.calls:
		q = l.invocations
	case who.ranked:
		q = l.queries
	case who.level == levelReader:
		q = l.reads
	case who.level == levelIdentified:
		q = l.writes
	}
	return q, q.rate > 0
}

// take takes n requests from a caller's bucket. It returns what is left, and
// where there was nothing, after how long there will be.
func (l *limiter) take(q quota, caller string, now time.Time, n int) (left float64, wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(q, caller, now)
	n = min(n, q.burst) // more than all there can be is never there
	ok = b.limiter.AllowN(now, n)
	left = max(0, b.limiter.TokensAt(now))
	if !ok {
		wait = time.Duration((float64(n) - left) / float64(q.rate) * float64(time.Second))
	}
	return left, wait, ok
}

// bucket returns a caller's bucket, and forgets those that need not be known any
// more: at most two, so that no single request pays for many.
func (l *limiter) bucket(q quota, caller string, now time.Time) *bucket {
	key := bucketKey{q.name, caller}
	e, known := l.all[key]
	if known {
		l.order.MoveToFront(e)
	} else {
		e = l.order.PushFront(&bucket{key: key, limiter: rate.NewLimiter(q.rate, q.burst)})
		l.all[key] = e
	}
	b := e.Value.(*bucket)
	b.used = now
	for range 2 {
		last := l.order.Back()
		old := last.Value.(*bucket)
		if len(l.all) <= maxBuckets && now.Sub(old.used) < l.longest() {
			break
		}
		l.order.Remove(last)
		delete(l.all, old.key)
	}
	return b
}

// longest is after how long without a request every bucket is full.
func (l *limiter) longest() time.Duration {
	var seconds int
	for _, q := range []quota{l.writes, l.reads, l.queries, l.invocations} {
		if q.rate > 0 {
			seconds = max(seconds, q.window())
		}
	}
	return time.Duration(seconds) * time.Second
}

// pace refuses a request of a caller that asks too often, and tells everyone how
// much is left (draft-ietf-httpapi-ratelimit-headers-10): RateLimit-Policy has
// the quota (q) and the seconds that it is for (w), RateLimit what remains of it
// (r) and in how many seconds there is more (t): the whole quota again, or where
// nothing remains, one request.
func (s *Server) pace(w http.ResponseWriter, c *call, who access) error {
	q, limited := s.limits.quota(who)
	if !limited {
		return nil
	}
	left, wait, ok := s.limits.take(q, callerOf(c), time.Now(), 1)
	reset := wait
	if ok {
		reset = time.Duration((float64(q.burst) - left) / float64(q.rate) * float64(time.Second))
	}
	h := w.Header()
	h.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", q.name, q.burst, q.window()))
	h.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", q.name, int(left), seconds(reset)))
	if ok {
		return nil
	}
	return tooOften(q, wait)
}

// paceMore takes n more requests from the caller's quota, for one that is worth
// more than one.
func (s *Server) paceMore(c *call, who access, n int) error {
	q, limited := s.limits.quota(who)
	if !limited || n == 0 {
		return nil
	}
	if _, wait, ok := s.limits.take(q, callerOf(c), time.Now(), n); !ok {
		return tooOften(q, wait)
	}
	return nil
}

func tooOften(q quota, wait time.Duration) error {
	return &refusal{
		err: directory.Refuse(directory.RateLimited, "You may make %d requests of this class (%s) in %d s; wait for %d s.",
			q.burst, q.name, q.window(), seconds(wait)),
		retry:   seconds(wait),
		members: []directory.Member{{Name: "violated-policies", Value: appendStrings(nil, []string{q.name})}},
	}
}

func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// callerOf names who is limited: the identity that was verified, else the
// address. Who has one address of a /64 has them all. What a proxy says of
// addresses behind it is not believed.
func callerOf(c *call) string {
	if !c.id.IsZero() {
		return c.id.String()
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr)
	if err != nil {
		host = c.RemoteAddr
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return "address " + host
	}
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return "address " + p.String()
		}
	}
	return "address " + addr.String()
}

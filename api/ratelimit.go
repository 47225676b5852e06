package api

import (
	"cmp"
	lists "container/list"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Class is a group of routes for which callers have one quota.
type Class string

// The classes of routes.
const (
	Writes Class = "writes" // registrations, refreshes, removals
	Reads  Class = "reads"  // lookups and registrations, with their evidence
	// Queries are what is ranked: they cost more than a lookup, and tell more of what
	// there is (AI-016).
	Queries     Class = "queries"
	Invocations Class = "invocations" // of agents through the gateway
	Operations  Class = "operations"  // operators' questions and changes
	Federation  Class = "federation"  // what nodes ask
	Public      Class = "public"      // what anyone may have, without being asked who they are
)

// Classes are all of them.
var Classes = []Class{Writes, Reads, Queries, Invocations, Operations, Federation, Public}

// Limits are how often one caller may ask, in requests per second, by the class of
// what is asked for; without one, or with 0, it is as often as it likes. A caller is
// an identity, or an address where none was verified. It may use what it left unused
// for ten seconds at once.
type Limits map[Class]float64

// Terms are what holds for some callers instead of what holds for all: of several
// that cover a caller, the first that has something to say.
type Terms struct {
	Who directory.IdentityPattern // the zero pattern is anybody
	// By are the ways to show who one is, as Credential has them, and MethodNone; none is
	// any.
	By     []string
	Limits Limits
	// The shortest and the longest lifetime that they may ask for, and are granted, in
	// seconds; 0 is as for all.
	MinLifetime, MaxLifetime uint32
}

// MethodNone is the way of callers that showed nothing, in Terms.
const MethodNone = "none"

func (t *Terms) cover(id directory.Identity, method string) bool {
	if id.IsZero() {
		method = MethodNone
	}
	return (t.Who.IsZero() || t.Who.Matches(id)) && (len(t.By) == 0 || slices.Contains(t.By, method))
}

// limitWindow is how many seconds' worth of requests a caller may make at once.
const limitWindow = 10

// maxBuckets bounds how many callers are known. One that has been away for the
// window has its whole quota, as one that is not known; if there are more at
// once, the one that has been away for longest is taken for a new one.
const maxBuckets = 1 << 16

// A quota is the policy of one class of routes.
type quota struct {
	class Class
	terms int        // by which it is, among those of some callers; 0 for that of all
	rate  rate.Limit // per second; 0 is no limit
	burst int
}

func newQuota(class Class, terms int, perSecond float64) quota {
	return quota{class, terms, rate.Limit(perSecond), max(1, int(math.Ceil(perSecond*limitWindow)))}
}

// window is how many seconds an empty bucket takes to fill.
func (q quota) window() int { return int(math.Ceil(float64(q.burst) / float64(q.rate))) }

// A bucket is what one caller has left of one quota.
type bucket struct {
	key     bucketKey
	limiter *rate.Limiter
	used    time.Time // last
}

type bucketKey struct {
	class  Class
	terms  int
	caller string
}

// A limiter keeps every caller's buckets.
type limiter struct {
	terms   []Terms
	quotas  []map[Class]quota // of all, and then of each of terms
	longest time.Duration     // after so long without a request every bucket is full

	mu    sync.Mutex // guards what follows
	all   map[bucketKey]*lists.Element
	order *lists.List // of *bucket, the last used first
}

func newLimiter(l Limits, terms []Terms) *limiter {
	m := &limiter{terms: terms, all: map[bucketKey]*lists.Element{}, order: lists.New()}
	add := func(l Limits) {
		quotas := map[Class]quota{}
		for class, perSecond := range l {
			q := newQuota(class, len(m.quotas), perSecond)
			quotas[class] = q
			if q.rate > 0 {
				m.longest = max(m.longest, time.Duration(q.window())*time.Second)
			}
		}
		m.quotas = append(m.quotas, quotas)
	}
	add(l)
	for _, t := range terms {
		add(t.Limits)
	}
	return m
}

// quota returns the policy of a class of routes for a caller, if there is one.
func (l *limiter) quota(class Class, id directory.Identity, method string) (quota, bool) {
	for i := range l.terms {
		if q, ok := l.quotas[i+1][class]; ok && l.terms[i].cover(id, method) {
			return q, q.rate > 0
		}
	}
	q := l.quotas[0][class]
	return q, q.rate > 0
}

// take takes n requests from a caller's bucket. It returns what is left, and
// where there was nothing, after how long there will be.
func (l *limiter) take(q quota, caller string, now time.Time, n int) (left float64, wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(q, caller, now)
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
	key := bucketKey{q.class, q.terms, caller}
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
		if len(l.all) <= maxBuckets && now.Sub(old.used) < l.longest {
			break
		}
		l.order.Remove(last)
		delete(l.all, old.key)
	}
	return b
}

// pace refuses a request of a caller that asks too often, and tells everyone how
// much is left (draft-ietf-httpapi-ratelimit-headers-10): RateLimit-Policy has
// the quota (q) and the seconds that it is for (w), RateLimit what remains of it
// (r) and in how many seconds there is more (t): the whole quota again, or where
// nothing remains, one request.
func (s *Server) pace(w http.ResponseWriter, c *call, class Class) error {
	q, limited := s.limits.quota(class, c.id, c.credential.Method)
	if !limited {
		return nil
	}
	left, wait, ok := s.limits.take(q, callerOf(c), time.Now(), 1)
	reset := wait
	if ok {
		reset = time.Duration((float64(q.burst) - left) / float64(q.rate) * float64(time.Second))
	}
	if ok && class == Public { // what caches keep for others says nothing of them
		return nil
	}
	h := w.Header()
	h.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", q.class, q.burst, q.window()))
	h.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", q.class, int(left), seconds(reset)))
	if ok {
		return nil
	}
	return tooOften(q, wait)
}

// paceMore takes n more requests from the caller's quota, for one that is worth
// more than one and was paced as one: all that there can be behind that, where n is more.
func (s *Server) paceMore(c *call, class Class, n int) error {
	q, limited := s.limits.quota(class, c.id, c.credential.Method)
	if n = min(n, q.burst-1); !limited || n <= 0 {
		return nil
	}
	if _, wait, ok := s.limits.take(q, callerOf(c), time.Now(), n); !ok {
		return tooOften(q, wait)
	}
	return nil
}

// looksAToken is how many registrations a lookup may look at for each of the requests
// that it counts as: about what one of them costs.
const looksAToken = 1000

// lookUp is View.Lookup of what c's caller sees, which spends of the caller's quota.
func (s *Server) lookUp(c *call, class Class, q index.Query, show index.Viewer) (index.Page, error) {
	spent := s.spend(c, class, &q)
	page := s.cfg.View.Lookup(q, show)
	return page, spent()
}

// spend has a query pay as it goes on: all that there is may be looked at before a page is
// full, by an offset, or where the caller sees little of it. That counts as more requests
// of class, though never as more than can be made at once, and the query is over when
// they are used up, or its client has gone. spent returns why it was.
func (s *Server) spend(c *call, class Class, q *index.Query) (spent func() error) {
	quota, limited := s.limits.quota(class, c.id, c.credential.Method)
	looked, paid := 0, 0
	var err error
	q.Charge = func(n int) bool {
		for looked += n; err == nil && limited && paid < min(looked/looksAToken, quota.burst-1); paid++ {
			if _, _, ok := s.limits.take(quota, callerOf(c), time.Now(), 1); !ok {
				err = tooMuch(quota)
			}
		}
		err = cmp.Or(err, c.Context().Err())
		return err == nil
	}
	return func() error { return err }
}

// spendSlowly is spend for a stream, whose client waits anyway: what is there is looked at
// no faster than the caller's quota of class lets it, until ctx ends.
func (s *Server) spendSlowly(ctx context.Context, c *call, class Class) (spend func(looked int) bool) {
	quota, limited := s.limits.quota(class, c.id, c.credential.Method)
	caller, unpaid := callerOf(c), 0
	return func(looked int) bool {
		for unpaid += looked; limited && unpaid >= looksAToken && ctx.Err() == nil; {
			_, wait, ok := s.limits.take(quota, caller, time.Now(), 1)
			if ok {
				unpaid -= looksAToken
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		return ctx.Err() == nil
	}
}

// tooMuch is tooOften of a lookup whose caller has not enough left for it: with all of
// the quota there is.
func tooMuch(q quota) error {
	whole := time.Duration(q.window()) * time.Second
	err := tooOften(q, whole)
	problem.Explain(err).Err.Detail = fmt.Sprintf("Of this class (%s) you may make %d requests in %d s, and a lookup counts once more for each %d registrations that it looks at: narrow it down by filters, or wait for %d s.",
		q.class, q.burst, q.window(), looksAToken, seconds(whole))
	return err
}

func tooOften(q quota, wait time.Duration) error {
	return &problem.Refusal{
		Err: directory.Refuse(directory.RateLimited, "You may make %d requests of this class (%s) in %d s; wait for %d s.",
			q.burst, q.class, q.window(), seconds(wait)),
		Retry:   seconds(wait),
		Members: []strictjson.Member{{Name: "violated-policies", Value: appendStrings(nil, []string{string(q.class)})}},
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

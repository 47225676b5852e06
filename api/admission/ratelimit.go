package admission

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/limit"
)

// A Class is a group of routes for which callers have one quota.
type Class string

// The classes of routes.
const (
	Writes Class = "writes" // registrations, refreshes, removals
	Reads  Class = "reads"  // lookups and registrations, with their evidence
	// Queries are ranked: they cost more than a lookup, and reveal more of the
	// directory (AI-016).
	Queries     Class = "queries"
	Invocations Class = "invocations" // of agents through the gateway
	Operations  Class = "operations"  // requests of operators
	Federation  Class = "federation"  // requests of nodes
	Public      Class = "public"      // documents that anyone may read
)

// Limits are the requests per second that one caller may make, by class. A class that is
// absent or 0 has no limit. A caller may make at once the requests that it has not made
// in the last ten seconds.
type Limits map[Class]float64

// CallerLimits are limits of some callers in place of the general ones. If several of
// them cover a caller, the first that limits the subject applies.
type CallerLimits struct {
	Who directory.IdentityPattern // the zero pattern is any caller
	// By are the authentication methods, as in request.Credential, and MethodNone for
	// anonymous callers; empty is any.
	By     []string
	Limits Limits
	// The shortest and the longest lifetime of their registrations, in seconds; 0 is
	// as for all callers.
	MinLifetime, MaxLifetime uint32
}

// MethodNone is the authentication method of anonymous callers, in CallerLimits.
const MethodNone = "none"

// Covers tells whether the limits are for a caller.
func (l *CallerLimits) Covers(caller Caller) bool {
	method := caller.Method
	if caller.Identity.IsZero() {
		method = MethodNone
	}

	return (l.Who.IsZero() || l.Who.Matches(caller.Identity)) && (len(l.By) == 0 || slices.Contains(l.By, method))
}

// limitWindow is the number of seconds whose requests a caller may make at once.
const limitWindow = 10

// maxBuckets bounds how many callers are known. A caller that has been away for the
// window has its whole quota, like one that is not known. If more callers are active at
// once, the one that has been away for longest is treated as new.
const maxBuckets = 1 << 16

// groupRate is how many times the quota of one caller a group of them has: all identities of
// another domain, or all addresses of a network.
const groupRate = 2

// A quota is the limit of one class of routes.
type quota struct {
	class Class
	set   int     // the index of its limits in terms.quotas
	rate  float64 // per second; 0 is no limit
	burst int
}

func newQuota(class Class, set int, perSecond float64) quota {
	return quota{
		class: class,
		set:   set,
		rate:  perSecond,
		burst: max(1, int(math.Ceil(perSecond*limitWindow))),
	}
}

// window is how many seconds an empty bucket takes to fill.
func (q quota) window() int { return int(math.Ceil(float64(q.burst) / q.rate)) }

// times is the rate of n callers.
func (q quota) times(n float64) limit.Rate {
	return limit.Rate{PerSecond: q.rate * n, Burst: int(math.Ceil(float64(q.burst) * n))}
}

// A bucketKey is of the quota of one caller, or of a group of callers.
type bucketKey struct {
	class Class
	set   int
	party string // a caller's ID, or a group
}

// A Limiter bounds how often callers make requests. It is safe for concurrent use.
type Limiter struct {
	terms   atomic.Pointer[terms]
	rates   *limit.Rates[bucketKey]
	invalid *limit.Rates[string] // credentials that don't hold, by address
	// beyond has the requests by tokens that were refused because their caller is over its rate.
	beyond *limit.Rates[beyondKey]
}

// terms are the limits that are in force.
type terms struct {
	callers []CallerLimits
	quotas  []map[Class]quota // the general ones, then those of each of callers
}

// NewLimiter returns a Limiter with general limits, and limits for some callers.
func NewLimiter(general Limits, callers []CallerLimits) *Limiter {
	limiter := &Limiter{
		rates:   limit.NewRates[bucketKey](maxBuckets),
		invalid: limit.NewRates[string](maxBuckets),
		beyond:  limit.NewRates[beyondKey](maxBuckets),
	}
	limiter.Set(general, callers)

	return limiter
}

// Set replaces all limits. Callers keep the requests that they have left, up to the new
// limits.
func (l *Limiter) Set(general Limits, callers []CallerLimits) {
	next := &terms{callers: callers}
	next.add(general)

	// The index of each caller's quotas is one above that of its limits.
	for _, c := range callers {
		next.add(c.Limits)
	}

	l.terms.Store(next)
}

// Callers returns the limits that replace the general ones for some callers.
func (l *Limiter) Callers() []CallerLimits { return l.terms.Load().callers }

func (t *terms) add(limits Limits) {
	quotas := map[Class]quota{}
	for class, perSecond := range limits {
		quotas[class] = newQuota(class, len(t.quotas), perSecond)
	}

	t.quotas = append(t.quotas, quotas)
}

// quota returns the quota of a caller for a class of routes, if there is one.
func (l *Limiter) quota(class Class, caller Caller) (quota, bool) {
	terms := l.terms.Load()
	for i := range terms.callers {
		if q, ok := terms.quotas[i+1][class]; ok && terms.callers[i].Covers(caller) {
			return q, q.rate > 0
		}
	}

	q := terms.quotas[0][class]

	return q, q.rate > 0
}

// take takes n requests from a caller's bucket and from that of its group. It returns how
// many are left, and if there were too few, after how long there will be enough.
func (l *Limiter) take(q quota, caller Caller, now time.Time, n int) (left float64, wait time.Duration, ok bool) {
	key := bucketKey{class: q.class, set: q.set, party: caller.Party.ID}

	// The caller's bucket comes first, so that one who is over its rate takes nothing from its group.
	left, wait, ok = l.rates.Take(key, q.times(1), now, n)
	if !ok || caller.Party.Group == "" {
		return left, wait, ok
	}

	key.party = caller.Party.Group // which is no caller's ID

	ofGroup, wait, ok := l.rates.Take(key, q.times(groupRate), now, n)

	return min(left, ofGroup), wait, ok
}

// invalidRate is how many credentials of one address may fail, and how many requests beyond its rate a
// caller may have verified from one address.
var invalidRate = limit.Rate{PerSecond: 20, Burst: 200}

// A beyondKey is of the requests that a party, a caller or a group, sends from one network beyond its
// rate.
type beyondKey struct {
	network, party string
	class          Class
}

// beyondKeys returns the keys of a caller and of its group.
func beyondKeys(stranger, party limit.Caller, class Class) (caller, group beyondKey) {
	network := cmp.Or(stranger.Group, stranger.ID)

	return beyondKey{network, party.ID, class}, beyondKey{network, party.Group, class}
}

// Attempt refuses to verify a credential of a stranger if its address, or network, sent too many invalid ones:
// verifying a signature costs more than making one up. It also refuses a credential that names a party which goes on
// beyond its rate from there. claimed need not be true: it was verified for the requests that were counted, and a
// refusal harms only senders at that address.
func (l *Limiter) Attempt(stranger, claimed limit.Caller, class Class) error {
	for _, key := range []string{stranger.ID, stranger.Group} {
		if key == "" {
			continue
		}

		// Taking 0 only looks: Failed counts.
		if left, _, _ := l.invalid.Take(key, l.invalidRate(key == stranger.Group), time.Now(), 0); left < 1 {
			return &problem.Refusal{
				Err: directory.Refuse(directory.RateLimited,
					"too many credentials that don't hold came from your address. Try again in 1 s"),
				Retry: 1,
			}
		}
	}

	if claimed.Kind == limit.Stranger {
		return nil
	}

	caller, group := beyondKeys(stranger, claimed, class)
	for _, key := range []beyondKey{caller, group} {
		if key.party == "" {
			continue
		}

		if left, _, _ := l.beyond.Take(key, invalidRate, time.Now(), 0); left < 1 {
			return &problem.Refusal{
				Err: directory.Refuse(directory.RateLimited,
					"too many requests for %s came from your address beyond the limit of their caller. "+
						"Try again in 1 s", class),
				Retry: 1,
			}
		}
	}

	return nil
}

// Exceeded counts a request by a token that was verified, of a caller that is over its rate.
func (l *Limiter) Exceeded(stranger limit.Caller, caller Caller, class Class) {
	quota, limited := l.quota(class, caller)
	if !limited {
		return
	}

	now := time.Now()
	ofCaller, ofGroup := beyondKeys(stranger, caller.Party, class)
	bucket := bucketKey{class: quota.class, set: quota.set, party: caller.Party.ID}

	// Taking 0 only looks which of the two rates is used up.
	if left, _, _ := l.rates.Take(bucket, quota.times(1), now, 0); left < 1 {
		l.beyond.Take(ofCaller, invalidRate, now, 1)
		return
	}

	if caller.Party.Group != "" { // then it is the group's rate that is used up
		l.beyond.Take(ofGroup, invalidRate, now, 1)
	}
}

// Failed counts a credential of a stranger that didn't hold.
func (l *Limiter) Failed(stranger limit.Caller) {
	l.invalid.Take(stranger.ID, l.invalidRate(false), time.Now(), 1)

	if stranger.Group != "" {
		l.invalid.Take(stranger.Group, l.invalidRate(true), time.Now(), 1)
	}
}

// invalidRate is how many credentials of one address, or of a network, may fail.
func (l *Limiter) invalidRate(ofGroup bool) limit.Rate {
	if !ofGroup {
		return invalidRate
	}

	return limit.Rate{PerSecond: invalidRate.PerSecond * groupRate, Burst: int(float64(invalidRate.Burst) * groupRate)}
}

// Pace counts one request of a caller, or refuses it if the caller has made too many.
// It sets RateLimit-Policy (q the quota, w its window in seconds) and RateLimit (r the
// remaining requests, t the seconds until the whole quota is available, or until one
// request is if none remains), except on public documents: caches keep those for others.
func (l *Limiter) Pace(header http.Header, caller Caller, class Class) error {
	quota, limited := l.quota(class, caller)
	if !limited {
		return nil
	}

	left, wait, ok := l.take(quota, caller, time.Now(), 1)
	if ok && class == Public {
		return nil
	}

	reset := wait
	if ok {
		reset = time.Duration((float64(quota.burst) - left) / quota.rate * float64(time.Second))
	}

	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", quota.class, quota.burst, quota.window()))
	header.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", quota.class, int(left), seconds(reset)))

	if ok {
		return nil
	}

	return tooOften(quota, wait)
}

// PaceMore counts n more requests, for a request that was paced as one and is worth
// more. It counts at most the remainder of a full bucket after one request.
func (l *Limiter) PaceMore(caller Caller, class Class, n int) error {
	quota, _ := l.quota(class, caller)

	// A request that is worth more than a full bucket could never be made otherwise.
	if n = min(n, quota.burst-1); n <= 0 {
		return nil
	}

	if _, wait, ok := l.take(quota, caller, time.Now(), n); !ok {
		return tooOften(quota, wait)
	}

	return nil
}

// looksPerRequest is how many registrations a lookup may look at for each request that
// it counts as: about the cost of one request.
const looksPerRequest = 1000

// Spend makes a query pay while it runs: an offset, or a caller who sees little, can
// make it look at every registration before a page is full. That counts as more requests
// of class, never as more than can be made at once. The query ends early if they are used
// up or ctx ends; spent returns the reason.
func (l *Limiter) Spend(ctx context.Context, caller Caller, class Class, query *index.Query) (spent func() error) {
	quota, _ := l.quota(class, caller)
	looked, paid := 0, 0

	var err error

	query.Charge = func(n int) bool {
		looked += n
		for err == nil && paid < min(looked/looksPerRequest, quota.burst-1) {
			if _, _, ok := l.take(quota, caller, time.Now(), 1); !ok {
				err = tooMuch(quota)
			}

			paid++
		}

		err = cmp.Or(err, ctx.Err())

		return err == nil
	}

	return func() error { return err }
}

// SpendSlowly is Spend for a stream: it waits instead of ending the query, so that
// registrations are looked at no faster than the caller's quota allows, until ctx ends.
func (l *Limiter) SpendSlowly(ctx context.Context, caller Caller, class Class) (spend func(looked int) bool) {
	quota, limited := l.quota(class, caller)
	unpaid := 0

	return func(looked int) bool {
		unpaid += looked
		for limited && unpaid >= looksPerRequest && ctx.Err() == nil {
			_, wait, ok := l.take(quota, caller, time.Now(), 1)
			if ok {
				unpaid -= looksPerRequest
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

// tooMuch refuses a lookup that costs more than the caller has left: with the whole
// quota it may succeed.
func tooMuch(quota quota) error {
	whole := time.Duration(quota.window()) * time.Second
	err := tooOften(quota, whole)
	problem.Explain(err).Err.Detail = fmt.Sprintf("The limit for %s is %d requests in %d s, and a lookup counts "+
		"as one more "+
		"request for each %d registrations that it looks at. Narrow it down by filters, or try again in %d s.",
		quota.class, quota.burst, quota.window(), looksPerRequest, seconds(whole))

	return err
}

func tooOften(quota quota, wait time.Duration) error {
	violated := append(strictjson.AppendString([]byte{'['}, string(quota.class)), ']')

	return &problem.Refusal{
		Err: directory.Refuse(directory.RateLimited, "the limit for %s is %d requests in %d s. Try again in %d s",
			quota.class, quota.burst, quota.window(), seconds(wait)),
		Retry:   seconds(wait),
		Members: []strictjson.Member{{Name: "violated-policies", Value: violated}},
	}
}

// seconds is a duration in whole seconds, rounded up.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

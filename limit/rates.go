package limit

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A Rate is the number of events that are allowed a second, and at once.
type Rate struct {
	PerSecond float64 // more than 0
	Burst     int     // at least 1
}

// Window is the time in which an empty bucket fills.
func (r Rate) Window() time.Duration { return seconds(float64(r.Burst) / r.PerSecond) }

func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}

	return time.Duration(s * float64(time.Second))
}

// Rates has a token bucket for each key. A key that was not used for the window of its
// rate has a full bucket, as a new one has, and is forgotten. So is the key that was not
// used for longest when there are more than the bound.
//
// It is safe for concurrent use.
type Rates[K comparable] struct {
	max int

	mu    sync.Mutex // guards the fields below
	all   map[K]*list.Element
	order *list.List // of *bucket[K], the last used first
}

// A bucket has the tokens of one key.
type bucket[K comparable] struct {
	key     K
	rate    Rate
	limiter *rate.Limiter
	used    time.Time // last
}

// at returns now, or the time of the bucket's last use if that is later.
func (b *bucket[K]) at(now time.Time) time.Time {
	if now.After(b.used) {
		b.used = now
	}

	return b.used
}

// NewRates returns the rates of at most max keys.
func NewRates[K comparable](max int) *Rates[K] {
	return &Rates[K]{max: max, all: map[K]*list.Element{}, order: list.New()}
}

// Take takes n tokens of a key. It returns the number that is left and, if there were too
// few, the time until there are enough. A key whose rate differs from that of its last use
// keeps its tokens, up to the new burst.
func (r *Rates[K]) Take(key K, of Rate, now time.Time, n int) (left float64, wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	b := r.bucket(key, of, now)
	now = b.used // else a limiter would count the time since an earlier reading of the clock twice
	ok = b.limiter.AllowN(now, n)
	left = max(0, b.limiter.TokensAt(now))

	if !ok {
		wait = seconds((float64(n) - left) / of.PerSecond)
	}

	return left, wait, ok
}

// GiveBack returns n tokens that were taken of a key.
func (r *Rates[K]) GiveBack(key K, of Rate, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()

	b := r.bucket(key, of, time.Now())
	b.limiter.AllowN(b.used, -n)
}

// wait takes a token of a key once there is one, in the order of the calls. Its error is ctx's, or
// context.DeadlineExceeded if ctx would end before.
func (r *Rates[K]) wait(ctx context.Context, key K, of Rate) error {
	delay, giveBack := r.reserve(key, of)
	if delay == 0 {
		return nil
	}

	// The wait would be in vain, and the token is for the next caller.
	if end, bound := ctx.Deadline(); bound && time.Until(end) < delay {
		giveBack()
		return context.DeadlineExceeded
	}

	turn := time.NewTimer(delay)
	defer turn.Stop()

	select {
	case <-turn.C:
		return nil
	case <-ctx.Done():
		giveBack()
		return ctx.Err()
	}
}

// reserve takes a token of a key that may be used after a delay, unless giveBack is called.
func (r *Rates[K]) reserve(key K, of Rate) (delay time.Duration, giveBack func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	b := r.bucket(key, of, time.Now())
	reserved := b.limiter.ReserveN(b.used, 1)

	return reserved.DelayFrom(b.used), func() {
		r.mu.Lock()
		defer r.mu.Unlock()

		reserved.CancelAt(b.at(time.Now()))
	}
}

// Len returns the number of keys.
func (r *Rates[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return len(r.all)
}

// bucket returns the bucket of a key, as of its last use or of now if that is later: callers read
// the clock before they get the lock. The lock is held.
func (r *Rates[K]) bucket(key K, of Rate, now time.Time) *bucket[K] {
	element, known := r.all[key]
	if known {
		r.order.MoveToFront(element)
	} else {
		element = r.order.PushFront(&bucket[K]{
			key: key, rate: of, limiter: rate.NewLimiter(rate.Limit(of.PerSecond), of.Burst),
		})
		r.all[key] = element
	}

	b := element.Value.(*bucket[K])
	b.at(now)

	if b.rate != of {
		b.rate = of
		b.limiter.SetLimitAt(b.used, rate.Limit(of.PerSecond))
		b.limiter.SetBurstAt(b.used, of.Burst)
	}

	r.forget(now)

	return b
}

// forget removes the keys that need not be known any more: at most two, so that no single
// use pays for many. The lock is held.
func (r *Rates[K]) forget(now time.Time) {
	for range 2 {
		last := r.order.Back()

		oldest := last.Value.(*bucket[K])
		if len(r.all) <= r.max && now.Sub(oldest.used) < oldest.rate.Window() {
			return
		}

		r.order.Remove(last)
		delete(r.all, oldest.key)
	}
}

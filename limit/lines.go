package limit

import (
	"sync"

	"golang.org/x/time/rate"
)

// Lines samples the lines of a log that others cause: of each key as many are written as its
// rate allows, and the next one has the number of those that were not. It is safe for
// concurrent use.
type Lines[K comparable] struct {
	of  Rate
	max int

	mu   sync.Mutex // guards the field below
	keys map[K]*sample
}

// A sample has the limiter and the skipped lines of one key.
type sample struct {
	limiter *rate.Limiter
	skipped int // since the last line
}

// NewLines samples the lines of at most max keys at a time. If there are more, all are
// forgotten, with the numbers of their skipped lines.
func NewLines[K comparable](max int, of Rate) *Lines[K] {
	return &Lines[K]{of: of, max: max, keys: map[K]*sample{}}
}

// Take reports whether a line of a key is to be written now, and how many before it were not.
func (l *Lines[K]) Take(key K) (skipped int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	known := l.keys[key]
	if known == nil {
		if len(l.keys) >= l.max {
			clear(l.keys)
		}

		known = &sample{limiter: rate.NewLimiter(rate.Limit(l.of.PerSecond), l.of.Burst)}
		l.keys[key] = known
	}

	if !known.limiter.Allow() {
		known.skipped++

		return 0, false
	}

	skipped, known.skipped = known.skipped, 0

	return skipped, true
}

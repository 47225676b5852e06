package mesh

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// GiveUp is how long a connection survives a cut of one of its ways: as TCP
// with Go's keep-alives, which finds out after 15 s and nine more probes.
const GiveUp = 150 * time.Second

const (
	retransmit = 200 * time.Millisecond // a lost segment comes this much later, then twice this, …
	maxLosses  = 7                      // … at most this often in a row
)

// A Link describes one direction between two hosts. The zero value is perfect. A Write
// is sent as segments of at most 16 KiB. They arrive in order and once, as in TCP, so
// loss appears as delay.
type Link struct {
	Delay  time.Duration // of every segment
	Jitter time.Duration // added at random, from 0 up to this
	Loss   float64       // share of segments that must be sent again
	Reset  float64       // share of segments that end their connection, at both ends
}

func (l Link) loses(rng *rand.Rand) bool { return l.Loss > 0 && rng.Float64() < l.Loss }

// travel returns how long something small is under way when it is not lost.
func (l Link) travel(rng *rand.Rand) time.Duration {
	if l.Jitter <= 0 {
		return l.Delay
	}

	return l.Delay + time.Duration(rng.Int64N(int64(l.Jitter)+1))
}

// lag returns how long a segment is under way, the times it is sent again
// included.
func (l Link) lag(rng *rand.Rand) time.Duration {
	d := l.travel(rng)
	for i, again := 0, retransmit; i < maxLosses && l.loses(rng); i, again = i+1, again*2 {
		d += again
	}

	return d
}

// hash tells directions apart in the seeds of their connections.
func hash(d direction) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(d.from + "\x00" + d.to)) // a hash does not fail

	return h.Sum64()
}

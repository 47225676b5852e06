package trust

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// maxJudged bounds how many certificates are known to hold.
const maxJudged = 1 << 12

// judgements are judge's for one use, of which each that was good is remembered: the
// certificate of a connection that stands is judged again and again, and to verify a
// signature takes longer than all else of that.
type judgements struct {
	bundles *Bundles
	use     usage

	mu   sync.RWMutex
	good map[*x509.Certificate]judgement // by leaf; at most maxJudged
}

// A judgement holds while its domain's bundle is the one by which it was made, and all
// certificates that it rests on are in force.
type judgement struct {
	id          spiffeid.ID
	generation  uint64
	since, till time.Time
}

func newJudgements(b *Bundles, use usage) *judgements {
	return &judgements{bundles: b, use: use, good: map[*x509.Certificate]judgement{}}
}

// judge is judge for what was remembered or is new. It is safe for concurrent use.
func (j *judgements) judge(chain []*x509.Certificate, now time.Time) (spiffeid.ID, error) {
	if len(chain) == 0 {
		return judge(chain, j.bundles, j.use, now)
	}
	j.mu.RLock()
	v, ok := j.good[chain[0]]
	j.mu.RUnlock()
	if ok && v.generation == j.bundles.generation(v.id.TrustDomain()) && !now.Before(v.since) && !now.After(v.till) {
		return v.id, nil
	}
	said, _ := x509svid.IDFromCert(chain[0])                            // of whom judgeChain finds out more
	v = judgement{generation: j.bundles.generation(said.TrustDomain())} // before it does: a later bundle makes this one stale
	id, by, err := judgeChain(chain, j.bundles, j.use, now)
	if err != nil {
		return id, err
	}
	v.id, v.since, v.till = id, by[0].NotBefore, by[0].NotAfter
	for _, c := range by[1:] {
		if c.NotBefore.After(v.since) {
			v.since = c.NotBefore
		}
		if c.NotAfter.Before(v.till) {
			v.till = c.NotAfter
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.good) >= maxJudged {
		clear(j.good)
	}
	j.good[chain[0]] = v
	return id, nil
}

package consensus

import (
	"maps"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A node changes its signing key, or has it attested anew, a few times at once and then at intervals:
// each change makes a key document, which every peer fetches. A node does so when it has another
// SVID, which is every few minutes at most, and when an operator rotates its key.
const (
	keyChangeEvery = 30 * time.Second
	keyChangeBurst = 10
	maxKeyPaces    = 256
)

// A keyPace bounds how often each node changes its signing key. The leader uses it.
type keyPace struct {
	mu     sync.Mutex // guards the field below
	byNode map[spiffeid.ID]*rate.Limiter
}

// take refuses a change beyond the pace of its node.
func (k *keyPace) take(attest *state.Attest) error {
	k.mu.Lock()
	defer k.mu.Unlock()

	pace := k.byNode[attest.Node]
	if pace == nil {
		if k.byNode == nil {
			k.byNode = map[spiffeid.ID]*rate.Limiter{}
		}

		// A limiter that is full again is as good as a new one.
		if len(k.byNode) >= maxKeyPaces {
			maps.DeleteFunc(k.byNode, func(_ spiffeid.ID, idle *rate.Limiter) bool {
				return idle.Tokens() >= keyChangeBurst
			})
		}

		pace = rate.NewLimiter(rate.Every(keyChangeEvery), keyChangeBurst)
		k.byNode[attest.Node] = pace
	}

	if !pace.Allow() {
		return directory.Refuse(directory.RateLimited,
			"%s changes its signing key too often: %d times at once, and then every %s. Nothing was changed",
			attest.Node, keyChangeBurst, keyChangeEvery)
	}

	return nil
}

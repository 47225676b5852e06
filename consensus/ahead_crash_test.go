package consensus

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A leader and the only follower that has what it wrote ahead go down together: what
// was acknowledged is there without that follower, and what was not was shown to
// nobody, so that the follower comes back to the others' history.
//
// Requirement: MESH-002
func TestALeaderThatDiesAheadOfItsDiskTakesNothingAlong(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		acked := map[string]directory.RID{}
		for round := range 4 {
			leader, second := d.leader()
			third := 3 - leader - second
			d.net.isolate(d.members[third].Address)
			d.log(leader).delay.Store(int64(300 * time.Millisecond))

			var (
				mu      sync.Mutex
				writers sync.WaitGroup
			)
			for w := range 4 {
				writers.Go(func() {
					for i := 0; ; i++ {
						name := fmt.Sprintf("agent-%d-%d-%d", round, w, i)

						out, err := d.nodes[leader].Register(t.Context(), put(t, ada, name, 86400))
						if err != nil {
							return
						}

						mu.Lock()
						acked[name] = out.RID
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
					}
				})
			}

			time.Sleep(500*time.Millisecond + rand.N(700*time.Millisecond))
			d.log(leader).full.Store(true)
			time.Sleep(rand.N(100 * time.Millisecond))
			d.net.isolate(d.members[second].Address)
			d.net.isolate(d.members[leader].Address)
			writers.Wait()
			d.stop(leader)
			d.net.heal(d.members[leader].Address)
			d.net.heal(d.members[third].Address)
			d.log(leader).full.Store(false)
			d.log(leader).delay.Store(0)
			d.start(leader)
			eventually(t, "the others go on", func() bool {
				out, err := d.nodes[third].Register(t.Context(), put(t, ada, fmt.Sprint("then-", round), 86400))
				acked[fmt.Sprint("then-", round)] = out.RID

				return err == nil
			})
			d.net.heal(d.members[second].Address)
			d.ready()
			d.equalStates()

			for name, rid := range acked {
				reg := d.nodes[leader].Replica.registration(rid)
				if reg == nil || reg.Entry().Agent != name {
					t.Errorf("round %d: %s is lost, which was acknowledged", round, name)
				}
			}
		}
	})
}

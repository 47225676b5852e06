package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/directory"
)

// A lossyLog takes its time for every append, and loses those under way when the
// power goes.
type lossyLog struct {
	raft.LogStore
	delay atomic.Int64
	dead  atomic.Bool
}

func (l *lossyLog) StoreLogs(entries []*raft.Log) error {
	time.Sleep(time.Duration(l.delay.Load()))

	if l.dead.Load() {
		return errors.New("the power is gone")
	}

	return l.LogStore.StoreLogs(entries)
}

// A leader and the only follower that has what it wrote ahead go down together: what
// was acknowledged is there without that follower, and what was not was shown to
// nobody, so that the follower comes back to the others' history.
//
// Requirement: MESH-002
func TestALeaderThatDiesAheadOfItsDiskTakesNothingAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs [3]*lossyLog
		opening := 0
		d := newDomain(t, 3, func(c *Config) {
			l := &lossyLog{}
			logs[opening] = l
			c.faulty = func(s raft.LogStore) raft.LogStore { l.LogStore = s; return l }
			opening++
		})
		d.ready()

		acked := map[string]directory.RID{}
		for round := range 4 {
			leader, second := d.leader()
			third := 3 - leader - second
			d.net.isolate(d.members[third].Address)
			logs[leader].delay.Store(int64(300 * time.Millisecond))

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
			logs[leader].dead.Store(true)
			time.Sleep(rand.N(100 * time.Millisecond))
			d.net.isolate(d.members[second].Address)
			d.net.isolate(d.members[leader].Address)
			writers.Wait()
			d.stop(leader)
			d.net.heal(d.members[leader].Address)
			d.net.heal(d.members[third].Address)
			opening = leader
			d.start(leader)
			eventually(t, "the others go on", func() bool {
				out, err := d.nodes[third].Register(t.Context(), put(t, ada, fmt.Sprint("then-", round), 86400))
				acked[fmt.Sprint("then-", round)] = out.RID

				return err == nil
			})
			d.net.heal(d.members[second].Address)
			d.ready()
			d.settled()
			held := func(i int) []byte {
				d.nodes[i].Replica.mu.RLock()
				defer d.nodes[i].Replica.mu.RUnlock()

				return freeze(t, d.nodes[i].Replica.state)
			}
			eventually(t, "all have the same state", func() bool {
				return bytes.Equal(held(leader), held(second)) && bytes.Equal(held(leader), held(third))
			})

			s := d.nodes[leader]
			for name, rid := range acked {
				s.Replica.mu.RLock()
				reg := s.Replica.state.Registrations().Get(rid)
				s.Replica.mu.RUnlock()

				if reg == nil || reg.Entry().Agent != name {
					t.Errorf("round %d: %s is lost, which was acknowledged", round, name)
				}
			}
		}

		d.close()
	})
}

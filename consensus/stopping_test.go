package consensus

import (
	"runtime"
	"sync"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A member stops while a write is under way: the entry is answered, and nothing waits for ever.
func TestAMemberStopsWhileItWrites(t *testing.T) {
	for i := range directorytest.Sample(20, 8) {
		inDomain(t, 1, nil, func(t *testing.T, d *domain) {
			var writes sync.WaitGroup
			for range 8 {
				writes.Go(func() {
					_, _ = d.nodes[0].Register(t.Context(), put(t, ada, "agent", 600)) // it may come too late
				})
			}

			for range i * 20 { // so that the entry is at various places when the member stops
				runtime.Gosched()
			}

			must(t, d.nodes[0].Close())

			writes.Wait()
		})
	}
}

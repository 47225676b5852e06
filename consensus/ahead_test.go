package consensus

import (
	"fmt"
	"testing"
	"time"
)

// A write waits for one disk and not for two, one after the other.
func TestAWriteWaitsForOneDisk(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, _ := d.leader()

		const delay = 200 * time.Millisecond
		for i := range d.nodes {
			d.log(i).delay.Store(int64(delay))
		}

		for i := range 3 {
			began := time.Now()

			d.register(leader, fmt.Sprint("agent-", i), 600)

			if took := time.Since(began); took < delay || took >= 2*delay {
				t.Errorf("a write took %s where each disk takes %s", took, delay)
			}

			time.Sleep(time.Second)
		}
	})
}

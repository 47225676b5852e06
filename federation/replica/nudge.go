package replica

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Wake says so to a loop that may be asleep; once is enough.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Parallel calls f for 0 to n-1 on all processors, and returns when all is done.
func Parallel(n int, f func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			f(i)
		}

		return
	}

	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}

	wg.Wait()
}

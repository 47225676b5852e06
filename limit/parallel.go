package limit

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel calls f for 0 to n-1, by at most one goroutine for each processor, and returns
// when all calls have returned.
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
			// Each goroutine takes the next number when it is free, so a slow call holds up no other.
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}

	wg.Wait()
}

package limit_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/roster-mesh/roster/limit"
)

// Each number is called once before Parallel returns, by one processor or several.
func TestEachNumberIsCalledOnce(t *testing.T) {
	for _, processors := range []int{1, 4} {
		before := runtime.GOMAXPROCS(processors)
		defer runtime.GOMAXPROCS(before)

		for _, n := range []int{0, 1, 2, 1000} {
			calls := make([]atomic.Int32, n)
			limit.Parallel(n, func(i int) {
				runtime.Gosched()
				calls[i].Add(1)
			})

			for i := range calls {
				if got := calls[i].Load(); got != 1 {
					t.Fatalf("of %d by %d: %d was called %d times", n, processors, i, got)
				}
			}
		}
	}
}

package federation

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A domain that holds as many subscriptions as it may is told so, and the others
// still get theirs; whose wait is over makes room again.
func TestNoDomainTakesAllTheSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.alpha.reopenWith(t, active(beta, 1), active(gamma, 1))
		b.origin.mesh = append(b.origin.mesh, gamma)
		b.origin.listKeys(nil, b.alpha.keys)
		target := pathPages + "?origin=alpha.test&aud=mesh&wait=30s&since="
		poll := func(caller string) int {
			return b.alpha.ask(t.Context(), caller, "GET", target+fmt.Sprint(b.origin.rev), "").Code
		}
		greedy, other := nodeID(beta, 1).String(), nodeID(gamma, 1).String()
		var polls sync.WaitGroup
		for range maxOfOne {
			polls.Go(func() {
				if code := poll(greedy); code != http.StatusNoContent {
					t.Errorf("one of %d: %d", maxOfOne, code)
				}
			})
		}
		time.Sleep(time.Second)
		if code := poll(greedy); code != http.StatusServiceUnavailable {
			t.Errorf("one more: %d", code)
		}
		start := time.Now()
		if code := poll(other); code != http.StatusNoContent || time.Since(start) != 30*time.Second {
			t.Errorf("another domain's: %d after %v", code, time.Since(start))
		}
		polls.Wait()
		if code := poll(greedy); code != http.StatusNoContent {
			t.Errorf("one when the others are over: %d", code)
		}
	})
}

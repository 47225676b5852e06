package federation

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A panic on the answer of another node ends that request. The node goes on, and follows the peer when it can read the
// answers.
//
// Requirement: FORM-006
func TestAPanicOnAnAnswerEndsOneRequest(t *testing.T) {
	for _, path := range []string{protocol.PathHeads, protocol.PathKeys, protocol.PathPages, protocol.PathRecords} {
		inBench(t, func(t *testing.T, b *bench) {
			var planted atomic.Bool

			planted.Store(true)

			b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
				if planted.Load() && r.URL.Path == path {
					panic("planted")
				}

				return body
			}

			b.origin.register("agent", 86400)

			defer b.beta.run(t)()

			time.Sleep(time.Minute)

			if n := b.beta.Mesh.cfg.Panics.Count(contain.Answer); n == 0 {
				t.Errorf("%s: no panic is counted", path)
			}

			planted.Store(false)
			eventually(t, 10*time.Minute, path+" is read", func() bool { return len(b.beta.shown(alpha)) == 1 })
		})
	}
}

package federation

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Pages that each claim to be a little more ahead don't carry an origin's clock
// with them: what it registered stays alive, here and after a restart.
//
// Requirement: MESH-009
func TestPagesCannotPushTheClock(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()
		w := b.beta.origins.Get(alpha).Since(&b.beta.origins.Get(alpha).Mesh)

		refused := 0
		for i := range uint64(20) {
			text, err := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) {
				p.From = w + i
				p.To = w + i + 1
				p.At = w + i + 1
				p.Digests = nil
				p.IssuedAt = time.Now().Unix() + 60*int64(i+1)
			}))
			must(t, err)

			if _, err := b.take(alpha, text); protocol.CodeOf(err) == protocol.CodeFuture {
				refused++
			}
		}

		if refused != 19 {
			t.Errorf("%d of 19 pages from further ahead than a minute were refused", refused)
		}

		b.beta.reopen(t)

		if ahead := time.Until(b.beta.origins.Get(alpha).Shown.Index.Clock.Now()); ahead > time.Minute {
			t.Errorf("after a restart the origin's clock is %v ahead of the wall", ahead)
		}

		if n := len(b.beta.shown(alpha)); n != 1 {
			t.Errorf("%d of 1 shown", n)
		}
	})
}

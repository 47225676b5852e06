package federation

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A node that stops in the middle of a new epoch's first pull goes on with it,
// also where the epoch before had announced nothing, so that nothing of it is on
// disk.
//
// Requirement: MESH-018
func TestARestartWithinTheEpochAfterAnEmptyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		o := b.beta.origin(alpha)
		if err := b.beta.askHead(t.Context(), o, b.giver()); err != nil { // all that the first epoch ever says
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		b.origin.epoch = uint64(time.Now().Unix())
		b.origin.listKeys(nil, b.alpha.keys)
		for i := range maxDigests + 10 {
			b.origin.register(fmt.Sprint("agent-", i), 6000)
		}
		if err := b.beta.askHead(t.Context(), o, b.giver()); err != nil {
			t.Fatal(err)
		}
		text, err := b.beta.getPage(t.Context(), b.giver(), alpha, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p, code, err := b.beta.take(t.Context(), sender{domain: alpha}, b.giver(), text); err != nil || code != CodeApplied || p.To == p.At {
			t.Fatal(code, err)
		}
		b.beta.reopen(t)
		b.pull()
		if n := len(b.beta.shown(alpha)); n != maxDigests+10 {
			t.Errorf("%d of %d are shown", n, maxDigests+10)
		}
	})
}

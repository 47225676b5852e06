package federation

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A node that stops in the middle of a new epoch's first pull goes on with it,
// also where the epoch before had announced nothing, so that nothing of it is on
// disk.
//
// Requirement: MESH-018
func TestARestartWithinTheEpochAfterAnEmptyOne(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.beta.origins.Get(alpha)
		if err := b.beta.receiver.askHead(t.Context(), o, b.giver()); err != nil { // all that the first epoch ever says
			t.Fatal(err)
		}

		time.Sleep(10 * time.Second)
		b.origin.epoch = uint64(time.Now().Unix())
		b.origin.listKeys(nil, b.alpha.keys)

		b.origin.registers(protocol.MaxDigests+10, 6000)

		must(t, b.beta.receiver.askHead(t.Context(), o, b.giver()))

		text, err := b.beta.client.Page(t.Context(), b.giver(), alpha, directory.Mesh, 0)
		must(t, err)

		if p, code, err := b.beta.receiver.take(t.Context(), replica.Sender{Domain: alpha}, b.giver(),
			text); err != nil || code != protocol.CodeApplied || p.To == p.At {
			t.Fatal(code, err)
		}

		b.beta.reopen(t)
		b.pull()

		if n := len(b.beta.shown(alpha)); n != protocol.MaxDigests+10 {
			t.Errorf("%d of %d are shown", n, protocol.MaxDigests+10)
		}
	})
}

// A restored origin announces nothing until owners refresh: its head says so, and
// what its peers had of it goes at once, and stays gone.
//
// Requirement: MESH-019
func TestAnEpochInWhichNothingIsAnnounced(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(3, 86400)

		stop := b.beta.run(t)
		eventually(t, time.Second, "all are shown", func() bool { return len(b.beta.shown(alpha)) == 3 })
		old, at := b.origin.restore()
		b.origin.listKeys(nil, b.alpha.keys)
		eventually(t, 2*time.Minute, "none is shown", func() bool { return len(b.beta.shown(alpha)) == 0 })
		stop()
		b.beta.reopen(t)
		page := &signed.Page{Issuer: alpha, Epoch: old, Audience: directory.Mesh, From: 0, To: at, At: at,
			IssuedAt: time.Now().Unix()}

		late, _ := b.alpha.keys.Sign(signed.TypePage, page.Payload())
		if _, err := b.take(alpha, late); protocol.CodeOf(err) != protocol.CodeEpochOld {
			t.Fatalf("the old epoch speaks again: %v", err)
		}
	})
}

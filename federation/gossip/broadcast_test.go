package gossip

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Whoever may have a message no longer doesn't get it, though it was sent and
// waited only for a connection.
//
// Requirement: MESH-025
func TestAnAudienceIsAskedWhenAMessageLeaves(t *testing.T) {
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprint(changed), func(t *testing.T) {
			inPond(t, func(t *testing.T, p *pond) {
				p.gather(1, "alpha.test", "beta.test")
				a, b := p.all[0], p.all[1]
				p.wire.SetCut(func(string, string) bool { return true })
				a.transport.client.CloseIdleConnections()

				may := true

				var mu sync.Mutex
				must(t, a.transport.queue(b.id, []byte{wireUser, 'x'}, func(spiffeid.TrustDomain) bool {
					mu.Lock()
					defer mu.Unlock()

					return may
				}))
				time.Sleep(time.Second)
				mu.Lock()
				may = !changed
				mu.Unlock()
				p.wire.SetCut(nil)
				time.Sleep(10 * time.Second)

				if got := len(b.heard("x")) > 0; got == changed {
					t.Errorf("it was delivered: %v", got)
				}
			})
		})
	}
}

// A message goes to all of its audience, to each once from each that tells it,
// and to no other node, however large the pool is.
//
// Requirement: MESH-006, MESH-025
func TestAMessageGoesToItsAudience(t *testing.T) {
	t.Parallel()
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(3, "alpha.test", "beta.test", "gamma.test", "delta.test")
		speaker := p.all[0]
		may := func(td spiffeid.TrustDomain) bool { return td.Name() == "alpha.test" || td.Name() == "beta.test" }
		speaker.Gossiper.Publish("x", []byte("to some"), may)
		speaker.Gossiper.Publish("y", []byte("to nobody"), func(spiffeid.TrustDomain) bool { return false })
		time.Sleep(time.Minute)

		for _, f := range p.all[1:] {
			want := 0
			if may(f.id.TrustDomain()) {
				want = 1
			}

			if n := len(f.heard("to some")); n != want || len(f.heard("to nobody")) != 0 {
				t.Errorf("%s heard it %d times", f.id, n)
			}
		}

		if n := len(speaker.broadcasts.leastTold()); n != 0 {
			t.Errorf("%d are still being told", n)
		}
	})
}

// A message that takes another's place while that is being sent isn't ended with it.
func TestANewerMessageOutlivesTheRound(t *testing.T) {
	var (
		r    *broadcasts
		sent []string
	)

	all := func(spiffeid.TrustDomain) bool { return true }
	members := func() []spiffeid.ID { return []spiffeid.ID{pondNode("beta.test", "n1")} }
	r = newBroadcasts(&Config{}, members, func(_ spiffeid.ID, packet []byte, _ Audience) error {
		sent = append(sent, string(packet[1:]))
		r.publish("stream", []byte("newer"), all)

		return nil
	})
	r.publish("stream", []byte("older"), all)

	for r.round(time.Now()) {
	}

	if !slices.Equal(sent, []string{"older", "newer"}) {
		t.Errorf("sent %q", sent)
	}
}

// What waits to be told is bounded, in streams and in time.
func TestRumoursAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &Config{Timing: Timing{}.withDefaults()}
		sent := map[spiffeid.ID]int{}
		id := pondNode("beta.test", "n1")
		r := newBroadcasts(cfg, func() []spiffeid.ID {
			return []spiffeid.ID{id}
		}, func(to spiffeid.ID, packet []byte, _ Audience) error {
			sent[to] += len(packet)
			return nil
		})

		listed := false
		for i := range 2 * maxPublished {
			r.publish(fmt.Sprint(i), make([]byte, MaxMessage), func(spiffeid.TrustDomain) bool { return listed })
		}

		if len(r.fresh) != maxStreams || len(r.published) != maxPublished {
			t.Fatalf("%d streams, %d remembered", len(r.fresh), len(r.published))
		}

		if !r.round(time.Now()) || len(sent) != 0 {
			t.Fatal("it was told")
		}

		listed = true

		if !r.round(time.Now()) || sent[id] != 1+MaxMessage {
			t.Fatalf("%d bytes in one round", sent[id])
		}

		listed = false
		time.Sleep(broadcastLife)

		if r.round(time.Now()) {
			t.Fatal("they don't end")
		}
	})
}

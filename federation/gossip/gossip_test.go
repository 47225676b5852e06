package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A mesh that was cut in two for longer than memberlist remembers the dead comes
// together again by itself.
//
// Requirement: MESH-015
func TestNineNodesHealAfterALongCut(t *testing.T) {
	t.Parallel()

	for _, split := range []int{4, 3}[:directorytest.Sample(2, 1)] { // a domain torn apart; a whole one away
		t.Run(fmt.Sprint(split), func(t *testing.T) {
			t.Parallel()
			inPond(t, func(t *testing.T, p *pond) {
				p.populate(3, "alpha.test", "beta.test", "gamma.test")
				t.Log("met in", within(t, 20*time.Second, "all see all", p.allSee(p.all)))

				side := map[string]bool{}
				for _, f := range p.all[:split] {
					side[f.address] = true
				}

				p.wire.SetCut(func(a, b string) bool { return side[a] != side[b] })
				t.Log("parted in", within(t, 10*time.Minute, "each side sees itself alone", func() bool {
					return p.allSee(p.all[:split])() && p.allSee(p.all[split:])()
				}))
				time.Sleep(30 * time.Minute)

				p.wire.SetCut(nil)
				t.Log("healed in", within(t, time.Minute, "all see all again", p.allSee(p.all)))
				time.Sleep(5 * time.Minute)

				if !p.allSee(p.all)() {
					t.Error("the pool fell apart again")
				}
			})
		})
	}
}

// A message reaches all when those that have verified it pass it on, and nobody
// else passes it on for them.
//
// Requirement: MESH-006
func TestAMessageReachesAllAndNothingUnverifiedIsPassedOn(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		p.populate(3, "alpha.test", "beta.test", "gamma.test")

		for _, f := range p.all {
			f.mu.Lock()
			f.relay = func(msg []byte) bool { return strings.HasPrefix(string(msg), "verified") }
			f.mu.Unlock()
		}

		within(t, 20*time.Second, "all see all", p.allSee(p.all))
		speaker := p.all[4]
		speaker.publish("odd", []byte("unverified"))
		// A rumour is told to so many, at random, and may miss one: that is what pulls
		// are for. Nobody misses every one of five.
		verified := map[*frog][]spiffeid.ID{}
		for i := range 5 {
			rumour := fmt.Sprint("verified ", i)
			speaker.publish("own", []byte(rumour))
			time.Sleep(12 * time.Second)

			for _, f := range p.all {
				verified[f] = append(verified[f], f.heard(rumour)...)
			}
		}

		total, relayed := 0, false
		for _, f := range p.all {
			if f != speaker && len(verified[f]) == 0 {
				t.Errorf("%s has heard nothing", f.id)
			}

			for _, from := range f.heard("unverified") {
				total++

				if from != speaker.id {
					t.Errorf("%s passed on what it couldn't verify", from)
				}
			}

			for _, from := range verified[f] {
				relayed = relayed || from != speaker.id
			}
		}

		if total == 0 || !relayed {
			t.Errorf("%d unverified messages arrived, relayed %v", total, relayed)
		}
	})
}

// Requirement: MESH-006
func TestTheLatestOfAStreamWins(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(1, "alpha.test", "beta.test")

		for i := range 50 {
			p.all[0].publish("pages", fmt.Append(nil, "page ", i))
			p.all[0].publish("others", []byte("the same"))
		}

		time.Sleep(time.Minute)
		b := p.all[1]

		same := len(b.heard("the same"))
		if len(b.heard("page 49")) == 0 || len(b.heard("page 0")) != 0 || len(b.got) > 2*retransmit || same == 0 {
			t.Errorf("heard %v", b.got)
		}

		p.all[0].publish("others", []byte("the same"))
		time.Sleep(time.Minute)

		if len(b.heard("the same")) != same {
			t.Error("what was told was told again")
		}
	})
}

// Requirement: MESH-006
func TestMessagesAndHeadsAreBounded(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(1, "alpha.test", "beta.test")
		a, b := p.all[0], p.all[1]

		most := strings.Repeat("x", MaxMessage)
		a.publish("big", []byte(most))
		a.publish("bigger", []byte(most+"x"))
		time.Sleep(10 * time.Second)

		if len(b.heard(most)) == 0 || len(b.heard(most+"x")) != 0 || a.count("too large") != 1 {
			t.Errorf("16 KiB came %d times, 16 KiB + 1 %d times, refused %d", len(b.heard(most)),
				len(b.heard(most+"x")), a.count("too large"))
		}

		// Past the sender's own bound.
		_, err := a.transport.WriteToAddress(append([]byte{wireUser}, most+"y"...),
			memberlist.Address{Name: b.id.String()})
		must(t, err)
		time.Sleep(10 * time.Second)

		if len(b.heard(most+"y")) != 0 || b.count(errMessage.Error()) != 1 {
			t.Errorf("16 KiB + 1 of a hostile sender: delivered %d, refused %d", len(b.heard(most+"y")),
				b.count(errMessage.Error()))
		}

		if err := a.request(b, pathPackets, make([]byte, maxPackets+1)); !errors.Is(err, errNotAnswered) ||
			b.count(errTooLarge.Error()) != 1 {
			t.Errorf("packets over the bound were not refused: %v", err)
		}

		// A push/pull of no members, followed by heads.
		state := []byte("\x06\x83\xa4Join\xc2\xa5Nodes\x00\xacUserStateLen\x00")
		body := appendPart(appendPart(nil, state), bytes.Repeat([]byte{'h'}, MaxHead+1))

		if err := a.request(b, pathStream, body); !errors.Is(err, errNotAnswered) || b.count(errTooLarge.Error()) != 2 {
			t.Errorf("a head over the bound was not refused: %v", err)
		}
	})
}

// A peer that names many addresses at which nobody answers keeps none of another's from
// being tried.
//
// Requirement: MESH-015
func TestSeedsThatHangKeepNoneFromBeingTried(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		far := p.start(pondNode("beta.test", "1"), nil, nil)

		var seeds []string
		for i := range 60 {
			seeds = append(seeds, fmt.Sprintf("10.9.0.%d:7946", i))
		}

		var hanging, most atomic.Int64

		near := p.start(pondNode("alpha.test", "1"), append(seeds, far.address), func(c *Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "10.9.") {
					most.Store(max(most.Load(), hanging.Add(1)))

					<-ctx.Done()
					hanging.Add(-1)

					return nil, ctx.Err()
				}

				return dial(ctx, address)
			}
		})
		within(t, 5*time.Minute, "the seed behind them is found", func() bool { return len(near.alive()) == 2 })

		if n := most.Load(); n != joinsAtOnce {
			t.Errorf("%d seeds were tried at once", n)
		}
	})
}

// A seed is tried until it leads to a member, at a pace that slows down, as long as it is among the first seeds that
// are named. One that is named again is tried at once.
//
// Requirement: MESH-015
func TestSeedsAreTriedAtAPace(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		far := p.start(pondNode("beta.test", "1"), nil, nil)

		var (
			mu    sync.Mutex
			seeds []string
			tries = map[string]int{}
		)

		near := p.start(pondNode("alpha.test", "1"), nil, func(c *Config) {
			c.Seeds = func() []string {
				mu.Lock()
				defer mu.Unlock()

				return seeds
			}
			dial := c.Dial
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				mu.Lock()
				tries[address]++
				mu.Unlock()

				return dial(ctx, address)
			}
		})

		// tried names the seeds for a time, and returns how often each address was tried.
		tried := func(long time.Duration, named ...string) map[string]int {
			mu.Lock()
			seeds = named
			clear(tries)
			mu.Unlock()
			time.Sleep(long)
			mu.Lock()
			defer mu.Unlock()

			return maps.Clone(tries)
		}

		const away = "10.9.0.1:7946"

		all := tried(10*time.Minute, near.address, away, far.address, away)
		if n := all[away]; n < 40 || n > 90 || all[near.address] > 0 || all[far.address] == 0 || all[far.address] > 3 ||
			len(near.alive()) != 2 {
			t.Errorf("of 600 rounds, tried are %v; members are %v", all, near.alive())
		}

		if all := tried(10 * time.Minute); all[away] > 0 {
			t.Errorf("a seed that isn't named was tried %d times", all[away])
		}

		if all := tried(2*round, away); all[away] == 0 {
			t.Error("a seed that is named again isn't tried at once")
		}

		// A member that is lost is found again at its seed.
		_ = far.Close()

		within(t, 3*time.Minute, "the member is lost", func() bool { return len(near.alive()) == 1 })

		if all := tried(10*time.Minute, far.address); all[far.address] < 20 {
			t.Errorf("the seed of a lost member was tried %d times", all[far.address])
		}

		var many []string
		for i := range maxSeeds + 1 {
			many = append(many, fmt.Sprintf("10.9.%d.%d:7946", 1+i/200, i%200))
		}

		if all := tried(10*time.Minute, many...); all[many[maxSeeds-1]] == 0 || all[many[maxSeeds]] > 0 {
			t.Errorf("of too many seeds the last two were tried %d and %d times", all[many[maxSeeds-1]],
				all[many[maxSeeds]])
		}
	})
}

// Heads travel with push/pull, and whose they are is proved.
//
// Requirement: MESH-006
func TestHeadsComeFromWhoSentThem(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		p.populate(1, "alpha.test", "beta.test", "gamma.test")
		within(t, 3*time.Minute, "everybody has everybody's heads", func() bool {
			for _, f := range p.all {
				f.mu.Lock()
				n := len(f.heads)
				f.mu.Unlock()

				if n != len(p.all)-1 {
					return false
				}
			}

			return true
		})

		for _, f := range p.all {
			for from, heads := range f.heads {
				if len(heads) != 1 || heads[0] != "head of "+from.String() {
					t.Errorf("%s sent %q", from, heads)
				}
			}
		}
	})
}

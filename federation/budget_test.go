package federation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A node that isn't the origin's is asked as long as it brings enough, however long that
// takes; and for no longer than another once it doesn't, or the origin itself is heard.
//
// Requirement: MESH-014, MESH-026
func TestAStintLastsAsLongAsEnoughIsBrought(t *testing.T) {
	const every, quick = 5 * time.Second, 20 * time.Minute
	for name, c := range map[string]struct {
		rate        int           // digests a second, for as long as it is quick
		back        time.Duration // when the origin is heard, which is away until then
		least, most time.Duration
	}{
		"nothing comes":         {0, quick, relayTime, relayTime},
		"it is quick":           {2 * relayRate, quick, quick, quick + relayTime},
		"it is slow":            {relayRate / 2, quick, relayTime, 3 * relayTime},
		"the origin comes back": {2 * relayRate, time.Minute, time.Minute, time.Minute + relayTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := replica.New(alpha, index.NewView(beta).Origin(alpha),
					replica.Deps{Cfg: &replica.Config{Domain: beta}})
				s, began := newFetchBudget(t.Context(), o), time.Now()
				defer s.end()

				for at := every; at <= quick && s.asking.Err() == nil; at += every {
					if time.Sleep(every); at == c.back {
						o.Contacts.HeadFrom(protocol.Node{Domain: alpha, Base: "https://alpha.test-1.test"})
					}

					if s.asking.Err() == nil {
						s.bring(c.rate * int(every/time.Second))
					}
				}

				<-s.asking.Done()

				if took := time.Since(began); took < c.least || took > c.most+every || !s.over() {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// What is in hand when a fetchBudget ends is taken all the same.
func TestNothingIsLostWhenAStintEnds(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("first", 600)
		b.pull() // and with it the keys

		const each = 10
		b.origin.registers(3*each, 6000)

		o, dial := b.beta.origins.Get(alpha), b.beta.Mesh.client.HTTP
		b.beta.Mesh.client.HTTP = func(td spiffeid.TrustDomain) *http.Client { // small pages are as good
			return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				r.URL.RawQuery += fmt.Sprint("&limit=", each)
				return dial(td).Do(r)
			})}
		}
		s, pages := newFetchBudget(t.Context(), o), 0
		defer s.end()

		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				if pages++; pages == 3 {
					s.stop(errBudgetSpent)
				}
			}

			return body
		}
		if err := b.beta.follower.pullAll(t.Context(), o, &o.Mesh, b.giver(), s); !errors.Is(err,
			context.Canceled) || !s.over() {
			t.Errorf("it ended by %v", err)
		}

		if n := len(b.beta.shown(alpha)); n != 1+2*each || s.brought != 2*each {
			t.Errorf("%d are shown, and %d came in two pages of %d", n, s.brought, each)
		}
	})
}

// A node that was stopped while it took from a sibling what its origin had announced
// goes on there, the origin being away: with what is for the mesh and what is for its
// domain alone.
//
// Requirement: MESH-014
func TestAnOriginThatIsAwayIsFollowedThroughSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.origin.register("first", 86400)
		alone := p.origin.register("alone", 86400)
		p.origin.grant(alone, directory.Only(beta), true)
		p.origin.export(alone, false)
		o := p.b2.origins.Get(alpha)
		must(t, p.b2.receiver.askHead(t.Context(), o, protocol.Node{Domain: alpha, Base: p.a.base}))

		for _, f := range o.Feeds() {
			must(t, p.b2.pulls(o, f, protocol.Node{Domain: alpha, Base: p.a.base}))
		}

		p.origin.register("second", 86400)
		more := p.origin.register("more", 86400)
		p.origin.grant(more, directory.Only(beta), true)
		p.origin.export(more, false)
		stops := []func(){p.a.run(t), p.b.run(t)}
		eventually(t, 10*time.Second, "one node has all", func() bool { return len(p.b.shown(alpha)) == 4 })
		p.cut(func(from, to string) bool { return from != to && (from == p.a.base || to == p.a.base) })
		stops = append(stops, p.b2.run(t))
		eventually(t, time.Minute, "the other has it by that", func() bool { return len(p.b2.shown(alpha)) == 4 })

		for _, stop := range stops {
			stop()
		}
	})
}

// A sibling that takes a question and never answers keeps no record from a node that
// others have.
//
// Requirement: MESH-026
func TestASilentSiblingKeepsNoRecordBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		failed := 0
		p.world.tap = func(to string, r *http.Request, body []byte) []byte {
			switch {
			case r.URL.Path != protocol.PathRecords:
			case to == p.b2.base:
				<-r.Context().Done()
			case failed == 0: // so that it isn't had with its page
				failed++
				return nil
			}

			return body
		}
		p.origin.register("agent", 86400)
		stops := []func(){p.a.run(t), p.b.run(t)}
		eventually(t, 2*time.Minute, "the record is here", func() bool { return len(p.b.shown(alpha)) == 1 })

		if failed == 0 {
			t.Error("it came with its page, which shows nothing")
		}

		for _, stop := range stops {
			stop()
		}
	})
}

package federation

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// ruled opens a bench whose import rules can be set.
func ruled(t *testing.T) (b *bench, set func(directory.PeerRules)) {
	p := active(alpha, 1)
	b = newPeering(t, &p)

	return b, func(r directory.PeerRules) {
		p.Import = r
		b.beta.reconcile()
		b.beta.judgeAll(t.Context())
	}
}

func (b *bench) agents() map[string]bool {
	names := map[string]bool{}
	for _, e := range b.beta.shown(alpha) {
		names[e.Agent] = true
	}

	return names
}

// Rules for what comes in filter what is held, at once and without a pull, and
// across a restart.
func TestImportRulesFilterWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, set := ruled(t)
		for _, name := range []string{"weather-1", "weather-2", "stocks"} {
			b.origin.register(name, 600)
		}

		set(directory.PeerRules{Names: []string{"weather-*"}})
		b.pull()

		if got := b.agents(); len(got) != 2 || got["stocks"] {
			t.Errorf("shown: %v", got)
		}

		b.world.cut = func(string, string) bool { return true }
		for _, c := range []struct {
			rules directory.PeerRules
			want  int
		}{
			{directory.PeerRules{Names: []string{"stocks"}}, 1},
			{directory.PeerRules{Names: []string{"weather-1", "s*"}}, 2},
			{directory.PeerRules{Kinds: []directory.Kind{directory.KindMCP}}, 0},
			{directory.PeerRules{Capabilities: []string{"wo*"}}, 3},
			{directory.PeerRules{Capabilities: []string{"play"}}, 0},
			{directory.PeerRules{}, 3},
		} {
			set(c.rules)

			if got := b.agents(); len(got) != c.want {
				t.Errorf("%+v: %v", c.rules, got)
			}

			b.beta.reopen(t)

			if got := b.agents(); len(got) != c.want {
				t.Errorf("%+v after a restart: %v", c.rules, got)
			}
		}
	})
}

// Quotas bound the contents of the disk, whatever comes first; what is replaced or ends makes
// room, and so does a higher quota.
func TestQuotasBoundWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, set := ruled(t)
		o := func() *replica.Origin { return b.beta.origins.Get(alpha) }
		held := func() replica.PeerStatus { return b.beta.Peers()[0] }
		set(directory.PeerRules{Records: 3})

		var rids []directory.RID
		for i := range 5 {
			rids = append(rids, b.origin.register(fmt.Sprint("agent-", i), 6000))
			b.pull()
		}

		if s := held(); s.Records != 3 || s.OverQuota != 2 || s.Received[protocol.CodeQuota] != 2 ||
			len(b.agents()) != 3 || s.Pending != 0 || s.Entries != 5 {
			t.Errorf("%+v", s)
		}

		b.origin.replace(rids[0], 6000) // takes the place of its own
		b.origin.replace(rids[4], 6000) // takes nobody's
		b.pull()

		if s := held(); s.Records != 3 || s.OverQuota != 2 || !b.agents()["agent-0"] || b.agents()["agent-4"] {
			t.Errorf("after a replacement: %+v", s)
		}

		b.origin.remove(rids[1])
		b.pull()
		must(t, o().Readmit())
		b.beta.follower.backlog(t.Context(), o())

		if s := held(); s.Records != 3 || s.OverQuota != 1 || len(b.agents()) != 3 {
			t.Errorf("after a removal: %+v", s)
		}

		bytes := held().Bytes
		b.beta.reopen(t)

		if s := held(); s.Records != 3 || s.OverQuota != 1 || s.Bytes != bytes {
			t.Errorf("after a restart: %+v and not %d bytes", s, bytes)
		}

		set(directory.PeerRules{Bytes: bytes + 10}) // no room for a fourth
		must(t, o().Readmit())
		b.beta.follower.backlog(t.Context(), o())

		if s := held(); s.Records != 3 || s.OverQuota != 1 || s.Bytes > bytes+10 {
			t.Errorf("by bytes: %+v", s)
		}

		set(directory.PeerRules{})
		must(t, o().Readmit())
		b.beta.follower.backlog(t.Context(), o())

		if s := held(); s.Records != 4 || s.OverQuota != 0 || len(b.agents()) != 4 {
			t.Errorf("without: %+v", s)
		}
	})
}

// What has expired, and what is still to come, counts against quotas as what is there does,
// whichever of two records comes first.
func TestQuotasCountWhatExpiresAndWhatIsToCome(t *testing.T) {
	for _, names := range [][]string{{"short", "long"}, {"long", "short"}} {
		synctest.Test(t, func(t *testing.T) {
			b, set := ruled(t)
			held := func() replica.PeerStatus { return b.beta.Peers()[0] }
			set(directory.PeerRules{Records: 1})
			withheld := true
			b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
				if r.URL.Path == protocol.PathRecords && withheld {
					return nil
				}

				return body
			}

			for _, name := range names {
				withheld = true

				b.origin.register(name, map[string]uint32{"short": 60, "long": 6000}[name])
				b.pull()

				withheld = false

				time.Sleep(replica.MissingPause)
				b.beta.follower.backlog(t.Context(), b.beta.origins.Get(alpha))
			}

			if s := held(); s.Records != 1 || s.OverQuota != 1 || s.Pending != 0 || !b.agents()[names[0]] {
				t.Fatalf("of two that came later, %s first: %+v", names[0], s)
			}

			time.Sleep(3 * time.Minute)
			_, err := b.beta.origins.Get(alpha).Sweep(sweepLimit)
			must(t, err)
			must(t, b.beta.origins.Get(alpha).Readmit())
			b.beta.follower.backlog(t.Context(), b.beta.origins.Get(alpha))

			if s := held(); s.Records != 1 || s.OverQuota != 0 || s.Entries != 1 || !b.agents()["long"] {
				t.Errorf("once the other has expired, of which %s came first: %+v", names[0], s)
			}
		})
	}
}

// What replaces a record that is held takes its place, also where it comes later.
func TestAReplacementThatComesLaterHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, set := ruled(t)
		set(directory.PeerRules{Records: 1})
		rid := b.origin.register("agent", 600)
		b.pull()
		withheld := true
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathRecords && withheld {
				return nil
			}

			return body
		}
		b.origin.replace(rid, 600)
		b.pull()
		withheld = false
		b.beta.follower.backlog(t.Context(), b.beta.origins.Get(alpha))

		if s := b.beta.Peers()[0]; s.Records != 1 || s.OverQuota != 0 || !b.agents()["agent"] {
			t.Errorf("%+v", s)
		}
	})
}

// A cap clips deadlines, and lengthens none, whatever an origin says of when they
// were set.
//
// Requirement: MESH-007
func TestALifetimeCapClips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, set := ruled(t)
		long := b.origin.register("long", 6000)
		short := b.origin.register("short", 60)
		b.pull()
		was := b.beta.shown(alpha)
		set(directory.PeerRules{MaxLifetime: 100})

		is := b.beta.shown(alpha)
		if is[short].ExpiresAt != was[short].ExpiresAt || is[long].ExpiresAt != was[long].ExpiresAt-5900*1000 {
			t.Errorf("short %d and %d, long %d and %d", was[short].ExpiresAt, is[short].ExpiresAt, was[long].ExpiresAt,
				is[long].ExpiresAt)
		}

		set(directory.PeerRules{})

		if b.beta.shown(alpha)[long].ExpiresAt != was[long].ExpiresAt {
			t.Error("it stays clipped")
		}
	})
}

// What a silent origin told is served to its deadlines, with its age shown; where the
// peering hides it, it is gone within a second of the bound and back with the origin.
//
// Requirement: MESH-008
func TestWhatASilentOriginToldIsServedOrHidden(t *testing.T) {
	for _, hide := range []bool{false, true} {
		t.Run(fmt.Sprint(hide), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, set := ruled(t)
				if hide {
					set(directory.PeerRules{OnStale: directory.OnStaleHide})
				}

				rid := b.origin.register("agent", 3600)
				defer b.beta.run(t)()
				eventually(t, 10*time.Second, "it is shown", func() bool { return b.beta.shown(alpha)[rid] != nil })
				b.world.cutOff(func(string, string) bool { return true })
				age := b.beta.Peers()[0].HeadAge
				time.Sleep(replica.MaxHeadAge - age - time.Second)

				if b.beta.shown(alpha)[rid] == nil {
					t.Fatal("hidden before its time")
				}

				time.Sleep(2 * time.Second)

				s := b.beta.Peers()[0]
				if shown := b.beta.shown(alpha)[rid] != nil; shown == hide || s.Hidden != hide ||
					s.HeadAge < replica.MaxHeadAge || s.State != "unreachable" {
					t.Errorf("shown %v: %+v", shown, s)
				}

				b.world.cutOff(nil)
				eventually(t, 90*time.Second, "it is shown again", func() bool {
					return b.beta.shown(alpha)[rid] != nil
				})
				b.world.cutOff(func(string, string) bool { return true })
				time.Sleep(3600 * time.Second)

				if b.beta.shown(alpha)[rid] != nil {
					t.Error("served past its deadline")
				}
			})
		})
	}
}

// Rules that change while much is held are put into force in steps. Between two of
// them readers are answered and pages taken, and those are judged by the new rules.
func TestRulesChangeInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		b := newPeering(t, &p)

		const many = 4 * replica.JudgeBatch
		for i := range many {
			b.origin.register(fmt.Sprintf("weather-%d", i), 6000)
			b.origin.register(fmt.Sprintf("stocks-%d", i), 6000)
		}

		b.pull()
		o := b.beta.origins.Get(alpha)

		steps := func(rules directory.PeerRules, meanwhile string) (n int) {
			p.Import = rules
			b.beta.reconcile()

			for before := len(b.agents()); o.JudgeSome(); n++ {
				if n == 1 { // one step of several is done: nobody holds the origin
					if _, ok := o.Position(); !ok {
						t.Fatal("no position")
					}

					b.origin.register(meanwhile, 6000)
					b.pull()
					before = len(b.agents())
				}

				now := len(b.agents())
				if d := now - before; d > replica.JudgeBatch || -d > replica.JudgeBatch {
					t.Fatalf("a step went from %d to %d", before, now)
				}

				before = now
			}

			return n
		}
		if n := steps(directory.PeerRules{Names: []string{"weather-*"}}, "stocks-late"); n < 2*many/replica.JudgeBatch {
			t.Errorf("in %d steps", n)
		}

		if got := b.agents(); len(got) != many || got["stocks-late"] || !got["weather-0"] {
			t.Errorf("%d are shown, the late one is %v", len(got), got["stocks-late"])
		}

		if n := steps(directory.PeerRules{Names: []string{"stocks-*", "weather-0"}},
			"stocks-later"); n < 2*many/replica.JudgeBatch {
			t.Errorf("in %d steps", n)
		}

		if got := b.agents(); len(got) != many+3 || !got["stocks-late"] || !got["stocks-later"] || !got["weather-0"] {
			t.Errorf("%d are shown", len(got))
		}
	})
}

// Rules that change once more begin anew.
func TestRulesChangeWhileTheyAreApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)

		b := newPeering(t, &p)
		b.origin.registers(2*replica.JudgeBatch, 6000)

		b.pull()

		o := b.beta.origins.Get(alpha)
		for _, names := range [][]string{{"none"}, {"agent-1*"}, nil} {
			p.Import.Names = names
			b.beta.reconcile()
			o.JudgeSome()
		}

		b.beta.judgeAll(t.Context())

		if n := len(b.agents()); n != 2*replica.JudgeBatch {
			t.Errorf("%d are shown, and all are admitted", n)
		}

		if o.JudgeSome() {
			t.Error("something is left to do")
		}
	})
}

package federation

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/federation/protocol"
)

// Where memory ends, the records of the largest peer leave the index, and those of others stay. The
// peer's status says so. They are shown again once there is room for them, and after a restart at
// once only if there is.
//
// Requirement: FORM-009
func TestTheLargestPeerIsShedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		used, log := .50, &logBuffer{}
		large, small := newModel(alpha, beta), newModel(gamma, beta)
		alphas := w.open(t, t.TempDir(), 1, large, active(beta, 1))
		gammas := w.open(t, t.TempDir(), 1, small, active(beta, 1))
		betas := w.open(t, t.TempDir(), 1, newModel(beta, alpha), active(alpha, 1), active(gamma, 1))

		for origin, at := range map[*model]*site{large: alphas, small: gammas} {
			origin.listKeys(nil, at.keys)
		}

		betas.cfg.MemoryInUse = func() float64 { return used }
		betas.cfg.MemoryLimit = 1 << 20
		betas.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		betas.reopen(t)

		for i := range 20 {
			large.registerAs("/agent/ada", "large-"+string(rune('a'+i)), 1000)
		}

		small.registerAs("/agent/ada", "small", 10)

		pull := func() {
			for _, at := range []*site{alphas, gammas} {
				from := betas.origins.Get(at.self.domain)
				giver := protocol.Node{Domain: at.self.domain, Base: at.base}
				must(t, betas.pulls(from, &from.Mesh, giver))
			}
		}

		expect := func(when string, ofLarge, ofSmall int, shed bool) {
			t.Helper()
			betas.judgeAll(t.Context())

			if a, b := len(betas.shown(alpha)), len(betas.shown(gamma)); a != ofLarge || b != ofSmall {
				t.Errorf("%s: %d and %d are shown, want %d and %d", when, a, b, ofLarge, ofSmall)
			}

			if got := betas.Peers()[0].Shed; got != shed || slices.Contains(betas.Shed(), alpha.Name()) != shed {
				t.Errorf("%s: the status says shed %v, and shed are %v", when, got, betas.Shed())
			}
		}

		pull()
		expect("with room", 20, 1, false)

		used = shedFrom
		betas.shedLargest(used)
		expect("without room", 0, 1, true)

		if log.count("short of memory") != 1 {
			t.Errorf("the log says %s", log.String())
		}

		large.registerAs("/agent/ada", "late", 10)
		pull()
		expect("after another page", 0, 1, true)

		if betas.showSmallest(showBelow - .001) {
			t.Error("it is shown again where there is no room for it")
		}

		if !betas.showSmallest(.10) {
			t.Error("it isn't shown again where there is room for it")
		}

		expect("with room again", 21, 1, false)

		used = .95
		betas.reopen(t)
		expect("after a start without room", 0, 0, true)

		used = .10
		betas.showSmallest(used)
		betas.showSmallest(used)
		expect("after a start, with room", 21, 1, false)
	})
}

// The loop sheds and shows by itself.
func TestMemoryIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, short := newBench(t, nil), atomic.Bool{}
		short.Store(true)
		b.beta.cfg.MemoryInUse = func() float64 {
			if short.Load() {
				return .9
			}

			return .5
		}
		b.beta.cfg.MemoryLimit = 1 << 20
		b.beta.reopen(t)
		b.origin.register("one", 600)
		b.pull()

		short.Store(false)

		go b.beta.memory(t.Context())

		time.Sleep(2 * showEvery)

		if b.beta.Peers()[0].Shed {
			t.Error("a peer isn't shown again")
		}

		short.Store(true)

		time.Sleep(2 * memoryEvery)
		synctest.Wait()
		b.beta.judgeAll(t.Context())

		if !b.beta.Peers()[0].Shed {
			t.Error("no peer is shed")
		}
	})
}

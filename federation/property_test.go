package federation

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
)

var (
	seeds = flag.Int("seeds", 200, "how many seeds of the property test are run")
	steps = flag.Int("steps", 1500, "how many steps each has")
	first = flag.Uint64("seed", 1, "the first of them")
)

// TestRules runs the real gate, store and publisher against an origin that
// follows rules G2 to G5 and X1 to X3 and remembers all that it announced, with
// cuts, replays, mutants, expiries and restarts. The invariants are checked after
// every step.
//
// Requirement: MESH-005, MESH-007, MESH-009, MESH-010
func TestRules(t *testing.T) {
	// Little is kept of what is made, so a larger heap costs nothing and saves time.
	defer func(percent int) { t.Cleanup(func() { debug.SetGCPercent(percent) }) }(debug.SetGCPercent(400))
	n, length := *seeds, *steps
	if testing.Short() {
		n = min(n, 20)
	}
	var failed atomic.Bool // one trace is enough
	for seed := *first; seed < *first+uint64(n); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			if failed.Load() {
				t.Skip("another seed has failed")
			}
			defer func() {
				if t.Failed() {
					failed.Store(true)
				}
			}()
			synctest.Test(t, func(t *testing.T) { newTrial(t, seed).run(length) })
		})
	}
}

// A trial is one seed: alpha, and the nodes that follow it.
type trial struct {
	*testing.T
	rand      *rand.Rand
	world     *world
	origin    *model
	source    *site
	receivers []*receiver
	sent      []string // every page that was ever made
	trace     []string
}

type receiver struct {
	*site
	cut   bool
	mark  uint64
	level int64 // when it last had everything
}

func newTrial(t *testing.T, seed uint64) *trial {
	tr := &trial{T: t, rand: rand.New(rand.NewPCG(seed, 2)), world: newWorld()}
	tr.world.scheme = sums
	tr.origin = newModel(alpha, beta, gamma)
	b, g := newModel(beta), newModel(gamma)
	tr.source = tr.world.open(t, t.TempDir(), 1, tr.origin, active(beta, 1, 2), active(gamma, 1))
	tr.origin.listKeys(nil, tr.source.keys)
	for _, s := range []*site{
		tr.world.open(t, t.TempDir(), 1, b, active(alpha, 1), active(gamma, 1)),
		tr.world.open(t, t.TempDir(), 2, b, active(alpha, 1), active(gamma, 1)),
		tr.world.open(t, t.TempDir(), 1, g, active(alpha, 1), active(beta, 1)),
	} {
		tr.receivers = append(tr.receivers, &receiver{site: s})
	}
	tr.world.cut = func(from, to string) bool {
		return to == tr.source.base && slices.ContainsFunc(tr.receivers, func(r *receiver) bool { return r.base == from && r.cut })
	}
	return tr
}

func (tr *trial) run(length int) {
	for range length {
		tr.check(tr.step()...)
	}
	for _, r := range tr.receivers {
		r.cut = false
	}
	tr.sleep(61) // so that whatever was put off is due
	for _, r := range tr.receivers {
		tr.pull(r)
		tr.equal(r)
		tr.disk(r)
		tr.chain(r)
	}
	tr.check(tr.receivers...)
}

func (tr *trial) log(format string, args ...any) {
	tr.trace = append(tr.trace, fmt.Sprintf("%d rev %d: ", time.Now().Unix(), tr.origin.rev)+fmt.Sprintf(format, args...))
}

func (tr *trial) fail(format string, args ...any) {
	tr.Helper()
	tr.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(tr.trace[max(0, len(tr.trace)-60):], "\n"))
}

// sleep lets the origin's leader sweep once a second.
func (tr *trial) sleep(seconds int) {
	for range seconds {
		time.Sleep(time.Second)
		tr.origin.sweep()
	}
}

// step does something and returns whom that may concern.
func (tr *trial) step() []*receiver {
	r := tr.receivers[tr.rand.IntN(len(tr.receivers))]
	switch n := tr.rand.IntN(100); {
	case n < 30:
		tr.change()
		return tr.receivers
	case n < 45:
		seconds := 1 + tr.rand.IntN(8)
		if tr.rand.IntN(40) == 0 {
			seconds = 60 + tr.rand.IntN(200)
		}
		tr.log("sleep %d", seconds)
		tr.sleep(seconds)
		return tr.receivers
	case n < 60:
		if !r.cut {
			tr.log("%s pulls", r.base)
			tr.pull(r)
		}
	case n < 68:
		tr.part(r)
	case n < 76:
		tr.deliver(r, tr.gossiped())
	case n < 86:
		if len(tr.sent) > 0 {
			tr.log("%s gets a replay", r.base)
			tr.deliver(r, tr.sent[tr.rand.IntN(len(tr.sent))])
		}
	case n < 88:
		tr.mutant(r)
	case n < 91:
		r.cut = !r.cut
		tr.log("%s cut: %v", r.base, r.cut)
	case n < 93:
		tr.restart(r)
	case n < 95:
		tr.log("%s frees", r.base)
		if _, err := r.sweep(r.origin(alpha), 1+tr.rand.IntN(5)); err != nil {
			tr.fail("sweep: %v", err)
		}
	case n < 97:
		tr.log("%s asks for missing records", r.base)
		r.backlog(context.Background(), r.origin(alpha))
	default:
		tr.log("%s asks others", r.base)
		r.pullFromOthers(context.Background(), r.origin(alpha))
	}
	return []*receiver{r}
}

// change is one committed change at the origin.
func (tr *trial) change() {
	o := tr.origin
	rids := slices.SortedFunc(maps.Keys(o.regs), directory.RID.Compare)
	lifetime := uint32(60 + tr.rand.IntN(3)*tr.rand.IntN(150))
	if len(rids) < 3 || len(rids) < 14 && tr.rand.IntN(4) == 0 {
		tr.log("register %s for %d", o.register(fmt.Sprint("agent-", o.made), lifetime), lifetime)
		return
	}
	rid := rids[tr.rand.IntN(len(rids))]
	switch tr.rand.IntN(8) {
	case 0:
		tr.log("remove %s", rid)
		o.remove(rid)
	case 1:
		tr.log("replace %s for %d", rid, lifetime)
		o.replace(rid, lifetime)
	case 2:
		yes := tr.rand.IntN(3) > 0
		tr.log("export %s: %v", rid, yes)
		o.export(rid, yes)
	default:
		tr.log("refresh %s for %d", rid, lifetime)
		o.refresh(rid, lifetime)
	}
}

func (r *receiver) state() (mark uint64, wanted map[directory.RID]*want) {
	o := r.origin(alpha)
	if o.cur == nil {
		return 0, nil
	}
	return o.cur.state.Watermark, o.cur.wanted
}

// pull brings a receiver to the origin's tip.
func (tr *trial) pull(r *receiver) {
	tr.Helper()
	o, n := r.origin(alpha), node{alpha, tr.source.base}
	if err := r.pullAll(context.Background(), o, n); err != nil {
		tr.fail("pull: %v", err)
	}
	r.backlog(context.Background(), o)
	if mark, _ := r.state(); mark < tr.origin.tip {
		tr.fail("pulled to %d and the tip is %d", mark, tr.origin.tip)
	}
	r.level = time.Now().Unix()
}

// part pulls one page of a few digests, which is cut off below the tip.
func (tr *trial) part(r *receiver) {
	mark, _ := r.state()
	since := mark
	if tr.rand.IntN(3) == 0 && mark > 0 {
		since = tr.rand.Uint64N(mark + 1)
	}
	made, err := tr.source.publisher.page(directory.Mesh, since, 1+tr.rand.IntN(4))
	if err != nil {
		tr.fail("page: %v", err)
	}
	if made != nil {
		tr.log("%s gets a page (%d,%d] at %d", r.base, made.From, made.To, made.At)
		tr.deliver(r, made.text)
	}
}

// gossiped makes a page from just below the tip.
func (tr *trial) gossiped() string {
	from := uint64(0)
	if tip := tr.origin.tip; tip > 0 {
		from = tip - min(tip, 1+tr.rand.Uint64N(12))
	}
	made, err := (&tail{from: from}).page(tr.source.publisher)
	if err != nil {
		tr.fail("gossip: %v", err)
	}
	if made == nil {
		return ""
	}
	tr.log("gossip (%d,%d] at %d", made.From, made.To, made.At)
	return made.text
}

// deliver hands a page over, whatever way it came.
func (tr *trial) deliver(r *receiver, text string) {
	if text == "" {
		return
	}
	tr.sent = append(tr.sent, text)
	before, _ := r.state()
	p, code, err := r.take(context.Background(), sender{domain: alpha}, node{alpha, tr.source.base}, text)
	if err != nil {
		if codeOf(err) == CodeKeyUnknown && r.cut {
			return // the key document could not be asked for
		}
		tr.fail("%s refused a good page: %v", r.base, err)
	}
	after, _ := r.state()
	tr.log("%s: %s, watermark %d to %d", r.base, code, before, after)
	want := CodeApplied
	switch {
	case p.To <= before:
		want = CodeOld
	case p.From > before:
		want = CodeGap
	}
	if code != want || want == CodeApplied && after != p.To || want != CodeApplied && after != before {
		tr.fail("%s: page (%d,%d] at watermark %d: %s, then %d", r.base, p.From, p.To, before, code, after)
	}
}

// mutant hands over a page with one byte changed.
func (tr *trial) mutant(r *receiver) {
	if len(tr.sent) == 0 {
		return
	}
	b := []byte(tr.sent[tr.rand.IntN(len(tr.sent))])
	b[tr.rand.IntN(len(b))] ^= byte(1 + tr.rand.IntN(255))
	before, _ := r.state()
	if _, code, err := r.take(context.Background(), sender{domain: alpha}, node{alpha, tr.source.base}, string(b)); err == nil {
		tr.fail("%s took a mutant: %s: %s", r.base, code, b)
	}
	if after, _ := r.state(); after != before {
		tr.fail("a mutant moved %s", r.base)
	}
}

// restart closes a receiver and opens it again: all that it knows comes from disk.
func (tr *trial) restart(r *receiver) {
	tr.log("%s restarts", r.base)
	tr.disk(r)
	before := r.shown(alpha)
	r.reopen(tr)
	after := r.shown(alpha)
	if len(before) != len(after) {
		tr.fail("%s showed %d before its restart and %d after", r.base, len(before), len(after))
	}
	for rid, e := range before {
		if a := after[rid]; a == nil || a.Revision != e.Revision || a.ExpiresAt != e.ExpiresAt || *a.Received != *e.Received || a.Agent != e.Agent {
			tr.fail("%s: %s was %+v and is %+v", r.base, rid, e, a)
		}
	}
}

// disk holds what is on a receiver's disk against itself: one deadline an entry,
// and one record where it is held.
func (tr *trial) disk(r *receiver) {
	tr.Helper()
	o := r.origin(alpha)
	if o.cur == nil {
		return
	}
	err := r.store.read(o.cur.id, func(t *streamTx) error {
		records, entries := map[string]bool{}, uint64(0)
		err := t.entries.ForEach(func(k, v []byte) error {
			var h held
			if entries++; unmarshal(v, &h) != nil || t.due.Get(append(dueKey(h.Deadline, directory.RID{})[:8], k...)) == nil {
				tr.fail("%s: no deadline of %s", r.base, k)
			}
			if h.Record == recordHeld {
				records[string(h.name().bytes())] = true
			}
			return nil
		})
		if n, due := t.records.Stats().KeyN, t.due.Stats().KeyN; err != nil || n != len(records) || entries != t.state.Live || due != int(entries) {
			tr.fail("%s: %d entries (%d), %d deadlines, %d records for %d (%v)", r.base, entries, t.state.Live, due, n, len(records), err)
		}
		return nil
	})
	if err != nil {
		tr.fail("%s: %v", r.base, err)
	}
}

// chain follows a receiver's chain from 0 to its watermark.
func (tr *trial) chain(r *receiver) {
	tr.Helper()
	err := r.store.read(r.origin(alpha).cur.id, func(t *streamTx) error {
		for reached := uint64(0); reached < t.state.Watermark; {
			p, err := t.pageAfter(reached)
			if err != nil || p == nil || p.From > reached {
				tr.fail("%s: the chain breaks at %d: %+v (%v)", r.base, reached, p, err)
			}
			payload, _, err := r.keys.Verify(alpha, directory.TypePage, p.JWS)
			page, err2 := directory.ParsePage(payload)
			if err != nil || err2 != nil {
				tr.fail("%s: the chain holds what doesn't verify: %v %v", r.base, err, err2)
			}
			reached = page.To
		}
		return nil
	})
	if err != nil {
		tr.fail("%s: %v", r.base, err)
	}
}

// check holds receivers against what the origin announced.
func (tr *trial) check(receivers ...*receiver) {
	tr.Helper()
	now := time.Now().Unix()
	for _, r := range receivers {
		mark, wanted := r.state()
		if mark < r.mark {
			tr.fail("%s: watermark fell from %d to %d", r.base, r.mark, mark)
		}
		r.mark = mark
		shown := r.shown(alpha)
		for rid, e := range shown {
			tr.checkShown(r, rid, e, mark, now)
		}
		for rid, ds := range tr.origin.history {
			last := ds[len(ds)-1]
			if _, pending := wanted[rid]; pending {
				continue
			}
			if e := shown[rid]; last.Revision <= mark && last.Live() && now < last.Deadline && (e == nil || e.Revision != last.Revision) {
				tr.fail("%s is at %d and lacks %+v", r.base, mark, last)
			}
			reg := tr.origin.regs[rid]
			if lag := now - r.level; reg != nil && reg.alive && reg.exported && now < reg.deadline && reg.late < r.level && lag < 15 && shown[rid] == nil {
				tr.fail("%s lags %d seconds and dropped %s early", r.base, lag, rid)
			}
		}
	}
}

// checkShown: what is shown was announced so, is not past that deadline, and what
// ended below the watermark never comes back.
func (tr *trial) checkShown(r *receiver, rid directory.RID, e *directory.Entry, mark uint64, now int64) {
	tr.Helper()
	ds := tr.origin.history[rid]
	i := slices.IndexFunc(ds, func(d directory.Digest) bool { return d.Revision == e.Revision })
	if i < 0 || !ds[i].Live() || ds[i].Revision > mark {
		tr.fail("%s at %d shows revision %d of %s, announced: %+v", r.base, mark, e.Revision, rid, ds)
	}
	if d := ds[i]; e.ExpiresAt != d.Deadline*1000 || e.Received.H != d.H || e.Received.M != d.M || now >= d.Deadline {
		tr.fail("%s shows %s until %d at %d; announced: %+v", r.base, rid, e.ExpiresAt/1000, now, d)
	}
	if last := ds[len(ds)-1]; last.Revision <= mark && last.Revision != e.Revision {
		tr.fail("%s is at %d and shows revision %d of %s, whose latest is %+v", r.base, mark, e.Revision, rid, last)
	}
}

// equal holds the view of a receiver that was healed against the origin's truth.
func (tr *trial) equal(r *receiver) {
	tr.Helper()
	shown := r.shown(alpha)
	for rid, reg := range tr.origin.regs {
		e, d := shown[rid], reg.announced
		if want := d.Live() && time.Now().Unix() < d.Deadline; (e != nil) != want || want && e.Revision != d.Revision {
			tr.fail("%s was healed and shows %+v; the origin announces %+v", r.base, e, d)
		}
		delete(shown, rid)
	}
	if len(shown) > 0 {
		tr.fail("%s was healed and shows %d that are no more", r.base, len(shown))
	}
}

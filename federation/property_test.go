package federation

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds of the property test are run (10, or 40 if tests run in full)")
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

	n, length := cmp.Or(*seeds, directorytest.Sample(40, 10)), *steps

	var failed atomic.Bool // one trace is enough
	t.Cleanup(func() { t.Logf("%d seeds of %d steps; one has failed: %t", n, length, failed.Load()) })

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
	receivers []*subscriber
	sent      []string // every page that was ever made
	trace     []string
}

type subscriber struct {
	*site
	cut   bool
	marks map[directory.Audience]uint64
	level int64 // when it last had everything
}

// own is the audience of a receiver's domain alone.
func (r *subscriber) own() directory.Audience { return directory.Only(r.self.domain) }

func (r *subscriber) audiences() [2]directory.Audience {
	return [2]directory.Audience{directory.Mesh, r.own()}
}

func (r *subscriber) feed(aud directory.Audience) *replica.Feed {
	return r.origins.Get(alpha).FeedOf(aud)
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
		tr.receivers = append(tr.receivers, &subscriber{site: s, marks: map[directory.Audience]uint64{}})
	}

	tr.world.cut = func(from, to string) bool {
		return to == tr.source.base && slices.ContainsFunc(tr.receivers, func(r *subscriber) bool {
			return r.base == from && r.cut
		})
	}
	tr.world.tap = tr.tap

	return tr
}

// tap holds every answer against what its receiver's domain may have.
func (tr *trial) tap(to string, r *http.Request, body []byte) []byte {
	from := spiffeid.RequireFromString(r.Header.Get(callerHeader)).TrustDomain()
	switch r.URL.Path {
	case protocol.PathPages:
		parts, err := protocol.SplitJWS(string(body))
		if err != nil {
			return body // a refusal, or nothing
		}

		if p, err := signed.ParsePage(parts.Payload); err != nil || p.Issuer == alpha && p.Audience != directory.Mesh &&
			p.Audience != directory.Only(from) {
			tr.fail("%s gave %s a page for %v (%v)", to, from, p.Audience, err)
		}
	case protocol.PathRecords:
		for line := range bytes.Lines(body) {
			var l protocol.RecordLine
			if json.Unmarshal(line, &l) != nil || l.Record == "" {
				continue
			}

			if meant := tr.origin.meant[protocol.RecordName{H: l.H, M: l.M}]; meant != nil && !meant[directory.Mesh] &&
				!meant[directory.Only(from)] {
				tr.fail("%s gave %s a record for %v", to, from, meant)
			}
		}
	}

	return body
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

		for _, aud := range r.audiences() {
			tr.disk(r, aud)
			tr.chain(r, aud)
		}
	}

	tr.check(tr.receivers...)
}

func (tr *trial) log(format string, args ...any) {
	tr.trace = append(tr.trace, fmt.Sprintf("%d rev %d: ", time.Now().Unix(), tr.origin.rev)+fmt.Sprintf(format,
		args...))
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
func (tr *trial) step() []*subscriber {
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

		if _, err := r.origins.Get(alpha).Sweep(1 + tr.rand.IntN(5)); err != nil {
			tr.fail("sweep: %v", err)
		}
	case n < 97:
		tr.log("%s asks for missing records", r.base)
		r.follower.backlog(context.Background(), r.origins.Get(alpha))
	default:
		tr.log("%s asks others", r.base)
		r.follower.pullFromOthers(context.Background(), r.origins.Get(alpha), &r.origins.Get(alpha).Mesh)
	}

	return []*subscriber{r}
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
	switch tr.rand.IntN(10) {
	case 8, 9:
		aud := directory.Only([]spiffeid.TrustDomain{beta, gamma}[tr.rand.IntN(2)])
		yes := tr.rand.IntN(3) > 0
		members := [][]string{nil, required}[tr.rand.IntN(2)]
		tr.log("grant %s to %v: %v %v", rid, aud, yes, members)
		o.grant(rid, aud, yes, members...)
	case 7:
		members := [][]string{nil, required}[tr.rand.IntN(2)]
		tr.log("grant %s to the mesh: %v", rid, members)
		o.grant(rid, directory.Mesh, true, members...)
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

func (r *subscriber) state(aud directory.Audience) (mark uint64, wanted iter.Seq[directory.RID]) {
	f := r.feed(aud)
	if f.Cur == nil {
		return 0, new(replica.MissingRecords).All()
	}

	return f.Cur.State.Watermark, f.Cur.Missing.All()
}

// pull brings a receiver to the origin's tip.
func (tr *trial) pull(r *subscriber) {
	tr.Helper()
	o := r.origins.Get(alpha)

	n := protocol.Node{Domain: alpha, Base: tr.source.base}
	for _, aud := range r.audiences() {
		if err := r.pulls(o, r.feed(aud), n); err != nil {
			tr.fail("pull: %v", err)
		}
	}

	r.follower.backlog(context.Background(), o)

	for _, aud := range r.audiences() {
		if mark, _ := r.state(aud); mark < tr.origin.tips[aud] {
			tr.fail("pulled %v to %d and the tip is %d", aud, mark, tr.origin.tips[aud])
		}
	}

	r.level = time.Now().Unix()
}

// part pulls one page of a few digests, which is cut off below the tip.
func (tr *trial) part(r *subscriber) {
	aud := r.audiences()[tr.rand.IntN(2)]
	mark, _ := r.state(aud)

	since := mark
	if tr.rand.IntN(3) == 0 && mark > 0 {
		since = tr.rand.Uint64N(mark + 1)
	}

	made, err := tr.source.publisher.Page(aud, since, 1+tr.rand.IntN(4), tr.rand.IntN(2) == 0)
	if err != nil {
		tr.fail("page: %v", err)
	}

	if made != nil {
		tr.log("%s gets a page of %v (%d,%d] at %d", r.base, aud, made.From, made.To, made.At)
		tr.deliver(r, made.Text)
	}
}

// gossiped makes a page from just below the tip.
func (tr *trial) gossiped() string {
	from := uint64(0)
	if tip := tr.origin.tip; tip > 0 {
		from = tip - min(tip, 1+tr.rand.Uint64N(12))
	}

	made, err := tr.source.publisher.GossipPage(&publish.GossipCursor{From: from})
	if err != nil {
		tr.fail("gossip: %v", err)
	}

	if made == nil {
		return ""
	}

	tr.log("gossip (%d,%d] at %d", made.From, made.To, made.At)

	return made.Text
}

// deliver hands a page over, whatever way it came.
func (tr *trial) deliver(r *subscriber, text string) {
	if text == "" {
		return
	}

	tr.sent = append(tr.sent, text)
	parts, _ := protocol.SplitJWS(text)

	page, _ := signed.ParsePage(parts.Payload)
	if aud := page.Audience; aud != directory.Mesh && aud != r.own() {
		if _, _, err := r.receiver.take(context.Background(), replica.Sender{Domain: alpha},
			protocol.Node{Domain: alpha, Base: tr.source.base},
			text); protocol.CodeOf(err) != protocol.CodeOriginUnknown {
			tr.fail("%s took a page for %v: %v", r.base, aud, err)
		}

		return
	}

	before, _ := r.state(page.Audience)

	p, code, err := r.receiver.take(context.Background(), replica.Sender{Domain: alpha},
		protocol.Node{Domain: alpha, Base: tr.source.base}, text)
	if err != nil {
		if protocol.CodeOf(err) == protocol.CodeKeyUnknown && r.cut {
			return // the key document could not be asked for
		}

		tr.fail("%s refused a good page: %v", r.base, err)
	}

	after, _ := r.state(page.Audience)
	tr.log("%s: %s, watermark %d to %d", r.base, code, before, after)

	want := protocol.CodeApplied
	switch {
	case p.To <= before:
		want = protocol.CodeOld
	case p.From > before:
		want = protocol.CodeGap
	}

	if code != want || want == protocol.CodeApplied && after != p.To ||
		want != protocol.CodeApplied && after != before {
		tr.fail("%s: page (%d,%d] at watermark %d: %s, then %d", r.base, p.From, p.To, before, code, after)
	}
}

// mutant hands over a page with one byte changed.
func (tr *trial) mutant(r *subscriber) {
	if len(tr.sent) == 0 {
		return
	}

	b := []byte(tr.sent[tr.rand.IntN(len(tr.sent))])
	b[tr.rand.IntN(len(b))] ^= byte(1 + tr.rand.IntN(255))

	before := tr.marks(r)
	if _, code, err := r.receiver.take(context.Background(), replica.Sender{Domain: alpha},
		protocol.Node{Domain: alpha, Base: tr.source.base}, string(b)); err == nil {
		tr.fail("%s took a mutant: %s: %s", r.base, code, b)
	}

	if tr.marks(r) != before {
		tr.fail("a mutant moved %s", r.base)
	}
}

func (tr *trial) marks(r *subscriber) (marks [2]uint64) {
	for i, aud := range r.audiences() {
		marks[i], _ = r.state(aud)
	}

	return marks
}

// restart closes a receiver and opens it again: all that it knows comes from disk.
func (tr *trial) restart(r *subscriber) {
	tr.log("%s restarts", r.base)

	for _, aud := range r.audiences() {
		tr.disk(r, aud)
	}

	before := r.shown(alpha)
	r.reopen(tr)

	after := r.shown(alpha)
	if len(before) != len(after) {
		tr.fail("%s showed %d before its restart and %d after", r.base, len(before), len(after))
	}

	for rid, e := range before {
		if a := after[rid]; a == nil || a.Revision != e.Revision || a.ExpiresAt != e.ExpiresAt ||
			*a.Received != *e.Received || a.Agent != e.Agent {
			tr.fail("%s: %s was %+v and is %+v", r.base, rid, e, a)
		}
	}
}

package federation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/publish"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"pgregory.net/rapid"
)

// A bailiff is a Court that notes whom a node accuses.
type bailiff struct{ accused [][]string }

func (c *bailiff) Accuse(_ spiffeid.TrustDomain, pages, keys []string) ([]byte, error) {
	c.accused = append(c.accused, append(slices.Clone(pages), keys...))
	return nil, errors.New("noted")
}

func (c *bailiff) Judge([]byte, bool) (evidence.Conviction, error) {
	return evidence.Conviction{}, errors.New("nobody")
}
func (c *bailiff) Freeze(context.Context, spiffeid.TrustDomain) error { return nil }

// An indifferent node accuses nobody.
type indifferent struct{ bailiff }

func (indifferent) Accuse(spiffeid.TrustDomain, []string, []string) ([]byte, error) {
	return nil, errors.New("not taken")
}

// A laggard is a member of the origin's domain that has applied no more than upTo.
type laggard struct {
	*model
	upTo uint64
}

func (l laggard) Position() directory.Position {
	p := l.model.Position()
	p.Revision = min(p.Revision, l.upTo)

	return p
}

func (l laggard) Digests(aud directory.Audience, since uint64, limit int) (ds []signed.Digest, to, at uint64) {
	at = l.Position().Revision
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, history := range l.historyOf(aud) {
		i := slices.IndexFunc(history, func(d signed.Digest) bool { return d.Revision > at })
		if i < 0 {
			i = len(history)
		}

		if i > 0 && history[i-1].Revision > since {
			ds = append(ds, history[i-1])
		}
	}

	slices.SortFunc(ds, func(a, b signed.Digest) int { return int(a.Revision) - int(b.Revision) })

	if len(ds) > limit {
		return ds[:limit], ds[limit-1].Revision, at
	}

	return ds, at, at
}

// An odd origin is honest, and all that can happen to an honest one does: its nodes
// lag and restart, its clock steps, its keys change with overlap and without, it is
// restored into new epochs; and what it says arrives late, twice, in any order and
// through anybody.
type odd struct {
	*rapid.T
	t      *testing.T
	world  *world
	origin *model
	nodes  []*site    // of the origin
	rings  []*keyring // of its nodes, as the key document lists them
	to     []*site    // beta 1, beta 2, gamma 1
	courts []*bailiff
	sent   []string
	step   time.Duration // of the origin's clock
	keys   int
}

func newOdd(t *testing.T, rt *rapid.T) *odd {
	w := &odd{T: rt, t: t, world: newWorld(), origin: newModel(alpha, beta, gamma)}
	w.world.scheme = sums
	w.origin.start = func() time.Time { return time.Now().Add(w.step) }
	b, g := newModel(beta), newModel(gamma)

	w.nodes = []*site{
		w.world.open(t, t.TempDir(), 1, w.origin, active(beta, 1, 2), active(gamma, 1)),
		w.world.open(t, t.TempDir(), 2, w.origin, active(beta, 1, 2), active(gamma, 1)),
	}
	for _, n := range w.nodes {
		w.rings = append(w.rings, n.keys)
	}

	w.origin.listKeys(nil, w.rings...)

	w.to = []*site{
		w.world.open(t, t.TempDir(), 1, b, active(alpha, 1, 2), active(gamma, 1)),
		w.world.open(t, t.TempDir(), 2, b, active(alpha, 1, 2), active(gamma, 1)),
		w.world.open(t, t.TempDir(), 1, g, active(alpha, 1, 2), active(beta, 1, 2)),
	}
	for i, s := range w.to {
		court := new(bailiff)
		w.courts = append(w.courts, court)

		s.cfg.Verifier = court
		if i < 2 {
			s.cfg.Siblings = func() []string { return []string{w.to[1-i].base} }
		}

		s.reopen(t)
	}

	return w
}

func (w *odd) close() {
	for _, s := range append(w.nodes, w.to...) {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *odd) receiver() *site { return w.to[rapid.IntRange(0, len(w.to)-1).Draw(w.T, "receiver")] }

func (w *odd) giver() protocol.Node {
	return protocol.Node{Domain: alpha, Base: w.nodes[rapid.IntRange(0, 1).Draw(w.T, "node")].base}
}

func (w *odd) rid() (rid directory.RID, ok bool) {
	rids := slices.SortedFunc(maps.Keys(w.origin.regs), directory.RID.Compare)
	if len(rids) == 0 {
		return rid, false
	}

	return rapid.SampledFrom(rids).Draw(w.T, "rid"), true
}

// change is one committed change.
func (w *odd) change() {
	lifetime := rapid.Uint32Range(60, 300).Draw(w.T, "lifetime")
	rid, ok := w.rid()

	kind := rapid.IntRange(0, 5).Draw(w.T, "change")
	if !ok {
		kind = 0
	}

	switch kind {
	case 0:
		w.origin.register(fmt.Sprint("agent-", w.origin.made), lifetime)
	case 1:
		w.origin.replace(rid, lifetime)
	case 2:
		w.origin.refresh(rid, lifetime)
	case 3:
		w.origin.remove(rid)
	case 4:
		w.origin.export(rid, rapid.Bool().Draw(w.T, "export"))
	default:
		aud := directory.Only([]spiffeid.TrustDomain{beta, gamma}[rapid.IntRange(0, 1).Draw(w.T, "peer")])
		w.origin.grant(rid, aud, rapid.Bool().Draw(w.T, "grant"), required...)
	}
}

// rotate gives a node of the origin another key: the old one stays listed beside it,
// goes at once, or is revoked.
func (w *odd) rotate() {
	n := rapid.IntRange(0, 1).Draw(w.T, "of")
	w.keys++
	old := w.nodes[n].keys
	fresh := newKeyring(alpha, fmt.Sprint("key ", w.keys), w.origin)
	fresh.scheme = sums

	var revoked []string

	rings := []*keyring{w.nodes[1-n].keys, fresh}
	switch rapid.IntRange(0, 2).Draw(w.T, "how") {
	case 0:
		rings = append(rings, old)
	case 1:
		revoked = append(slices.Clone(w.origin.revoked), signed.KeyID(old.public()))
	}

	w.origin.listKeys(append(slices.Clone(w.origin.revoked), revoked...), rings...)
	w.nodes[n].keys.private = fresh.private
	w.nodes[n].publisher.Pages = map[publish.PageKey]publish.Page{}
}

// says has a node of the origin, which may lag, make a page.
func (w *odd) says() {
	n := w.nodes[rapid.IntRange(0, 1).Draw(w.T, "speaker")]
	n.publisher.Source = laggard{w.origin, w.origin.rev - min(w.origin.rev,
		uint64(rapid.IntRange(0, 6).Draw(w.T, "lag")))}
	defer func() { n.publisher.Source = w.origin }()
	n.publisher.Pages = map[publish.PageKey]publish.Page{}
	aud := rapid.SampledFrom([]directory.Audience{directory.Mesh, directory.Only(beta), directory.Only(gamma)}).
		Draw(w.T, "aud")
	since := uint64(rapid.IntRange(0, int(w.origin.rev)).Draw(w.T, "since"))

	made, err := n.publisher.Page(aud, since, rapid.IntRange(1, 20).Draw(w.T, "limit"), true)
	if err != nil {
		w.Fatal(err)
	}

	if made != nil && made.From < made.To {
		w.sent = append(w.sent, made.Text)
	}
}

// hears has somebody get anything that was ever said, from anybody.
func (w *odd) hears() {
	if len(w.sent) == 0 {
		return
	}

	r, text := w.receiver(), rapid.SampledFrom(w.sent).Draw(w.T, "said")
	from := rapid.SampledFrom([]spiffeid.TrustDomain{alpha, beta, gamma}).Draw(w.T, "from")
	// refused or not: not accused
	_, _, _ = r.receiver.take(context.Background(), replica.Sender{Domain: from}, w.giver(), text)
}

func (w *odd) pulls(r *site, n protocol.Node) {
	o := r.origins.Get(alpha)

	_ = r.receiver.askHead(context.Background(), o, n)
	for _, f := range o.Feeds() {
		_ = r.pulls(o, f, n)
	}

	r.follower.backlog(context.Background(), o)
}

// compares has somebody hold what it was told against what others were.
func (w *odd) compares(r *site) {
	o := r.origins.Get(alpha)
	for _, f := range o.Feeds() {
		r.follower.crossFeed(context.Background(), o, f, new(crossed))
	}
}

// happens is one odd event.
func (w *odd) happens() {
	switch rapid.IntRange(0, 15).Draw(w.T, "event") {
	case 0, 1, 2:
		w.change()
	case 3, 4:
		w.says()
	case 5, 6, 7:
		w.hears()
	case 8, 9:
		w.pulls(w.receiver(), w.giver())
	case 10:
		w.compares(w.receiver())
	case 11:
		for range rapid.IntRange(1, 100).Draw(w.T, "seconds") {
			time.Sleep(time.Second)
			w.origin.sweep()
		}
	case 12:
		w.rotate()
	case 13:
		w.receiver().reopen(w.t)
	case 14:
		switch rapid.IntRange(0, 5).Draw(w.T, "rare") {
		case 0:
			time.Sleep(time.Minute)
			w.origin.restore()
			w.origin.listKeys(w.origin.revoked, w.nodes[0].keys, w.nodes[1].keys)
		case 1:
			w.step = time.Duration(rapid.IntRange(-20, 50).Draw(w.T, "step")) * time.Second
		default:
			r := w.receiver()

			o := r.origins.Get(alpha)
			if st := o.Mesh.Cur; st != nil {
				_ = r.follower.repull(context.Background(), o, &o.Mesh, st, w.giver(), 1<<20)
			}
		}
	default:
		r := w.receiver()
		r.follower.pullFromOthers(context.Background(), r.origins.Get(alpha), &r.origins.Get(alpha).Mesh)
	}
}

func (w *odd) nobodyIsAccused() {
	for i, c := range w.courts {
		if len(c.accused) > 0 {
			w.Fatalf("%s accuses an honest origin: %q", w.to[i].base, c.accused)
		}
	}
}

// An undated test has no deadline by the real clock, which rapid would ask for within
// the bubble.
type undated struct{ *testing.T }

// No honest origin is accused, whatever odd happens to it; and the comparisons that
// find nothing in all this do find a lie among it.
//
// Requirement: MESH-019, MESH-022
func TestHonestyIsNeverAccused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(rt *rapid.T) {
			w := newOdd(t, rt)
			defer w.close()

			for range rapid.IntRange(10, 80).Draw(rt, "events") {
				w.happens()
				w.nobodyIsAccused()
			}

			for _, r := range w.to {
				w.pulls(r, protocol.Node{Domain: alpha, Base: w.nodes[0].base})
			}

			for _, r := range w.to {
				w.compares(r)
			}

			w.nobodyIsAccused()
			w.lies()
		})
	})
}

// lies tells the nodes of beta, and gamma, of a new registration with deadlines that
// differ.
func (w *odd) lies() {
	rid := w.origin.register("liar", 600)
	d, _ := w.origin.Current(rid, directory.Mesh)

	epoch, now := w.origin.epoch, time.Now().Unix()
	for i, r := range w.to {
		o := r.origins.Get(alpha)
		d.Deadline--
		page := &signed.Page{Issuer: alpha, Epoch: epoch, Audience: directory.Mesh,
			From: o.Since(&o.Mesh), To: d.Revision, At: d.Revision, IssuedAt: now,
			Digests: []signed.Digest{d}}

		text, err := w.nodes[0].keys.Sign(signed.TypePage, page.Payload())
		if err != nil {
			w.Fatal(err)
		}

		if _, code, err := r.receiver.take(context.Background(), replica.Sender{Domain: alpha},
			protocol.Node{Domain: alpha, Base: w.nodes[0].base}, text); err != nil || code != protocol.CodeApplied {
			w.Fatalf("%s is at %d of %d: %s %v", w.to[i].base, o.Since(&o.Mesh), d.Revision, code,
				err)
		}
	}

	for i, r := range w.to {
		w.compares(r)

		if len(w.courts[i].accused) == 0 {
			w.Fatalf("%s hasn't found the lie", r.base)
		}
	}
}

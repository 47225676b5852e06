package federation

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

// lines counts what is logged at warning or above.
type lines struct {
	slog.Handler
	n atomic.Int64
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn || r.Message == "refused a message" { // some refusals are no warning
		l.n.Add(1)
	}

	return nil
}

// bytes is all that is on a node's disk.
func (s *site) bytes(t *testing.T) [32]byte {
	t.Helper()

	h := sha256.New()
	if err := s.store.File().View(func(tx *bbolt.Tx) error { _, err := tx.WriteTo(h); return err }); err != nil {
		t.Fatal(err)
	}

	return [32]byte(h.Sum(nil))
}

// A bench is one origin with one node, and one receiver that has all of it.
type bench struct {
	*testing.T
	world  *world
	origin *model
	alpha  *site
	beta   *site
	log    *lines
}

func newBench(t *testing.T, change func(*Config)) *bench {
	b := &bench{T: t, world: newWorld(), origin: newModel(alpha, beta), log: &lines{}}
	b.alpha = b.world.open(t, t.TempDir(), 1, b.origin, active(beta, 1))
	b.beta = b.world.open(t, t.TempDir(), 1, newModel(beta, alpha), active(alpha, 1), active(gamma, 1))

	b.beta.cfg.Logger = slog.New(b.log)
	if change != nil {
		change(&b.beta.cfg)
	}

	b.beta.reopen(t)
	b.origin.listKeys(nil, b.alpha.keys)

	return b
}

// addGamma returns a node of a third domain, a peer of both, to which alpha's mesh registrations go.
func (b *bench) addGamma(t *testing.T) *site {
	t.Helper()

	g := b.world.open(t, t.TempDir(), 1, newModel(gamma), active(alpha, 1), active(beta, 1))
	b.alpha.reopenWith(t, active(beta, 1), active(gamma, 1))
	b.origin.mesh = append(b.origin.mesh, gamma)
	b.origin.listKeys(nil, b.alpha.keys)

	return g
}

// giver is the node that beta asks.
func (b *bench) giver() protocol.Node { return protocol.Node{Domain: alpha, Base: b.alpha.base} }

// pull brings beta to alpha's tip.
func (b *bench) pull() {
	b.Helper()

	must(b, b.beta.pulls(b.beta.origins.Get(alpha), &b.beta.origins.Get(alpha).Mesh, b.giver()))
}

// pulls brings a node to the tip of an origin's stream.
func (s *site) pulls(origin *replica.Origin, feed *replica.Feed, from protocol.Node) error {
	return s.follower.pullAll(context.Background(), origin, feed, from, unlimited(context.Background()))
}

// take has beta take a page of alpha that a node of another domain may have handed over.
func (b *bench) take(from spiffeid.TrustDomain, text string) (protocol.Code, error) {
	_, code, err := b.beta.receiver.take(b.Context(), replica.Sender{Domain: from}, b.giver(), text)
	return code, err
}

// applies has beta take a page of alpha, which must be applied.
func (b *bench) applies(text string) {
	b.Helper()

	if code, err := b.take(alpha, text); err != nil || code != protocol.CodeApplied {
		b.Fatal(code, err)
	}
}

// pushed has a node take a gossiped message.
func (s *site) pushed(from spiffeid.TrustDomain, kind byte, text string) {
	s.gossip.route(replica.Pushed{From: replica.Sender{Domain: from, Pushed: true}, Msg: string(kind) + text})
}

// newPeering opens a bench whose beta has that peering with alpha, as it is at the time.
func newPeering(t *testing.T, p *directory.Peering) *bench {
	return newBench(t, func(c *Config) { c.Peerings = func() []directory.Peering { return []directory.Peering{*p} } })
}

// page returns a page that alpha could have signed, changed.
func (b *bench) page(change func(*signed.Page)) []byte {
	ds, to, at := b.origin.Digests(directory.Mesh, 0, protocol.MaxDigests)

	p := &signed.Page{Issuer: alpha, Epoch: b.origin.epoch, Audience: directory.Mesh, From: 0, To: to, At: at,
		IssuedAt: time.Now().Unix(), Digests: ds}
	if change != nil {
		change(p)
	}

	return p.Payload()
}

// A refusal by any check changes nothing, and is counted and logged once. What is no JWS, header or payload show the
// vectors of the specification.
//
// Requirement: MESH-017
func TestEachCheckOfTheGateHasItsCode(t *testing.T) {
	type message struct {
		code protocol.Code
		text func(b *bench) string
	}
	signedWith := func(change func(*signed.Page)) func(b *bench) string {
		return func(b *bench) string {
			text, _ := b.alpha.keys.Sign(signed.TypePage, b.page(change))
			return text
		}
	}

	for name, m := range map[string]message{
		"too large":        {protocol.CodeFormat, signedWith(listing(6 * protocol.MaxDigests))},
		"too many digests": {protocol.CodeJSON, signedWith(listing(protocol.MaxDigests + 1))},
		"another typ": {protocol.CodeHeader, func(b *bench) string {
			ring := b.alpha.keys
			return sign(ring.private, headerOf(signed.TypeHead, signed.KeyID(ring.public())), b.page(nil))
		}},
		"no time": {protocol.CodeJSON, signedWith(func(p *signed.Page) {
			p.Digests[0].Deadline = 1 << 50
		})},
		"issued too early": {protocol.CodeJSON, signedWith(func(p *signed.Page) { p.IssuedAt = -1 })},
		"issued at no time": {protocol.CodeJSON, signedWith(func(p *signed.Page) {
			p.IssuedAt = protocol.MaxTime + 1
		})},
		"an epoch at no time": {protocol.CodeJSON, signedWith(func(p *signed.Page) { p.Epoch = protocol.MaxTime + 1 })},
		"a stranger": {protocol.CodeOriginUnknown, signedWith(func(p *signed.Page) {
			p.Issuer = nodeID(alpha, 1).TrustDomain()
			p.Audience = directory.Only(gamma)
		})},
		"another's issuer": {protocol.CodeKeyUnknown, signedWith(func(p *signed.Page) { p.Issuer = gamma })},
		"an unknown key": {protocol.CodeKeyUnknown, func(b *bench) string {
			s, _ := newKeyring(alpha, "else", b.origin).Sign(signed.TypePage, b.page(nil))
			return s
		}},
		"a revoked key": {protocol.CodeKeyRevoked, func(b *bench) string {
			s, _ := newKeyring(alpha, "lost", b.origin).Sign(signed.TypePage, b.page(nil))
			return s
		}},
		"another signature": {protocol.CodeSignature, func(b *bench) string { return flipped(signedWith(nil)(b)) }},
		"an epoch before":   {protocol.CodeEpochOld, signedWith(func(p *signed.Page) { p.Epoch-- })},
		"of the future":     {protocol.CodeFuture, signedWith(func(p *signed.Page) { p.IssuedAt += 600 })},
		"a future epoch":    {protocol.CodeFuture, signedWith(func(p *signed.Page) { p.Epoch += 1 << 20 })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				lost := newKeyring(alpha, "lost", b.origin)
				b.origin.listKeys([]string{signed.KeyID(lost.public())}, b.alpha.keys, lost)
				b.origin.register("one", 600)
				b.origin.register("two", 600)
				b.pull()
				refuse(b, m.code, m.text(b))
				refuse(b, m.code, m.text(b)) // and again: nothing was learnt from it
			})
		})
	}
}

// An origin announces at a pace, by whatever pages: what it announced counts, and what
// announces nothing is taken all the same.
//
// Requirement: MESH-017
func TestAnOriginAnnouncesAtAPace(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		must(t, b.beta.receiver.refreshKeys(t.Context(), b.beta.origins.Get(alpha), b.giver()))
		take := func() protocol.Code {
			made, err := b.alpha.publisher.Page(directory.Mesh,
				b.beta.origins.Get(alpha).Since(&b.beta.origins.Get(alpha).Mesh), 10, false)
			must(t, err)

			code, err := b.take(alpha, made.Text)
			if err != nil {
				return protocol.CodeOf(err)
			}

			return code
		}
		announced := b.beta.origins.Get(alpha).Announced
		announced.AllowN(time.Now(), announced.Burst()-2)
		b.origin.register("one", 600)
		b.origin.register("two", 600)

		if code := take(); code != protocol.CodeApplied {
			t.Fatalf("within its rate: %s", code)
		}

		b.origin.register("three", 600)

		if code := take(); code != protocol.CodeRate {
			t.Fatalf("beyond its rate: %s", code)
		}

		must(t, b.beta.receiver.askHead(t.Context(), b.beta.origins.Get(alpha), b.giver()))
		time.Sleep(time.Second)

		if code := take(); code != protocol.CodeApplied || len(b.beta.shown(alpha)) != 3 {
			t.Errorf("a second later: %s", code)
		}
	})
}

// listing makes a page list its first digest so many times.
func listing(n int) func(*signed.Page) {
	return func(p *signed.Page) {
		p.Digests = slices.Repeat(p.Digests[:1], n)
		for i := range p.Digests {
			p.Digests[i].Revision = uint64(i + 1)
		}

		p.To, p.At = uint64(n), uint64(n)
	}
}

// What is for one peer alone comes by that peer's own asking: who pushes it may have it
// from anywhere, and what is gossiped is passed on. Of an origin that is frozen nothing
// is taken, whoever has asked for it before.
//
// Requirement: MESH-003, MESH-017
func TestWhatWasNotAskedForIsRefused(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("one", 600)
		b.origin.grant(rid, directory.Only(beta), true)
		made, err := b.alpha.publisher.Page(directory.Only(beta), 0, 10, false)
		must(t, err)

		code := func(from replica.Sender) protocol.Code {
			_, _, err := b.beta.receiver.take(t.Context(), from, b.giver(), made.Text)
			return protocol.CodeOf(err)
		}
		if c := code(replica.Sender{Domain: alpha, Pushed: true}); c != protocol.CodeOriginUnknown {
			t.Errorf("a private page that is pushed: %q", c)
		}

		o := b.beta.origins.Get(alpha)
		o.SetConvicted(true)

		if c := code(replica.Sender{Domain: alpha}); c != protocol.CodeOriginUnknown {
			t.Errorf("a page of an origin that is frozen: %q", c)
		}

		o.SetConvicted(false)

		if c := code(replica.Sender{Domain: alpha}); c != "" || len(b.beta.shown(alpha)) != 1 {
			t.Errorf("a page that was asked for: %q", c)
		}
	})
}

// An origin that repeats itself isn't where it was then: an older head, from whoever is
// behind, takes no newer one's place.
//
// Requirement: MESH-005
func TestAnOlderHeadIsIgnored(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		head := func() string {
			b.origin.register(fmt.Sprint("agent-", b.origin.rev), 600)
			text, err := b.alpha.publisher.Head()
			must(t, err)

			return text
		}

		older, newer := head(), head()
		for _, text := range []string{newer, older} {
			must(t, b.beta.receiver.takeHead(t.Context(), replica.Sender{Domain: alpha}, b.giver(), text))
		}

		if o := b.beta.origins.Get(alpha); o.NewestHead() != newer ||
			b.beta.refusals.ByOrigin.Of(alpha)[protocol.CodeOld] != 1 {
			t.Errorf("the older head is held; %v", b.beta.refusals.ByOrigin.Of(alpha))
		}
	})
}

// A record says of itself what its page says of it. The name alone doesn't: an origin
// may name another domain's statement, or one of its own about something else.
//
// Requirement: MESH-004
func TestARecordIsOfWhatItsPageSays(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.origin
		rid, other := o.register("one", 600), o.register("other", 600)
		r := o.regs[rid]
		good := r.announced
		record := &store.Record{Payload: r.payload, Disclosures: r.texts}
		ended := *r.change
		ended.Op = signed.OpEnd
		payload, err := signed.Statement(signed.StatementFormat, &ended, nil)
		must(t, err)
		dated := func(issued, since int64) *store.Record {
			c := *r.change
			c.IssuedAt, c.Since = issued, since
			payload, err := signed.Statement(signed.StatementFormat, &c, c.Disclosures())
			must(t, err)

			return &store.Record{Payload: payload, Disclosures: r.texts}
		}

		changed := func(f func(*signed.Digest)) signed.Digest {
			d := good
			f(&d)

			return d
		}
		for name, c := range map[string]struct {
			origin spiffeid.TrustDomain
			epoch  uint64
			digest signed.Digest
			record *store.Record
			want   error
		}{
			"the same":         {alpha, o.epoch, good, record, nil},
			"another domain's": {gamma, o.epoch, good, record, replica.ErrRecord},
			"another epoch's":  {alpha, o.epoch + 1, good, record, replica.ErrRecord},
			"another's": {alpha, o.epoch, changed(func(d *signed.Digest) {
				d.RID = other
			}), record, replica.ErrRecord},
			"a later one": {alpha, o.epoch, changed(func(d *signed.Digest) {
				d.Revision = r.change.Revision - 1
			}), record, replica.ErrRecord},
			"an end":            {alpha, o.epoch, good, &store.Record{Payload: payload}, replica.ErrRecord},
			"issued at no time": {alpha, o.epoch, good, dated(protocol.MaxTime+1, 0), protocol.ErrTime},
			"since no time":     {alpha, o.epoch, good, dated(0, protocol.MaxTime+1), protocol.ErrTime},
		} {
			if errors.Is(c.want, protocol.ErrTime) {
				c.digest.H = directory.HashOf(c.record.Payload)
			}

			if e, err := b.beta.records.OpenEntry(contain.Record, c.origin, c.epoch, c.digest, c.record,
				kinds.Project); !errors.Is(err, c.want) || (e == nil) != (err != nil) {
				t.Errorf("%s: %v, %v", name, e, err)
			}
		}
	})
}

// refuse hands beta a message that must change nothing but its code's counter.
func refuse(b *bench, code protocol.Code, text string) {
	b.Helper()
	time.Sleep(time.Second) // a line a second and code
	disk := b.beta.bytes(b.T)
	shown := len(b.beta.shown(alpha))
	logged := b.log.n.Load()

	counts := &b.beta.refusals.BySender
	counted := counts.Of(alpha)[code]
	got, err := b.take(alpha, text)

	var r *protocol.Refusal
	if !errors.As(err, &r) || r.Code != code || got != "" {
		b.Fatalf("%q %v, and not %s: %s", got, err, code, text)
	}

	if d := b.beta.bytes(b.T); d != disk || len(b.beta.shown(alpha)) != shown {
		b.Fatalf("%s changed something", code)
	}

	if n := counts.Of(alpha)[code] - counted; n != 1 || b.log.n.Load() != logged+1 {
		b.Fatalf("%s was counted %d times and written down %d times", code, n, b.log.n.Load()-logged)
	}
}

// A head and a page that come before the peering with their origin is known here are refused for
// that alone, and not as if one were the other.
//
// Requirement: MESH-003, FORM-001
func TestAnEarlyMessageIsRefusedAsOfAnUnknownOrigin(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("one", 600)

		head, err := b.alpha.publisher.Head()
		must(t, err)

		page, err := b.alpha.keys.Sign(signed.TypePage, b.page(nil))
		must(t, err)

		o := b.beta.origins.Get(alpha)
		o.SetConvicted(true) // like an origin without an active peering, it accepts nothing

		for i, message := range []string{
			string([]byte{protocol.GossipHead}) + head, string([]byte{protocol.GossipPage}) + page, "x" + head,
		} {
			b.beta.gossip.route(replica.Pushed{From: replica.Sender{Domain: alpha, Pushed: true}, Msg: message})

			counts := b.beta.refusals.BySender.Of(alpha)
			if len(counts) != 1 || counts[protocol.CodeOriginUnknown] != uint64(i+1) {
				t.Errorf("after message %q: %v", message[0], counts)
			}
		}
	})
}

// flipped changes the middle of the signature.
func flipped(text string) string {
	i, c := len(text)-40, byte('A')
	if text[i] == c {
		c = 'B'
	}

	return text[:i] + string(c) + text[i+1:]
}

// Requirement: MESH-017, MESH-006
func TestASenderThatPushesTooMuchIsNotHeard(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("one", 600)
		large, _ := b.alpha.keys.Sign(signed.TypePage, b.page(listing(200)))
		b.beta.pushed(gamma, protocol.GossipPage, large)

		if b.beta.refusals.BySender.Of(gamma)[protocol.CodeFormat] != 1 ||
			len(b.beta.origins.Get(alpha).Mailbox.Queue) != 0 {
			t.Fatalf("a message over the bound: %v", b.beta.refusals.BySender.Of(gamma))
		}

		text := string(b.page(nil)) // no JWS: only that it is looked at matters

		refused := func(n int, from spiffeid.TrustDomain) uint64 {
			before := b.beta.refusals.BySender.Of(from)[protocol.CodeRate]
			for range n {
				b.beta.pushed(from, protocol.GossipPage, text)
			}

			return b.beta.refusals.BySender.Of(from)[protocol.CodeRate] - before
		}
		if refused(senderBurst, gamma) != 0 {
			t.Fatal("refused within its rate")
		}

		if refused(1, gamma) != 1 {
			t.Fatal("taken beyond its rate")
		}

		if refused(1, alpha) != 0 {
			t.Fatal("another sender pays for it")
		}

		time.Sleep(time.Second)

		if refused(1, gamma) != 0 {
			t.Fatal("not heard again when it is quiet")
		}
	})
}

// A page that was heard, or behind a gap, is no offence and changes nothing.
//
// Requirement: MESH-005, MESH-017
func TestOldPagesAreIgnoredAndGapsPulled(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(5, 600)

		late, err := b.alpha.publisher.Page(directory.Mesh, 3, 1, true)
		must(t, err)

		code, err := b.take(alpha, late.Text)
		if err != nil || code != protocol.CodeGap || len(b.beta.shown(alpha)) != 0 {
			t.Fatalf("%s %v", code, err)
		}

		if p := b.beta.Peers()[0]; p.Domain != alpha || p.Received[protocol.CodeGap] != 1 {
			t.Fatalf("%+v", p)
		}

		b.pull()

		if len(b.beta.shown(alpha)) != 5 {
			t.Fatalf("%d shown", len(b.beta.shown(alpha)))
		}

		disk := b.beta.bytes(t)

		code, err = b.take(alpha, late.Text)
		if err != nil || code != protocol.CodeOld || b.beta.bytes(t) != disk ||
			b.beta.refusals.ByOrigin.Of(alpha)[protocol.CodeOld] != 1 {
			t.Fatalf("%s %v", code, err)
		}
	})
}

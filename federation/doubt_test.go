package federation

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// A thief has one of alpha's signing keys, and says what it likes.
type thief struct {
	*bench
	keys *keyring
}

func newThief(t *testing.T) *thief {
	b := newBench(t, nil)
	th := &thief{b, newKeyring(alpha, "thief", b.origin)}
	b.origin.listKeys(nil, b.alpha.keys, th.keys)

	return th
}

// says has beta take a page by the thief's key.
func (th *thief) says(change func(*signed.Page)) {
	th.Helper()

	text, _ := th.keys.Sign(signed.TypePage, th.page(func(p *signed.Page) {
		p.From = th.beta.origins.Get(alpha).Since(&th.beta.origins.Get(alpha).Mesh)
		p.Digests = nil
		change(p)
	}))
	th.applies(text)
}

// revoke has alpha revoke the key, and beta told so.
func (th *thief) revoke() {
	th.Helper()
	th.origin.listKeys([]string{signed.KeyID(th.keys.public())}, th.alpha.keys)
	must(th.T, th.beta.receiver.refreshKeys(th.Context(), th.beta.origins.Get(alpha), th.giver()))
}

// asAnnounced checks that beta shows what alpha announces, and holds nothing else.
func (th *thief) asAnnounced() {
	th.Helper()
	ds, _, _ := th.origin.Digests(directory.Mesh, 0, protocol.MaxDigests)

	shown, live := th.beta.shown(alpha), 0
	for _, d := range ds {
		if !d.Live() {
			continue
		}

		live++

		if e := shown[d.RID]; e == nil || e.ExpiresAt != d.Deadline*1000 {
			th.Errorf("%s is announced until %d, and shown as %v", d.RID, d.Deadline, e)
		}
	}

	if s := th.beta.Peers()[0]; len(shown) != live || s.Entries != uint64(live) {
		th.Errorf("%d are shown and %d held of %d", len(shown), s.Entries, live)
	}
}

// What a stolen key said is taken back where the key is revoked: agents that it ended or
// kept alive, those that it made up, and revisions that the domain would never reach.
// Nobody else's agents are gone meanwhile, and an old page brings nothing back.
//
// Requirement: TRUST-010, MESH-010
func TestWhatARevokedKeySaidIsTakenBack(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			th := newThief(t)

			rids := th.origin.registers(5, 3600)

			th.pull()
			honest, _ := th.alpha.keys.Sign(signed.TypePage, th.page(nil))
			ds, _, _ := th.origin.Digests(directory.Mesh, 0, protocol.MaxDigests)
			th.says(func(p *signed.Page) {
				longer, made := ds[1], ds[2]
				longer.Op = signed.OpRenew
				longer.Revision = p.At + 1
				longer.Deadline = protocol.MaxTime
				made.RID = ridOf(alpha, 999)
				made.Revision = p.At + 2
				made.H = directory.Hash{9}
				made.Deadline = protocol.MaxTime
				end := signed.Digest{RID: rids[0], Revision: p.At + 3, Op: signed.OpEnd, H: directory.Hash{1}}
				p.Digests = []signed.Digest{longer, made, end}
				p.To = math.MaxUint64
				p.At = math.MaxUint64
			})

			shown := th.beta.shown(alpha)
			if shown[rids[0]] != nil || shown[rids[1]].ExpiresAt != protocol.MaxTime*1000 || len(shown) != 4 {
				t.Fatal("the thief is not believed", shown)
			}

			th.origin.register("later", 3600)
			th.origin.remove(rids[4])

			th.revoke()

			if restarts {
				th.beta.reopen(t)
			}

			if code, err := th.take(gamma, honest); err != nil || code != protocol.CodeOld {
				t.Error("a page from before the revocation", code, err)
			}

			if n := len(th.beta.shown(alpha)); n != 4 {
				t.Errorf("%d are shown while the origin is asked", n)
			}

			th.pull()
			th.asAnnounced()
			th.origin.register("last", 3600)
			th.pull()
			th.asAnnounced()

			if code, err := th.take(gamma, honest); err != nil || code != protocol.CodeOld {
				t.Error("an old page after all", code, err)
			}
		})
	}
}

// A node that stops before it has pulled anew remembers which pages are from before the
// revocation, in both kinds of streams and until it is at the tip: none brings back what
// had ended.
//
// Requirement: TRUST-010, MESH-010
func TestAPullAnewOutlivesARestart(t *testing.T) {
	for _, beyond := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			th := newThief(t)
			gone := th.origin.register("gone", 3600)
			th.pull()
			before, _ := th.alpha.keys.Sign(signed.TypePage, th.page(nil))
			th.origin.remove(gone)

			th.origin.registers(3, 3600)

			th.pull()

			if beyond {
				time.Sleep(time.Minute)
				th.says(func(p *signed.Page) { p.From, p.Epoch, p.To, p.At = 0, uint64(time.Now().Unix()), 1, 1 })
			} else {
				th.says(func(p *signed.Page) { p.To, p.At = p.At+1, p.At+1 })
			}

			th.revoke()
			remembers := func(when string) {
				th.Helper()
				th.beta.reopen(t)

				if code, err := th.take(gamma, before); err != nil || code != protocol.CodeOld {
					t.Errorf("%s: a page from before the revocation: %v %v", when, code, err)
				}

				if th.beta.shown(alpha)[gone] != nil {
					t.Errorf("%s: what had ended is shown", when)
				}
			}
			remembers("before anything came")
			ds, to, at := th.origin.Digests(directory.Mesh, 0, 2)

			some, _ := th.alpha.keys.Sign(signed.TypePage, th.page(func(p *signed.Page) {
				p.Digests, p.To, p.At = ds, to, at
			}))
			th.applies(some)

			remembers("half way")
			th.pull()
			th.asAnnounced()
			th.beta.reopen(t)

			if o := th.beta.origins.Get(alpha); o.Mesh.Cur.RepullSince != 0 {
				t.Error("it is pulled anew for ever")
			}
		})
	}
}

// An epoch that only a stolen key began ends with it.
//
// Requirement: TRUST-010, MESH-019
func TestARevokedKeysEpochIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		for i := range 3 {
			th.origin.grant(th.origin.register(fmt.Sprint("agent-", i), 3600), directory.Only(beta), true)
		}

		o := th.beta.origins.Get(alpha)
		th.pull()
		th.beta.follower.pullPrivate(t.Context(), o)
		time.Sleep(time.Minute)
		h := signed.Head{Issuer: alpha, Epoch: uint64(time.Now().Unix()), At: math.MaxUint64,
			IssuedAt: time.Now().Unix()}
		head, _ := th.keys.Sign(signed.TypeHead, h.Payload())
		must(t, th.beta.receiver.takeHead(t.Context(), replica.Sender{Domain: alpha}, th.giver(), head))

		if n := len(th.beta.shown(alpha)); o.Mesh.Cur.Id.Epoch != h.Epoch {
			t.Fatalf("%d are shown of epoch %d", n, o.Mesh.Cur.Id.Epoch)
		}

		var before []string
		for _, epoch := range []uint64{th.origin.epoch - 1, th.origin.epoch} {
			text, _ := th.alpha.keys.Sign(signed.TypePage, th.page(func(p *signed.Page) { p.Epoch = epoch }))
			before = append(before, text)
		}

		th.revoke()

		for _, text := range before {
			code, err := th.take(gamma, text)
			if code != protocol.CodeOld && protocol.CodeOf(err) != protocol.CodeEpochOld {
				t.Error("a page from before the revocation", code, err)
			}
		}

		must(t, th.beta.receiver.askHead(t.Context(), o, th.giver()))
		th.pull()
		th.beta.follower.pullPrivate(t.Context(), o)

		if shown := th.beta.shown(alpha); len(shown) != 3 || o.Mesh.Cur.Id.Epoch != th.origin.epoch ||
			o.Private.Newest().Id.Epoch != th.origin.epoch {
			t.Errorf("%d are shown of epoch %d", len(shown), o.Mesh.Cur.Id.Epoch)
		}
	})
}

// What is pulled anew is passed on and compared like what was pulled at first, however far
// the stolen key said that the stream was.
//
// Requirement: TRUST-010, MESH-019
func TestWhatIsPulledAnewIsPassedOnAndCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		th.origin.register("agent", 3600)
		th.pull()
		o := th.beta.origins.Get(alpha)
		from := uint64(math.MaxUint64)
		compared := replica.Seen{}
		compares := func() {
			now := o.Seen(&o.Mesh)
			compared.Compare(now, func(since uint64) (uint64, bool) { from = since; return now.UpTo, true })
		}
		gossips := func(k *keyring, change func(*signed.Page)) {
			text, _ := k.Sign(signed.TypePage, th.page(change))
			th.beta.follower.open(t.Context(), o,
				replica.Pushed{From: replica.Sender{Domain: gamma, Pushed: true},
					Msg: string([]byte{protocol.GossipPage}) + text})
		}
		gossips(th.keys, func(p *signed.Page) { p.To, p.At = math.MaxUint64, math.MaxUint64 })

		wasPassedOn := func(to uint64) bool {
			return !o.Furthest(&replica.Page{Page: &signed.Page{Epoch: th.origin.epoch, To: to}})
		}

		if compares(); !wasPassedOn(math.MaxUint64) {
			t.Fatal("the thief is not believed")
		}

		th.revoke()
		th.pull()
		th.origin.register("later", 3600)
		gossips(th.alpha.keys, nil)

		if at := o.Since(&o.Mesh); !wasPassedOn(at) || wasPassedOn(at+1) {
			t.Errorf("the stream is at %d, and another page was passed on", at)
		}

		if compares(); from != 0 {
			t.Errorf("it is compared from %d on", from)
		}

		th.asAnnounced()
	})
}

// Who ended a domain's agents by a stolen key, and made up as many entries as a stream may have, keeps
// none of the domain's own out once the key is revoked.
//
// Requirement: TRUST-010
func TestWhatAThiefMadeUpKeepsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			records = 3
			most    = 2 * records // entries
		)

		th := newThief(t)

		th.beta.Mesh.replica.Records, th.beta.Mesh.replica.Entries = records, 1
		th.origin.registers(records, 3600)

		th.pull()
		ds, _, _ := th.origin.Digests(directory.Mesh, 0, protocol.MaxDigests)
		th.says(func(p *signed.Page) {
			for i, d := range ds {
				p.Digests = append(p.Digests, signed.Digest{RID: d.RID, Revision: p.At + uint64(i) + 1,
					Op: signed.OpEnd, H: directory.Hash{1}})
			}

			p.To, p.At = p.At+records, p.At+records
		})
		th.says(func(p *signed.Page) {
			at := p.From
			for i := range uint64(most) {
				p.Digests = append(p.Digests, signed.Digest{RID: ridOf(alpha, 900+at+i), Revision: at + i + 1,
					Op: signed.OpPut, H: directory.Hash{9}, Deadline: protocol.MaxTime})
			}

			p.To, p.At = at+most, at+most
		})
		th.revoke()
		th.pull()
		th.asAnnounced()
		th.origin.registers(most-records+1, 3600)
		th.pull()

		if s := th.beta.Peers()[0]; s.Entries != most {
			t.Errorf("%d entries are held, want %d: the room that was made for the domain's own stays", s.Entries, most)
		}
	})
}

// What a stolen key said is found in however long a chain, and what it began to say of
// another epoch is left nowhere.
//
// Requirement: TRUST-010
func TestWhatARevokedKeySaidIsFound(t *testing.T) {
	for _, epochs := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			th := newThief(t)
			for i := range store.DoubtBatch + 1 { // a page each
				th.origin.register(fmt.Sprint("agent-", i), 3600)
				th.pull()
			}

			o := th.beta.origins.Get(alpha)
			if epochs == 1 {
				th.says(func(p *signed.Page) { p.To, p.At = p.At+1, p.At+1 })
			} else {
				time.Sleep(time.Minute)

				text, _ := th.keys.Sign(signed.TypePage, th.page(func(p *signed.Page) {
					p.Epoch, p.At = p.Epoch+1, p.At+1
				}))
				th.applies(text)
			}

			if streams, _ := th.beta.onDiskOf(t); streams != epochs {
				t.Fatalf("%d streams", streams)
			}

			th.revoke()

			if streams, _ := th.beta.onDiskOf(t); streams != 1 || o.Since(&o.Mesh) != 0 {
				t.Errorf("%d streams are on disk, and it is at %d", streams, o.Since(&o.Mesh))
			}

			th.pull()
			th.asAnnounced()
		})
	}
}

// While the streams are pulled again there is no head, and one of an epoch that is over is not taken for it.
//
// Requirement: MESH-010
func TestAHeadOfAFormerEpochIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		th.origin.register("agent", 3600)
		th.pull()

		former := &signed.Head{Issuer: alpha, Epoch: th.origin.epoch, Tip: 1000, At: 1000, IssuedAt: time.Now().Unix()}
		text, _ := th.alpha.keys.Sign(signed.TypeHead, former.Payload())

		time.Sleep(time.Minute)
		th.origin.restore()
		th.origin.register("later", 3600)
		th.pull()
		th.says(func(p *signed.Page) { p.To, p.At = p.At+1, p.At+1 })
		th.revoke()

		origin := th.beta.origins.Get(alpha)
		if err := origin.AcceptHead(former, text); err != nil || origin.NewestHead() != "" {
			t.Errorf("the newest head is %q: %v", origin.NewestHead(), err)
		}
	})
}

// A key document that a thief numbered as high as can be, and by which all was to be
// pulled anew, keeps nothing out for longer than it is the newest.
//
// Requirement: TRUST-010
func TestAThiefsRevocationHoldsUpNothingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		th.origin.register("agent", 3600)
		th.pull()

		o := th.beta.origins.Get(alpha)
		for _, doc := range []*signed.KeyDocument{
			{Epoch: th.origin.epoch, Seq: math.MaxUint64, Revoked: []string{signed.KeyID(th.alpha.keys.public())}},
			{Epoch: th.origin.epoch, Seq: th.origin.seq, Revoked: []string{signed.KeyID(th.keys.public())}},
		} {
			must(t, o.Change(func() error { return o.RepullRevoked(doc) }))
		}

		th.pull()
		th.asAnnounced()
	})
}

// Who revokes key after key has its peers look for what they signed no oftener than they
// bear, and what was put off is seen to.
//
// Requirement: TRUST-010
func TestDoubtsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		th.origin.register("agent", 3600)
		th.pull()
		th.says(func(p *signed.Page) { p.To, p.At = p.At+1, p.At+1 })
		o := th.beta.origins.Get(alpha)

		var revoked []string
		for i := range replica.RepullBurst {
			revoked = append(revoked, signed.KeyID(newKeyring(alpha, fmt.Sprint(i), nil).public()))
			th.origin.listKeys(revoked, th.alpha.keys, th.keys)
			must(t, th.beta.receiver.refreshKeys(t.Context(), o, th.giver()))
		}

		th.revoke()

		if o.Since(&o.Mesh) == 0 {
			t.Error("it is looked through at once each time")
		}

		time.Sleep(replica.RepullEvery)

		if o.ResumeRepull(); o.Since(&o.Mesh) != 0 {
			t.Error("what was put off is not seen to")
		}

		th.pull()
		th.asAnnounced()
	})
}

// A revoked key by which nothing was said costs nobody a pull.
//
// Requirement: TRUST-010
func TestARevokedKeyThatSaidNothingCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThief(t)
		th.origin.register("agent", 3600)
		th.pull()
		was := th.beta.Peers()[0].Watermark
		th.revoke()

		if now := th.beta.Peers()[0].Watermark; now != was {
			t.Errorf("the watermark is %d and was %d", now, was)
		}

		th.asAnnounced()
	})
}

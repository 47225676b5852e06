package federation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// threeNodes is an origin of three nodes, which beta follows.
type threeNodes struct {
	*bench
	nodes     [3]*site
	contested []replica.Doubtful // as beta reported it
}

func newThreeNodes(t *testing.T) *threeNodes {
	b := &threeNodes{bench: newBench(t, nil)}

	b.nodes[0] = b.alpha
	for i := range 2 {
		b.nodes[i+1] = b.world.open(t, t.TempDir(), i+2, b.origin, active(beta, 1))
	}

	b.beta.cfg.Doubted = func(_ spiffeid.TrustDomain, node replica.Doubtful) { b.contested = append(b.contested, node) }
	b.beta.reopenWith(t, active(alpha, 1, 2, 3))
	b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys)

	return b
}

// inThreeNodes runs a test in virtual time, with an origin of three nodes and a domain that follows it.
func inThreeNodes(t *testing.T, test func(*testing.T, *threeNodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newThreeNodes(t)) })
}

// follows runs beta until the test ends, and waits until it shows what alpha has.
func (b *threeNodes) follows() {
	b.Helper()
	stop := b.beta.run(b.T)
	b.Cleanup(stop)
	eventually(b.T, 3*time.Minute, "in step", b.inStep)
}

// inStep reports whether beta holds what alpha announces and nothing else.
func (b *threeNodes) inStep() bool {
	ds, _, _ := b.origin.Digests(directory.Mesh, 0, protocol.MaxDigests)
	shown, live := b.beta.shown(alpha), 0

	for _, d := range ds {
		if !d.Live() {
			continue
		}

		live++

		if e := shown[d.RID]; e == nil || e.ExpiresAt != d.Deadline*1000 {
			return false
		}
	}

	status := b.beta.Peers()[0]

	return len(shown) == live && status.Entries == uint64(live) && status.LagRevisions == 0
}

// says has beta take a page by a node's key.
func (b *threeNodes) says(node *site, change func(*signed.Page)) {
	b.Helper()

	origin := b.beta.origins.Get(alpha)
	text, _ := node.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) {
		p.From = origin.Since(&origin.Mesh)
		p.Digests = nil
		change(p)
	}))

	b.applies(text)
}

// madeUp announces a registration that no node of alpha has made.
func madeUp(revision uint64) []signed.Digest {
	return []signed.Digest{{RID: ridOf(alpha, 999), Revision: revision, Op: signed.OpPut, H: directory.Hash{9},
		M: directory.Hash{8}, Deadline: time.Now().Unix() + 90_000, Lifetime: 90_000}}
}

// repeats has a node answer each request for a head or a page as a thief of its key chooses.
func (b *threeNodes) repeats(node *site, answer func(r *http.Request) string) {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()

	b.world.tap = func(to string, r *http.Request, body []byte) []byte {
		if to != node.base || r.URL.Path != protocol.PathHeads && r.URL.Path != protocol.PathPages {
			return body
		}

		return []byte(answer(r))
	}
}

// headAt returns a head of alpha by a node's key.
func (b *threeNodes) headAt(node *site, at directory.Position) string {
	text, _ := node.keys.Sign(signed.TypeHead, (&signed.Head{Issuer: alpha, Epoch: at.Epoch, Tip: at.Revision,
		At: at.Revision, Keys: directory.HashOf(b.origin.KeyDocument().Payload()),
		IssuedAt: time.Now().Unix()}).Payload())

	return text
}

// isHealed checks that beta is in step with alpha within a minute, and distrusts a node alone.
func (b *threeNodes) isHealed(from time.Time, node *site) {
	b.Helper()

	eventually(b.T, time.Minute-time.Since(from), "healed", b.inStep)

	if len(b.contested) != 1 || b.contested[0].Node != node.cfg.Node ||
		b.contested[0].Key != signed.KeyID(node.keys.public()) || b.contested[0].Distrusted.IsZero() {
		b.Errorf("distrusted are %+v", b.contested)
	}

	_, err := b.beta.follower.askNode(b.Context(), b.beta.origins.Get(alpha), replica.Unconfirmed{},
		protocol.Node{Domain: alpha, Base: node.base})
	if !errors.Is(err, replica.ErrDistrusted) {
		b.Errorf("what the distrusted node states: %v", err)
	}

	if listed := b.beta.Peers()[0].Doubtful; len(listed) != 1 || listed[0] != b.contested[0] {
		b.Errorf("the status lists %+v", listed)
	}
}

// isConfirmed waits until other nodes have confirmed all announcements: a poll of the private stream may just
// have brought another position.
func (b *threeNodes) isConfirmed() {
	b.Helper()

	eventually(b.T, time.Minute, "all is confirmed", func() bool {
		_, is, err := b.beta.origins.Get(alpha).Unconfirmed()
		return err == nil && !is
	})
}

// What a thief of one node's key says is contradicted by the other nodes: within a minute the peer
// follows these, and names the node.
//
// Requirement: SEC-019
func TestOneNodesKeyNeitherSilencesNorInvents(t *testing.T) {
	const far = 1 << 60

	for name, attack := range map[string]func(b *threeNodes, thief *site, rids []directory.RID){
		"an empty page up to 2^60": func(b *threeNodes, thief *site, _ []directory.RID) {
			b.says(thief, func(p *signed.Page) { p.To, p.At = far, far })
			b.origin.register("later", 3600)
		},
		"a head at 2^60": func(b *threeNodes, thief *site, _ []directory.RID) {
			b.repeats(thief, func(r *http.Request) string {
				return b.headAt(thief, directory.Position{Epoch: b.origin.epoch, Revision: far})
			})
			b.origin.register("later", 3600)
			eventually(b.T, 3*time.Minute, "the thief is believed", func() bool {
				return b.beta.Peers()[0].LagRevisions > far/2
			})
		},
		"a registration that was made up": func(b *threeNodes, thief *site, _ []directory.RID) {
			b.says(thief, func(p *signed.Page) {
				p.From, p.To, p.At = 0, p.At+1, p.At+1
				p.Digests = madeUp(2)
			})
			b.origin.register("later", 3600)
		},
		"an end of another's registration": func(b *threeNodes, thief *site, rids []directory.RID) {
			b.says(thief, func(p *signed.Page) {
				p.To, p.At = p.At+1, p.At+1
				p.Digests = []signed.Digest{{RID: rids[0], Revision: p.At, Op: signed.OpEnd, H: directory.Hash{1}}}
			})
			b.origin.register("later", 3600)
		},
		"an end of another's registration, twice": func(b *threeNodes, thief *site, rids []directory.RID) {
			for range 2 {
				b.says(thief, func(p *signed.Page) {
					p.To, p.At = p.From+1, p.From+1
					p.Digests = []signed.Digest{{RID: rids[0], Revision: p.At, Op: signed.OpEnd, H: directory.Hash{1}}}
				})
			}

			// The domain's own revisions at these places announce nothing, and so contradict nothing.
			for range 3 {
				b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys)
			}
		},
		"an end of what is confirmed, while the nodes are asked": func(b *threeNodes, thief *site,
			rids []directory.RID) {
			var open replica.Unconfirmed

			origin := b.beta.origins.Get(alpha)

			tries := 0
			eventually(b.T, time.Minute, "one node alone has announced it", func() (is bool) {
				// A page may be confirmed in the moment in which it comes, so others follow.
				if tries++; tries%100 == 1 {
					b.origin.register(fmt.Sprintf("later-%d", tries), 3600)
				}

				open, is, _ = origin.Unconfirmed()

				return is && open.Streams[0].Since < open.Streams[0].UpTo
			})
			b.says(thief, func(p *signed.Page) {
				p.From, p.To, p.At = 0, p.At+1, p.At+1
				p.Digests = []signed.Digest{{RID: rids[0], Revision: open.Streams[0].Since - 1, Op: signed.OpEnd,
					H: directory.Hash{1}}}
			})

			_, err := origin.Hear(open, []replica.Testimony{{Node: b.nodes[1].cfg.Node, At: b.origin.Position(),
				Claims: [2]*replica.Claims{{Since: open.Streams[0].Since, UpTo: open.Streams[0].UpTo}}}},
				true, time.Now())
			must(b.T, err)
			b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys)
		},
		"a change that is left out": func(b *threeNodes, thief *site, rids []directory.RID) {
			b.says(thief, func(p *signed.Page) { p.To, p.At = p.At+2, p.At+2 })
			b.origin.remove(rids[1])
			b.origin.register("later", 3600)
		},
		"a longer life": func(b *threeNodes, thief *site, rids []directory.RID) {
			b.says(thief, func(p *signed.Page) {
				p.To, p.At = p.At+1, p.At+1
				held := b.origin.regs[rids[0]].announced
				held.Revision, held.Op, held.Deadline = p.At, signed.OpRenew, protocol.MaxTime
				p.Digests = []signed.Digest{held}
			})
			b.origin.register("later", 3600)
		},
		"a registration for the peer alone": func(b *threeNodes, thief *site, _ []directory.RID) {
			b.says(thief, func(p *signed.Page) {
				p.Audience, p.From, p.To, p.At = directory.Only(beta), 0, p.At+1, p.At+1
				p.Digests = madeUp(2)
			})
			b.origin.register("later", 3600)
		},
		"a new epoch": func(b *threeNodes, thief *site, _ []directory.RID) {
			epoch := b.origin.epoch + 5
			b.repeats(thief, func(r *http.Request) string {
				if r.URL.Path == protocol.PathHeads {
					return b.headAt(thief, directory.Position{Epoch: epoch, Revision: 9})
				}

				text, _ := thief.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) {
					p.Epoch, p.From, p.To, p.At, p.Digests = epoch, 0, 9, 9, nil
				}))

				return text
			})
			eventually(b.T, 3*time.Minute, "the thief is believed", func() bool {
				return len(b.beta.shown(alpha)) == 0
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inThreeNodes(t, func(t *testing.T, b *threeNodes) {
				rids := b.origin.registers(5, 3600)

				b.follows()
				time.Sleep(time.Minute)

				attack(b, b.nodes[2], rids)
				b.isHealed(time.Now(), b.nodes[2])

				b.origin.register("last", 3600)
				eventually(t, 5*time.Second, "it is followed again", b.inStep)
			})
		})
	}
}

// issues has beta adopt a key document that a thief of a node's key signs.
func (b *threeNodes) issues(node *site, change func(*signed.KeyDocument)) {
	b.Helper()

	document := *b.origin.KeyDocument()
	document.Seq = 1 << 60
	change(&document)

	text, err := node.keys.Sign(signed.TypeKeys, document.Payload())
	must(b.T, err)
	must(b.T, b.beta.origins.Get(alpha).Adopt(text, true))
}

// A key document far ahead can't be succeeded by the honest domain until it ends. It is healed as a page far
// ahead is, whichever keys it lists and revokes, and what its node announced by it is taken back.
//
// Requirement: SEC-019
func TestAKeyDocumentFarAheadIsHealed(t *testing.T) {
	for name, change := range map[string]func(b *threeNodes, document *signed.KeyDocument){
		"all keys are listed": func(*threeNodes, *signed.KeyDocument) {},
		"the thief's key alone is listed": func(_ *threeNodes, document *signed.KeyDocument) {
			document.Keys = document.Keys[2:]
		},
		"the others' keys are revoked": func(_ *threeNodes, document *signed.KeyDocument) {
			document.Revoked = []string{document.Keys[0].KeyID(), document.Keys[1].KeyID()}
		},
		"the epoch is later": func(_ *threeNodes, document *signed.KeyDocument) {
			document.Epoch, document.Keys = document.Epoch+5, document.Keys[2:]
		},
		"no domain is exported to": func(_ *threeNodes, document *signed.KeyDocument) { document.Mesh = nil },
	} {
		t.Run(name, func(t *testing.T) {
			inThreeNodes(t, func(t *testing.T, b *threeNodes) {
				b.origin.registers(5, 3600)

				b.follows()
				time.Sleep(time.Minute)

				thief := b.nodes[2]
				from := time.Now()

				// Before the document, because not each of them lets a page be taken at once.
				b.says(thief, func(p *signed.Page) {
					p.To, p.At = p.At+1, p.At+1
					p.Digests = madeUp(p.At)
				})
				b.issues(thief, func(document *signed.KeyDocument) { change(b, document) })
				b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys)
				b.origin.register("later", 3600)
				b.isHealed(from, thief)

				// The thief issues another one, which is not taken.
				document := *b.origin.KeyDocument()
				document.Seq = 1 << 61
				text, err := thief.keys.Sign(signed.TypeKeys, document.Payload())
				must(t, err)

				if b.beta.origins.Get(alpha).Adopt(text, true) == nil {
					t.Error("a key document by a distrusted node is adopted")
				}

				// The domain's own next document is: it revokes the thief's key.
				b.origin.listKeys([]string{signed.KeyID(thief.keys.public())}, b.nodes[0].keys, b.nodes[1].keys)
				b.origin.register("last", 3600)
				eventually(t, 2*time.Minute, "it is followed again", func() bool {
					_, held, _ := b.beta.keys.Keys(alpha)

					return b.inStep() && replica.ParseKeys(held).Seq == b.origin.KeyDocument().Seq
				})
			})
		})
	}
}

// A key document that few nodes have reached yet is the newest all the same.
//
// Requirement: SEC-019
func TestANewKeyDocumentNeedsTimeToReachAllNodes(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("agent", 36000)
		b.follows()
		time.Sleep(time.Minute)

		b.issues(b.nodes[0], func(document *signed.KeyDocument) { document.Seq = b.origin.KeyDocument().Seq + 1 })
		time.Sleep(15 * time.Second)
		b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys)
		time.Sleep(5 * time.Minute)

		if len(b.contested) > 0 {
			t.Errorf("distrusted are %+v", b.contested)
		}
	})
}

// repeater is a second address that a thief of a node's key states: there it repeats other nodes' statements.
func (b *threeNodes) repeater(thief *site) *site {
	b.Helper()
	second := b.world.open(b.T, b.TempDir(), 4, b.origin, active(beta, 1))
	b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys, second.keys)
	b.beta.origins.Get(alpha).Contacts.State(thief.cfg.Node, second.base)
	time.Sleep(time.Minute)

	return second
}

// Former statements of a node that doesn't answer, which a thief repeats, contradict no other node, however recent
// they are.
//
// Requirement: SEC-019
func TestAStatementCountsFromItsOwnNodeAlone(t *testing.T) {
	for name, former := range map[string]func(b *threeNodes) map[string]string{
		"a head with pages": func(b *threeNodes) map[string]string {
			page, err := b.nodes[1].publisher.Page(directory.Mesh, 0, protocol.MaxDigests, false)
			must(b.T, err)

			return map[string]string{
				protocol.PathHeads: b.headAt(b.nodes[1], b.origin.Position()),
				protocol.PathPages: page.Text,
			}
		},
		"a head with an empty page": func(b *threeNodes) map[string]string {
			return map[string]string{
				protocol.PathHeads: b.headAt(b.nodes[1], b.origin.Position()), protocol.PathPages: "",
			}
		},
		"a key document with its head": func(b *threeNodes) map[string]string {
			document, err := b.nodes[1].keys.Sign(signed.TypeKeys, b.origin.KeyDocument().Payload())
			must(b.T, err)

			return map[string]string{
				protocol.PathHeads: b.headAt(b.nodes[1], b.origin.Position()), protocol.PathKeys: document,
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inThreeNodes(t, func(t *testing.T, b *threeNodes) {
				b.origin.register("agent", 36000)
				b.follows()

				thief, second := b.nodes[2], b.repeater(b.nodes[2])
				b.world.cutOff(func(_, to string) bool { return to == b.nodes[1].base })

				// The thief itself lags, and repeats a node that is away: two voices against the one that goes on.
				late, repeated := b.headAt(thief, b.origin.Position()), former(b)
				document, err := thief.keys.Sign(signed.TypeKeys, b.origin.KeyDocument().Payload())
				must(t, err)

				b.world.mu.Lock()
				b.world.tap = func(to string, r *http.Request, body []byte) []byte {
					text, is := repeated[r.URL.Path]

					switch {
					case to == second.base && is:
						return []byte(text)
					case to != thief.base:
						return body
					case r.URL.Path == protocol.PathHeads:
						return []byte(late)
					case r.URL.Path == protocol.PathKeys:
						return []byte(document)
					}

					return body
				}
				b.world.mu.Unlock()

				b.origin.register("later", 36000)
				b.issues(b.nodes[0], func(document *signed.KeyDocument) {
					document.Seq = b.origin.KeyDocument().Seq + 1
				})
				time.Sleep(90 * time.Second)

				if len(b.contested) > 0 {
					t.Errorf("distrusted are %+v", b.contested)
				}
			})
		})
	}
}

// The former key document and head of a node, which a thief repeats after the node's own answer, have no other node
// distrusted.
//
// Requirement: SEC-019
func TestAnotherNodesFormerStatementContradictsNothing(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("agent", 36000)
		b.follows()

		thief, second := b.nodes[2], b.repeater(b.nodes[2])
		former := b.origin.KeyDocument()
		says := func(node *site) map[string]string {
			document, err := node.keys.Sign(signed.TypeKeys, former.Payload())
			must(t, err)

			return map[string]string{
				protocol.PathKeys:  document,
				protocol.PathHeads: b.headAt(node, b.origin.Position()),
			}
		}
		formerly := map[string]map[string]string{thief.base: says(thief), second.base: says(b.nodes[1])}

		// At beta these answers come last.
		b.world.mu.Lock()
		b.world.tap = func(to string, r *http.Request, body []byte) []byte {
			if text := formerly[to][r.URL.Path]; text != "" {
				time.Sleep(2 * time.Second)
				return []byte(text)
			}

			return body
		}
		b.world.mu.Unlock()

		b.issues(b.nodes[0], func(document *signed.KeyDocument) { document.Seq = b.origin.Position().Revision + 1 })
		b.origin.listKeys(nil, b.nodes[0].keys, b.nodes[1].keys, b.nodes[2].keys, second.keys)
		time.Sleep(90 * time.Second)

		if len(b.contested) > 0 {
			t.Errorf("distrusted are %+v", b.contested)
		}
	})
}

// A node states by its own signature alone, for the part that its pages cover, and by the key document that its head
// names.
//
// Requirement: SEC-019
func TestWhatANodeStates(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("known", 36000)
		b.follows()
		b.isConfirmed()
		b.origin.register("agent", 36000)
		b.origin.register("another", 36000)

		var open replica.Unconfirmed

		origin, node := b.beta.origins.Get(alpha), b.nodes[1]
		eventually(t, time.Minute, "one node alone has announced it", func() (is bool) {
			open, is, _ = origin.Unconfirmed()
			return is && open.Streams[0].Since+1 < open.Streams[0].UpTo
		})

		since, upTo := open.Streams[0].Since, open.Streams[0].UpTo
		page := func(change func(*signed.Page)) string {
			text, err := node.keys.Sign(signed.TypePage, b.page(change))
			must(t, err)

			return text
		}
		late := b.headAt(node, directory.Position{Epoch: b.origin.epoch, Revision: since})

		foreign, err := node.keys.Sign(signed.TypeHead, (&signed.Head{Issuer: gamma, Epoch: b.origin.epoch, At: upTo,
			Tip: upTo, Keys: directory.HashOf(b.origin.KeyDocument().Payload()),
			IssuedAt: time.Now().Unix()}).Payload())
		must(t, err)

		former := *b.origin.KeyDocument()
		former.Seq--

		document, err := node.keys.Sign(signed.TypeKeys, former.Payload())
		must(t, err)

		for name, c := range map[string]struct {
			path, text string // of an answer that isn't the node's own
			empty      bool   // its page is
			elsewhere  bool   // as is the answer after the first
			upTo       uint64
			err, keys  error
		}{
			"all":           {upTo: upTo},
			"an older head": {path: protocol.PathHeads, text: late, empty: true, upTo: since},
			"a page behind a gap": {path: protocol.PathPages, err: errGap,
				text: page(func(p *signed.Page) { p.From, p.Digests = since+1, nil })},
			"a page before it": {path: protocol.PathPages, err: errGap,
				text: page(func(p *signed.Page) { p.From, p.To, p.Digests = 0, since, nil })},
			"a page of another epoch": {path: protocol.PathPages, err: errOrigin,
				text: page(func(p *signed.Page) { p.Epoch++ })},
			"another domain's head":     {path: protocol.PathHeads, text: foreign, err: errOrigin, keys: errOrigin},
			"a former key document":     {path: protocol.PathKeys, text: document, upTo: upTo, keys: errOtherKeys},
			"an empty page":             {empty: true, upTo: upTo},
			"another node's empty page": {empty: true, elsewhere: true, err: errElsewhere},
		} {
			b.world.mu.Lock()
			b.world.sites[node.base] = node
			b.world.tap = func(to string, r *http.Request, body []byte) []byte {
				b.world.mu.Lock()
				defer b.world.mu.Unlock()

				if c.elsewhere {
					b.world.sites[node.base] = b.nodes[2]
				}

				switch {
				case r.URL.Path == c.path:
					return []byte(c.text)
				case r.URL.Path == protocol.PathPages && c.empty:
					return nil
				default:
					return body
				}
			}
			b.world.mu.Unlock()

			at := protocol.Node{Domain: alpha, Base: node.base}
			got, err := b.beta.follower.askNode(t.Context(), origin, open, at)

			switch {
			case !errors.Is(err, c.err):
				t.Errorf("%s: %v", name, err)
			case err == nil && got.Claims[0].UpTo != c.upTo:
				t.Errorf("%s: it states all up to %d, want %d", name, got.Claims[0].UpTo, c.upTo)
			}

			if _, err := b.beta.follower.askKeys(t.Context(), origin, at); !c.elsewhere && !errors.Is(err, c.keys) {
				t.Errorf("%s, and the key document: %v", name, err)
			}
		}
	})
}

// A node that only lags, one that is down, a domain that is restored, and changes that come all the time
// make nobody distrusted.
//
// Requirement: SEC-019
func TestHonestNodesAreNotDistrusted(t *testing.T) {
	for name, happens := range map[string]func(b *threeNodes){
		"changes all the time": func(b *threeNodes) {
			var rids []directory.RID

			random := rand.New(rand.NewPCG(1, 2))
			for i := range directorytest.Sample(4000, 1000) {
				switch n := random.IntN(10); {
				case n < 4 || len(rids) < 10:
					rids = append(rids, b.origin.register(fmt.Sprint("agent-", i), 60+uint32(random.IntN(600))))
				case n < 6:
					at := random.IntN(len(rids))
					b.origin.remove(rids[at])
					rids = slices.Delete(rids, at, at+1)
				case n < 8:
					b.origin.replace(rids[random.IntN(len(rids))], 300)
				default:
					b.origin.refresh(rids[random.IntN(len(rids))], 300)
				}

				if i%50 == 0 {
					b.origin.sweep()
				}

				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			}
		},
		"two nodes lag for a while": func(b *threeNodes) {
			late := directory.Position{Epoch: b.origin.epoch, Revision: b.origin.Position().Revision}
			b.world.mu.Lock()
			b.world.tap = func(to string, r *http.Request, body []byte) []byte {
				for _, node := range b.nodes[1:] {
					if to == node.base && r.URL.Path == protocol.PathHeads {
						return []byte(b.headAt(node, late))
					}
				}

				return body
			}
			b.world.mu.Unlock()
			b.origin.register("later", 3600)
			time.Sleep(15 * time.Second)
			b.world.mu.Lock()
			b.world.tap = nil
			b.world.mu.Unlock()
		},
		"one node lags for ever": func(b *threeNodes) {
			late := b.origin.Position()
			b.repeats(b.nodes[1], func(*http.Request) string { return b.headAt(b.nodes[1], late) })

			for i := range 20 {
				b.origin.register(fmt.Sprint("later-", i), 36000)
				time.Sleep(time.Minute)
			}
		},
		"a thief says less than it knows": func(b *threeNodes) {
			late := directory.Position{Epoch: b.origin.epoch, Revision: 1}
			b.world.cutOff(func(_, to string) bool { return to == b.nodes[1].base })
			b.repeats(b.nodes[2], func(r *http.Request) string {
				if r.URL.Path == protocol.PathHeads {
					return b.headAt(b.nodes[2], late)
				}

				return ""
			})
			b.origin.register("later", 36000)
			time.Sleep(10 * time.Minute)
		},
		"two nodes are down": func(b *threeNodes) {
			b.world.cutOff(func(_, to string) bool { return to != b.nodes[0].base })
			b.origin.register("later", 36000)
			time.Sleep(10 * time.Minute)
		},
		"the domain is restored": func(b *threeNodes) {
			rid := b.origin.register("later", 3600)
			time.Sleep(20 * time.Second)
			b.origin.restore()
			b.origin.refresh(rid, 3600)
			time.Sleep(5 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inThreeNodes(t, func(t *testing.T, b *threeNodes) {
				b.origin.registers(5, 36000)

				b.follows()
				happens(b)
				time.Sleep(time.Minute)

				if len(b.contested) > 0 {
					t.Errorf("distrusted are %+v", b.contested)
				}

				if name == "changes all the time" {
					b.isConfirmed()
				}
			})
		})
	}
}

// An end that removed nothing here is no contradiction, because the other nodes soon forget it.
//
// Requirement: SEC-019
func TestAnEndOfAnUnknownEntryIsNotCompared(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("stays", 36000)
		b.origin.remove(b.origin.register("ended", 60))

		forgotten := time.Now().Add(60*time.Second + directory.Skew)
		b.world.cutOff(func(_, to string) bool { return to != b.nodes[0].base })
		time.Sleep(time.Until(forgotten) - 8*time.Second)
		b.follows()
		time.Sleep(time.Until(forgotten))
		b.origin.sweep()
		b.world.cutOff(nil)
		time.Sleep(2 * time.Minute)

		if len(b.contested) > 0 {
			t.Errorf("distrusted are %+v", b.contested)
		}

		b.isConfirmed()
	})
}

// An origin may announce an expired entry for longer than this node keeps it. That changes nothing, so
// what is confirmed stays confirmed.
//
// Requirement: SEC-019
func TestAnExpiredEntryIsNotConfirmedAgain(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("expires", 60)
		b.follows()
		time.Sleep(3 * time.Minute)

		origin := b.beta.origins.Get(alpha)
		confirmed := func() (upTo uint64) {
			if err := b.beta.store.Read(origin.Mesh.Cur.Id, func(tx *store.Tx) error {
				upTo = tx.Confirmed()
				return nil
			}); err != nil {
				t.Fatal(err)
			}

			return upTo
		}

		before := confirmed()
		b.says(b.nodes[0], func(p *signed.Page) {
			p.From, p.To, p.At = 0, p.At+1, p.At+1
			p.Digests, _, _ = b.origin.Digests(directory.Mesh, 0, protocol.MaxDigests)
		})

		if after := confirmed(); before == 0 || after != before {
			t.Errorf("confirmed up to %d, and up to %d before", after, before)
		}
	})
}

// A position that no other node has reached is not settled by pages that others have confirmed: the next node is asked.
//
// Requirement: SEC-019
func TestConfirmedPagesSettleNoPosition(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("known", 36000)
		b.follows()
		b.isConfirmed()

		origin, far := b.beta.origins.Get(alpha), uint64(1<<60)

		var open replica.Unconfirmed

		b.repeats(b.nodes[2], func(*http.Request) string {
			return b.headAt(b.nodes[2], directory.Position{Epoch: b.origin.epoch, Revision: far})
		})
		b.origin.register("agent", 36000)
		eventually(t, 3*time.Minute, "a page is open, and a position far ahead", func() (is bool) {
			open, is, _ = origin.Unconfirmed()
			if is && open.Streams[0].Since == open.Streams[0].UpTo {
				b.origin.register("another", 36000)
			}

			return is && open.Streams[0].Since < open.Streams[0].UpTo && b.beta.Peers()[0].LagRevisions > far/2
		})

		stated, err := b.beta.follower.askNode(t.Context(), origin, open,
			protocol.Node{Domain: alpha, Base: b.nodes[1].base})
		must(t, err)

		settled, err := origin.Hear(open, []replica.Testimony{stated}, false, time.Now())
		if settled || err != nil {
			t.Errorf("by one node's word it is settled: %t, %v", settled, err)
		}

		if now, _, _ := origin.Unconfirmed(); now.Streams[0].Since < open.Streams[0].UpTo {
			t.Errorf("the page is confirmed up to %d of %d", now.Streams[0].Since, open.Streams[0].UpTo)
		}
	})
}

// The announcements of an idle domain are confirmed, though its nodes made the pages long before for others.
//
// Requirement: SEC-019
func TestAnIdleDomainIsConfirmed(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("agent", 36000)

		for _, node := range b.nodes {
			page, err := node.publisher.Page(directory.Mesh, 0, protocol.MaxDigests, false)
			if err != nil || page == nil {
				t.Fatal(page, err)
			}
		}

		time.Sleep(10 * time.Minute)
		b.follows()

		// Each head that a node states is confirmed anew, so at one moment or another something is not.
		eventually(t, 5*time.Minute, "all is confirmed", func() bool {
			_, open, err := b.beta.origins.Get(alpha).Unconfirmed()
			return err == nil && !open
		})
	})
}

// A node that stops before it has pulled a stream again keeps distrusting the thief, and drops its registrations.
//
// Requirement: SEC-019
func TestADistrustOutlivesARestart(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("agent", 36000)

		var cut atomic.Bool

		b.world.mu.Lock()
		b.world.cut = func(_, _ string) bool { return cut.Load() }
		b.world.mu.Unlock()

		b.beta.cfg.Doubted = func(_ spiffeid.TrustDomain, node replica.Doubtful) {
			b.contested = append(b.contested, node)

			cut.Store(true) // before the streams are pulled again
		}
		b.beta.reopenWith(t, active(alpha, 1, 2, 3))

		stop := b.beta.run(t)
		eventually(t, 3*time.Minute, "in step", b.inStep)
		b.says(b.nodes[2], func(p *signed.Page) {
			p.From, p.To, p.At = 0, p.At+1, p.At+1
			p.Digests = madeUp(2)
		})
		b.origin.register("later", 36000)
		eventually(t, 2*time.Minute, "distrusted", cut.Load)
		stop()

		b.beta.reopenWith(t, active(alpha, 1, 2, 3))
		cut.Store(false)

		stop = b.beta.run(t)
		eventually(t, 3*time.Minute, "in step", b.inStep)
		stop()
		b.beta.reopenWith(t, active(alpha, 1, 2, 3)) // after further writes

		if listed := b.beta.Peers()[0].Doubtful; len(listed) != 1 || listed[0].Verdict() != "distrusted" ||
			listed[0].Key != signed.KeyID(b.nodes[2].keys.public()) || listed[0].What != b.contested[0].What {
			t.Errorf("the status lists %+v, not %+v", listed, b.contested)
		}
	})
}

// A node that withholds the private stream, of which no head tells the tip, hides it for a few minutes at most.
//
// Requirement: SEC-019
func TestOneNodeWithholdsNoPrivateStream(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		rid := b.origin.register("agent", 36000)

		b.world.mu.Lock()
		b.world.hold = func(r *http.Request, ping func()) bool {
			query, err := protocol.ParsePageQuery(r.URL.Query())
			if err != nil || r.URL.Host != strings.TrimPrefix(b.nodes[0].base, "https://") ||
				r.URL.Path != protocol.PathPages || query.Aud == directory.Mesh {
				return false
			}

			for end := time.Now().Add(query.Wait); time.Now().Before(end); ping() {
				if !wait(r.Context(), nil, time.Second) {
					break
				}
			}

			return true
		}
		b.world.mu.Unlock()

		b.follows()
		time.Sleep(10 * time.Minute)

		b.origin.grant(rid, directory.Only(beta), true)
		eventually(t, 5*time.Minute, "the private stream is here", func() bool {
			return b.beta.shown(alpha)[rid].Received.Private
		})
	})
}

// A page that is stored counts as applied, although the end of a repeated pull fails behind it. That end is repeated.
//
// Requirement: SEC-019
func TestAPageIsAppliedIfTheEndOfAPullFails(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		rid := b.origin.register("agent", 36000)

		b.isMisled(b.nodes[2])
		must(t, b.hearKeys(func() {}))

		origin := b.beta.origins.Get(alpha)
		page, err := b.nodes[0].publisher.Page(directory.Mesh, 0, protocol.MaxDigests, false)
		must(t, err)

		// The disk hangs once the page is written: the end of the pull asks for the keys whose entries go.
		stopHanging := func() {}

		b.beta.keys.asked = func() {
			if origin.Since(&origin.Mesh) == 0 || b.beta.store.Disk.StalledFor() > 0 {
				return
			}

			b.beta.keys.asked = nil
			stopHanging = b.hangs()
		}

		code, err := b.take(alpha, page.Text)

		at := origin.Since(&origin.Mesh)
		if err != nil || code != protocol.CodeApplied || at != page.To || b.beta.keys.asked != nil {
			t.Errorf("the page is %q (%v), and the stream at %d of %d", code, err, at, page.To)
		}

		stopHanging()

		from := time.Now()

		b.follows()
		b.isHealed(from, b.nodes[2])

		if b.beta.shown(alpha)[rid] == nil {
			t.Error("the registration is gone")
		}
	})
}

// isMisled has beta in step, and then believe a registration and a key document of a thief while it doesn't run.
func (b *threeNodes) isMisled(thief *site) {
	b.Helper()

	stop := b.beta.run(b.T)
	eventually(b.T, 3*time.Minute, "in step", b.inStep)
	time.Sleep(time.Minute)
	stop()

	b.says(thief, func(p *signed.Page) {
		p.To, p.At = p.At+1, p.At+1
		p.Digests = madeUp(p.At)
	})
	b.issues(thief, func(*signed.KeyDocument) {})
}

// hangs has a change of beta's disk hang until the returned function is called.
func (b *threeNodes) hangs() (stop func()) {
	hangs, began := make(chan struct{}), make(chan struct{})

	go func() {
		_ = b.beta.store.Disk.Change(func() error {
			close(began)
			<-hangs

			return nil
		})
	}()

	<-began

	return func() { close(hangs) }
}

// hearKeys has beta compare alpha's key document with those of all nodes, twice: the second time, after last, it
// distrusts one.
func (b *threeNodes) hearKeys(last func()) error {
	b.Helper()

	origin := b.beta.origins.Get(alpha)

	for i := range 2 {
		var all []replica.KeyTestimony

		for _, node := range b.nodes {
			testimony, err := b.beta.follower.askKeys(b.Context(), origin,
				protocol.Node{Domain: alpha, Base: node.base})
			must(b.T, err)

			all = append(all, testimony)
		}

		if i == 1 {
			time.Sleep(30 * time.Second)
			last()
		}

		issued, _ := origin.UnconfirmedKeys()
		if _, err := origin.HearKeys(issued, all, time.Now()); err != nil {
			return err
		}
	}

	return nil
}

// A node of a peer stays distrusted over a restart, also if the peer has no stream here.
//
// Requirement: SEC-019
func TestADistrustWithoutAStreamOutlivesARestart(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.issues(b.nodes[2], func(*signed.KeyDocument) {})
		must(t, b.hearKeys(func() {}))
		b.beta.reopenWith(t, active(alpha, 1, 2, 3))

		if listed := b.beta.Peers()[0].Doubtful; len(listed) != 1 || listed[0].Node != b.nodes[2].cfg.Node ||
			listed[0].Verdict() != "distrusted" {
			t.Errorf("the status lists %+v", listed)
		}
	})
}

// A disk that fails while a false key document is replaced delays that, and leaves no registration of the thief.
//
// Requirement: SEC-019
func TestAFalseKeyDocumentIsReplacedAfterAFailure(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("agent", 36000)

		b.isMisled(b.nodes[2])

		// Another change hangs on the disk: this one begins, and is refused once the disk counts as stalled.
		stopHanging := func() {}

		err := b.hearKeys(func() { stopHanging = b.hangs() })
		stopHanging()

		if !errors.Is(err, store.ErrStalled) || len(b.contested) > 0 {
			t.Fatalf("%v; distrusted are %+v", err, b.contested)
		}

		from := time.Now()

		b.follows()
		b.isHealed(from, b.nodes[2])
	})
}

// While too few nodes answer to tell who lies, nobody is distrusted, and the contradiction is shown.
//
// Requirement: SEC-019
func TestAContradictionThatCannotBeDecidedIsShown(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("agent", 36000)
		b.follows()
		b.world.cutOff(func(_, to string) bool { return to == b.nodes[1].base })

		b.says(b.nodes[2], func(p *signed.Page) { p.To, p.At = 1<<60, 1<<60 })
		time.Sleep(time.Minute)

		listed := b.beta.Peers()[0].Doubtful
		if len(b.contested) > 0 || len(listed) != 1 || listed[0].Node != b.nodes[2].cfg.Node ||
			!listed[0].Distrusted.IsZero() || !strings.Contains(listed[0].What, "1152921504606846976") {
			t.Errorf("shown is %+v, distrusted are %+v", listed, b.contested)
		}

		b.world.cutOff(nil)
		b.origin.register("later", 36000)
		b.isHealed(time.Now(), b.nodes[2])
	})
}

// A peer goes on with this domain unless most of its nodes that answer say otherwise.
//
// Requirement: SEC-019
func TestAPeerGoesOnWhileItsNodesDo(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.follows()

		goesOn := func(want bool, when string) {
			t.Helper()

			if is := b.beta.GoesOn(t.Context(), alpha); is != want {
				t.Errorf("%s: it goes on: %t", when, is)
			}
		}

		b.origin.listTo() // an end of the export is none of the peering
		goesOn(true, "all nodes have the peering")

		b.nodes[2].reopenWith(t)
		goesOn(true, "one node has not")

		b.nodes[1].reopenWith(t)
		goesOn(false, "one node has")

		b.world.cutOff(func(_, to string) bool { return to == b.nodes[1].base })
		goesOn(true, "one of two that answer has")

		b.world.cutOff(func(string, string) bool { return true })
		goesOn(false, "no node answers")

		// A second address of the node that says so is no second voice.
		b.beta.origins.Get(alpha).Contacts.State(b.nodes[1].cfg.Node, "https://second.test")
		b.world.mu.Lock()
		b.world.sites["https://second.test"] = b.nodes[1]
		b.world.mu.Unlock()
		b.world.cutOff(func(_, to string) bool { return to == b.nodes[2].base })
		goesOn(true, "one of two nodes that answer has, at two addresses")
	})
}

// A registration that only one node of its origin announces is shown as unconfirmed after a minute, and counted,
// until another node announces it too.
//
// Requirement: SEC-019
func TestWhatOneNodeAloneAnnouncesIsUnconfirmed(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		known := b.origin.register("known", 36000)
		b.follows()
		time.Sleep(2 * time.Minute)

		b.world.cutOff(func(_, to string) bool { return to != b.nodes[0].base })

		alone := b.origin.register("alone", 36000)
		eventually(t, 3*time.Minute, "in step", b.inStep)

		check := func(when string, counted int, unconfirmed ...directory.RID) {
			t.Helper()

			for _, rid := range []directory.RID{known, alone} {
				at, _ := b.beta.Logged(b.beta.shown(alpha)[rid])
				if at.Unconfirmed != slices.Contains(unconfirmed, rid) {
					t.Errorf("%s, %s is shown as unconfirmed: %t", when, rid, at.Unconfirmed)
				}
			}

			if got := b.beta.Peers()[0].Unconfirmed; got != counted {
				t.Errorf("%s, %d registrations are counted, want %d", when, got, counted)
			}
		}

		time.Sleep(30 * time.Second)
		check("within a minute", 0)
		time.Sleep(3 * time.Minute)
		check("after a minute", 1, alone)

		b.world.cutOff(nil)
		time.Sleep(2 * time.Minute)
		check("once another node answers", 0)
	})
}

// In a first synchronisation more is announced at once than is confirmed in a minute. It is unconfirmed once nothing
// more is confirmed.
//
// Requirement: SEC-019, LOG-013
func TestWhatIsStillBeingConfirmedIsNoAlarm(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		held := &followedLedger{model: b.origin}
		b.beta.replica.Ledger = held
		b.follows()

		for _, restored := range []bool{false, true} {
			if restored { // in the new epoch less was confirmed so far than in the one before
				b.origin.restore()
				b.origin.do(func(int64) { b.origin.rev = 0 })
			}

			all := b.origin.registers(7, 36000)

			held.grow(1000, all[0])
			eventually(t, 3*time.Minute, "in step", b.inStep)

			last := all[len(all)-1]
			check := func(unconfirmed bool, counted int) {
				t.Helper()

				at, _ := b.beta.Logged(b.beta.shown(alpha)[last])
				if got := b.beta.Peers()[0].Unconfirmed; at.Unconfirmed != unconfirmed || got != counted {
					t.Errorf("restored %t: the last one is shown as unconfirmed: %t, and %d are counted; want %t and %d",
						restored, at.Unconfirmed, got, unconfirmed, counted)
				}
			}

			// The ledger lacks one after another, so that the stream is confirmed up to the one before it.
			for _, rid := range all {
				held.grow(1000, rid)
				time.Sleep(40 * time.Second)
				check(false, 0)
			}

			time.Sleep(time.Minute)
			check(true, 1)
		}
	})
}

// followedLedger is alpha's ledger as beta has followed it: the statements that the model has made up to a size.
type followedLedger struct {
	*model

	mu    sync.Mutex
	size  uint64
	lacks directory.RID // its statements are not in it
	err   error         // of what reads it
}

func (l *followedLedger) grow(size uint64, lacks directory.RID) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.size, l.lacks, l.err = size, lacks, nil
}

func (l *followedLedger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.err = err
}

func (l *followedLedger) Begins(_ spiffeid.TrustDomain, epoch, size uint64, root directory.Hash) (bool, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if size > l.size {
		return false, false
	}

	return epoch == l.epoch && root == directory.HashOf([]byte(l.domain.Name())), true
}

func (l *followedLedger) Lacks(_ spiffeid.TrustDomain, index uint64, statement directory.Hash) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model.mu.Lock()
	defer l.model.mu.Unlock()

	if l.err != nil {
		return false, l.err
	}

	if r := l.regs[l.lacks]; r != nil && directory.HashOf(r.payload) == statement {
		return index < l.size, nil
	}

	return index < l.size && l.written[statement] != index, nil
}

// A registration that all nodes of its origin announce alike is unconfirmed as long as the ledger that they sign in
// their heads, as far as it was followed, doesn't have it: made up by the thief of several keys, or because the
// ledger can't be read.
//
// Requirement: SEC-019, LOG-013
func TestARegistrationOutsideTheLedgerIsUnconfirmed(t *testing.T) {
	inThreeNodes(t, func(t *testing.T, b *threeNodes) {
		b.origin.register("known", 36000)

		held := &followedLedger{model: b.origin}
		held.grow(1000, directory.RID{})

		b.beta.replica.Ledger = held

		b.follows()

		check := func(when string, rid directory.RID, unconfirmed bool, counted int) {
			t.Helper()

			at, _ := b.beta.Logged(b.beta.shown(alpha)[rid])
			if got := b.beta.Peers()[0].Unconfirmed; at.Unconfirmed != unconfirmed || got != counted {
				t.Errorf("%s, it is shown as unconfirmed: %t, and %d are counted; want %d", when, at.Unconfirmed, got,
					counted)
			}
		}

		logged := b.origin.register("logged", 36000)
		time.Sleep(3 * time.Minute)
		check("in the ledger", logged, false, 0)

		forged := b.origin.register("forged", 36000)
		held.grow(1000, forged)
		time.Sleep(30 * time.Second)
		check("within a minute", forged, false, 0)
		time.Sleep(3 * time.Minute)
		check("outside the ledger", forged, true, 1)
		check("before it", logged, false, 1)

		if b.log.n.Load() == 0 {
			t.Error("the log has no warning")
		}

		held.grow(1000, directory.RID{})
		time.Sleep(time.Minute)
		check("once it is in the ledger", forged, false, 0)

		held.grow(1, directory.RID{})

		ahead := b.origin.register("ahead", 36000)
		time.Sleep(3 * time.Minute)
		check("while the ledger is not followed", ahead, true, 1)
		held.grow(1000, directory.RID{})
		time.Sleep(time.Minute)
		check("once it is followed", ahead, false, 0)

		held.fail(errors.New("the disk fails"))

		unread := b.origin.register("unread", 36000)
		time.Sleep(3 * time.Minute)
		check("while the ledger can't be read", unread, true, 1)
		held.fail(nil)
		time.Sleep(time.Minute)
		check("once it is read", unread, false, 0)
	})
}

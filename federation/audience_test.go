package federation

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// withhold registers an agent with a member that the mesh stream doesn't disclose.
func (o *model) withhold(agent, secret string) (rid directory.RID) {
	d, err := directory.ParseDocument(directory.KindAD,
		fmt.Appendf(nil,
			`{"base":"https://agent.test/","description":"shown-to-peers","protocols":["https"],`+
				`"capabilities":[{"name":"work","type":"tool"}],"x-secret":%q}`, secret))
	if err != nil {
		panic(err)
	}

	o.do(func(t int64) {
		o.rev++
		o.made++
		rid = ridOf(o.domain, o.made)
		r := &registration{agent: agent, document: d, since: t, late: t, lifetime: 600, alive: true,
			told: told{exported: true, granted: required}}
		o.regs[rid] = r
		o.put(rid, r, t)
	})

	return rid
}

// list issues a key document that lists other domains.
func (o *model) list(mesh ...spiffeid.TrustDomain) {
	o.do(func(int64) {
		o.rev++
		o.seq, o.mesh = o.rev, mesh
	})
}

// A trio is alpha, whose mesh stream beta may have and gamma may not, though all
// peer with all, and an ear at every one of their connections.
type trio struct {
	*testing.T
	world       *world
	ear         *ear
	origin      *model // alpha's
	a, b, g     *site
	rids        []directory.RID
	tell        []string // what gamma must not hear
	announcedBy *model   // beta, whom gamma may hear
}

func newTrio(t *testing.T) *trio {
	net := newGossipNet(t)
	tr := &trio{T: t, world: newWorld(), ear: newEar(net), origin: newModel(alpha, beta),
		announcedBy: newModel(beta, alpha, gamma)}
	tr.a = tr.world.open(t, t.TempDir(), 1, tr.origin, active(beta, 1), active(gamma, 1))
	tr.b = tr.world.open(t, t.TempDir(), 1, tr.announcedBy, active(alpha, 1), active(gamma, 1))
	own := newModel(gamma, alpha, beta)
	tr.g = tr.world.open(t, t.TempDir(), 1, own, active(alpha, 1), active(beta, 1))
	tr.origin.listKeys(nil, tr.a.keys)
	tr.announcedBy.listKeys(nil, tr.b.keys)
	own.listKeys(nil, tr.g.keys)

	for i, s := range []*site{tr.a, tr.b, tr.g} {
		address := fmt.Sprintf("10.2.0.%d:7946", i+1)
		s.gossips(t, net, address, "10.2.0.1:7946", "10.2.0.2:7946", "10.2.0.3:7946")
		s.cfg.Gossip.Dial = tr.ear.dialFrom(s.cfg.Node, address)
		s.cfg.Gossip.Listener = net.wire.Listen(address)
		s.reopen(t)
	}

	tr.world.tap = tr.ear.answer

	return tr
}

// run starts all three and waits until the pool is whole.
func (tr *trio) run() (stop func()) {
	stops := []func(){tr.a.run(tr.T), tr.b.run(tr.T), tr.g.run(tr.T)}
	eventually(tr.T, 30*time.Second, "a pool of three", func() bool {
		return len(tr.a.Members()) == 3 && len(tr.b.Members()) == 3 && len(tr.g.Members()) == 3
	})

	return func() {
		for _, s := range stops {
			s()
		}
	}
}

// signed returns how a JWS of that type begins when alpha has signed it.
func (tr *trio) signed(typ string) string {
	return directory.B64.EncodeToString([]byte(headerOf(typ, signed.KeyID(tr.a.keys.public()))))
}

// canary registers one more agent at alpha.
func (tr *trio) canary() directory.RID {
	agent := fmt.Sprint("canary-", len(tr.rids))
	rid := tr.origin.register(agent, 600)
	d := tr.origin.regs[rid].announced
	tr.rids = append(tr.rids, rid)
	tr.tell = append(tr.tell, rid.String(), agent, d.H.String(), d.M.String())

	return rid
}

// What a domain that isn't listed receives has no byte of the mesh stream: not by
// gossip from the origin, nor by subscription, nor by pull, nor through one that
// is listed, and not when it asks for it by name.
//
// Requirement: MESH-025
func TestAnOriginsStreamReachesNobodyItDoesNotList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t)
		stop := tr.run()
		stopped := false
		defer func() {
			if !stopped {
				stop()
			}
		}()

		theirs := tr.announcedBy.register("for-gamma", 600)
		for range 8 {
			rid := tr.canary()
			eventually(t, 10*time.Second, "beta shows it", func() bool { return tr.b.shown(alpha)[rid] != nil })
			time.Sleep(5 * time.Second)
		}

		tr.origin.replace(tr.rids[0], 700)
		tr.tell = append(tr.tell, tr.origin.regs[tr.rids[0]].announced.H.String())
		tr.origin.refresh(tr.rids[1], 60)
		tr.origin.export(tr.rids[2], false)
		tr.origin.remove(tr.rids[3])
		time.Sleep(5 * time.Minute) // heads, exchanges of state, and asking again
		eventually(t, 10*time.Second, "gamma shows beta's", func() bool { return tr.g.shown(beta)[theirs] != nil })

		// The same search finds all of it where it may be.
		for what, texts := range map[string][]string{"pages": {tr.signed(signed.TypePage)},
			"heads": {tr.signed(signed.TypeHead)}, "rids": tr.tell} {
			if gossip, answers := tr.ear.heard(beta, texts...); gossip == 0 || answers == 0 {
				t.Errorf("beta received alpha's %s in %d connections and %d answers", what, gossip, answers)
			}
		}

		if gossip, answers := tr.ear.heard(gamma, theirs.String()); gossip == 0 || answers == 0 {
			t.Errorf("gamma received beta's in %d connections and %d answers", gossip, answers)
		}

		tr.ask()
		tr.silent(gamma)

		if n := len(tr.g.shown(alpha)); n != 0 {
			t.Errorf("gamma shows %d", n)
		}

		stop()
		stopped = true
		tr.silent(gamma)
	})
}

// silent fails where a domain has received anything of alpha's mesh stream.
func (tr *trio) silent(td spiffeid.TrustDomain) {
	tr.Helper()

	texts := append([]string{tr.signed(signed.TypePage), tr.signed(signed.TypeHead), tr.signed(signed.TypeRecord)},
		tr.tell...)
	for _, text := range texts {
		if gossip, answers := tr.ear.heard(td, text); gossip != 0 || answers != 0 {
			tr.Errorf("%s received %s in %d connections and %d answers", td, text, gossip, answers)
		}
	}
}

// ask asks both others for all that gamma could know the name of.
func (tr *trio) ask() {
	tr.Helper()

	var names [][2]directory.Hash
	for _, r := range tr.origin.regs {
		names = append(names, [2]directory.Hash{r.announced.H, r.announced.M})
	}

	body := string(protocol.RecordsRequest{Origin: alpha.Name(), Names: names}.Bytes())

	me := tr.g.cfg.Node.String()
	for _, s := range []*site{tr.a, tr.b} {
		for _, target := range []string{
			protocol.PathHeads + "?origin=alpha.test", protocol.PathPages + "?origin=alpha.test&aud=mesh&since=0",
			protocol.PathPages + "?origin=alpha.test&aud=mesh&since=3&limit=1&wait=1",
			protocol.PathPages + "?origin=alpha.test&aud=beta.test&since=0",
			protocol.PathPages + "?origin=alpha.test&aud=alpha.test&since=0",
		} {
			if w := s.ask(tr.Context(), me, "GET", target, ""); w.Code != http.StatusForbidden {
				tr.Errorf("%s answers %d to %s", s.base, w.Code, target)
			}
		}

		w := s.ask(tr.Context(), me, "POST", protocol.PathRecords, body)
		if s == tr.b && w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), `"record"`) {
			tr.Errorf("%s answers %d: %s", s.base, w.Code, w.Body)
		}
	}

	// Beta may have them, from alpha and as beta's other members do from beta.
	for s, caller := range map[*site]spiffeid.ID{tr.a: tr.b.cfg.Node, tr.b: nodeID(beta, 2)} {
		w := s.ask(tr.Context(), caller.String(), "POST", protocol.PathRecords, body)
		if n := strings.Count(w.Body.String(), `"record"`); w.Code != http.StatusOK || n < 5 {
			tr.Errorf("%s gives beta %d records: %d", s.base, n, w.Code)
		}
	}
}

// What a stream withholds of a registration is in no byte that a peer receives,
// nor is what would open it.
//
// Requirement: MESH-003
func TestAWithheldMemberIsInNoByteThatIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t)
		defer tr.run()()
		rid := tr.origin.withhold("translator", "canary-in-the-document")
		eventually(t, 10*time.Second, "beta shows it", func() bool { return tr.b.shown(alpha)[rid] != nil })
		tr.origin.refresh(rid, 300)
		time.Sleep(3 * time.Minute)
		r := tr.origin.regs[rid]

		secrets := []string{"canary-in-the-document", r.change.Owner.String(), string(r.change.Salt[:])}
		for _, d := range r.change.Disclosures() {
			if !slices.Contains(r.texts, d.Text) {
				secrets = append(secrets, d.Text)
			}
		}

		if len(secrets) != 5 {
			t.Fatalf("two members are withheld: %q", secrets)
		}

		for _, td := range []spiffeid.TrustDomain{beta, gamma} {
			for _, secret := range secrets {
				if gossip, answers := tr.ear.heard(td, secret); gossip+answers > 0 {
					t.Errorf("%s received %q in %d connections and %d answers", td, secret, gossip, answers)
				}
			}
		}

		if _, answers := tr.ear.heard(beta, "shown-to-peers"); answers == 0 {
			t.Error("what isn't withheld wasn't found either")
		}
	})
}

// A key document that lists a domain no longer ends what it receives, at the
// origin at once and at a relay when that has it, and one that lists it again
// brings back what was missed.
//
// Requirement: MESH-025
func TestAChangedListTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t)
		defer tr.run()()
		tr.origin.list(beta, gamma)
		first := tr.canary()
		eventually(t, 15*time.Second, "gamma shows it", func() bool { return tr.g.shown(alpha)[first] != nil })

		if gossip, answers := tr.ear.heard(gamma, tr.tell...); gossip == 0 || answers == 0 {
			t.Errorf("gamma received it in %d connections and %d answers", gossip, answers)
		}

		tr.origin.list(beta)
		eventually(t, 5*time.Second, "beta knows the new list", func() bool { return !tr.b.peers.lists(alpha, gamma) })
		tr.tell = nil
		tr.ear.forget()
		second := tr.canary()
		eventually(t, 10*time.Second, "beta shows it", func() bool { return tr.b.shown(alpha)[second] != nil })
		time.Sleep(3 * time.Minute)
		tr.silent(gamma)

		tr.origin.list(beta, gamma)
		eventually(t, 15*time.Second, "gamma shows what it missed", func() bool {
			return tr.g.shown(alpha)[second] != nil
		})
	})
}

// A subscription that was asked for in time isn't answered when its time is over,
// by the origin and by a relay.
//
// Requirement: MESH-025
func TestALongPollEndsWithTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t)
		tr.origin.list(beta, gamma)
		tr.canary()
		o := tr.b.origins.Get(alpha)
		giver := protocol.Node{Domain: alpha, Base: tr.a.base}
		must(t, tr.b.pulls(o, &o.Mesh, giver))

		codes := make(chan int, 2)
		for _, s := range []*site{tr.a, tr.b} {
			go func() {
				w := s.ask(t.Context(), tr.g.cfg.Node.String(), "GET",
					fmt.Sprintf("%s?origin=alpha.test&aud=mesh&wait=60&since=%d", protocol.PathPages, tr.origin.rev),
					"")
				if strings.Contains(w.Body.String(), tr.signed(signed.TypePage)) {
					t.Errorf("%s gave a page", s.base)
				}

				codes <- w.Code
			}()
		}

		synctest.Wait()
		tr.origin.list(beta)
		must(t, tr.b.receiver.refreshKeys(t.Context(), o, giver))
		tr.canary()
		must(t, tr.b.pulls(o, &o.Mesh, giver))

		if a, b := <-codes, <-codes; a != http.StatusForbidden || b != http.StatusForbidden {
			t.Errorf("%d %d", a, b)
		}
	})
}

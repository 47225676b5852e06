package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// The CA of alpha.test is stolen. The thief reads at all domains as an agent, a node and an operator
// of alpha.test, and its proofs of operators are obeyed there. alpha.test replaces its CA without
// overlap: within a minute its nodes refuse the thief, and end its open connections. Its peers still
// trust the old CA. The thief takes the addresses of alpha.test and races them: it revokes the true
// keys, numbers key documents, pages and bundles far ahead, begins an epoch of the future, and has
// its own CA published. So alpha.test can't repair it by itself. beta.test's operator pins the new
// CA, and gamma.test's a while later. Within seconds each node of a domain that pinned it refuses
// all that the old CA and the thief's own certify, also as gamma.test relays it. It shows the true
// registrations again, those with it that were made meanwhile, and nobody is frozen in the end.
//
// Requirement: TRUST-002, TRUST-010, MESH-022
func TestAStolenAuthority(t *testing.T) {
	story(t)
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: long(3, 1), Seed: seed, Link: wan, Endpoints: true})
		alpha, beta, gamma := m.Domain("alpha.test"), m.Domain("beta.test"), m.Domain("gamma.test")
		before, other := m.Register("alpha.test", "before", 86400), m.Register("beta.test", "other", 86400)
		m.Eventually(10*time.Second, "all is seen", func() error { return m.Seen(before, other) })

		thief := mesh.StealCA(m, "alpha.test")
		streams := map[string][]*mesh.Stream{}

		for _, n := range m.Living() {
			streams[n.Domain.Name] = append(streams[n.Domain.Name], thief.Watch(n))

			if err := errors.Join(thief.Reads(n), accepted(thief, n)); err != nil {
				t.Errorf("the thief is refused before anybody acts: %s: %v", n.Name, err)
			}
		}

		// At home.
		alpha.ReplaceCA()
		took := m.Eventually(time.Minute, "alpha.test refuses the thief", func() error {
			return refuses(alpha, thief, streams)
		})
		t.Logf("alpha.test refuses what the stolen CA certified after %v", took)

		for _, n := range alpha.Nodes {
			m.Eventually(time.Minute, n.Name+" is ready", n.Ready)
		}

		meanwhile := m.Register("alpha.test", "meanwhile", 86400)

		// At the peers, which still trust the old CA.
		for _, n := range slices.Concat(beta.Nodes, gamma.Nodes) {
			if err := thief.Reads(n); err != nil {
				t.Errorf("%s refuses the old CA, which its operator has not dropped: %v", n.Name, err)
			}
		}

		lie := usurp(m, thief)
		last := fingerprintAt(t, m, "beta.test")
		own := thief.Authority()
		lie.liar.Publish(own.Bundle(1 << 40))
		m.Eventually(10*time.Minute, "the thief's own CA is trusted", func() error {
			return errors.Join(fingerprintIsNot(t, m, "beta.test", last), fingerprintIsNot(t, m, "gamma.test", last))
		})
		lie.liar.Steal(own)
		lie.liar.Rotate()
		lie.begin(uint64(time.Now().Unix()))
		lie.tell(m, "beta.test", "gamma.test")

		// beta.test's operator acts while the thief still has alpha.test's addresses, and gamma.test
		// relays its announcements.
		beta.Trust(alpha)
		took = m.Eventually(time.Minute, "beta.test refuses the thief", func() error {
			return errors.Join(refuses(beta, thief, streams), refuses(beta, own, nil))
		})
		t.Logf("beta.test refuses what both CAs certified after %v", took)

		lie.liar.Say("beta.test", lie.next())
		lie.tell(m, "gamma.test")
		m.Sleep(3 * time.Minute)

		if lie.believed(m, "beta.test") == nil {
			t.Error("beta.test accepts an announcement of the thief that gamma.test relays")
		}

		lie.liar.Leave()

		for _, n := range alpha.Nodes {
			n.Restart()
		}

		later := m.Register("alpha.test", "later", 86400)
		took = m.Eventually(2*time.Minute, "beta.test shows what is true", func() error {
			return showsTrue(m, beta, before, meanwhile, later)
		})
		t.Logf("beta.test shows what is true %v after alpha.test is back", took)

		gamma.Trust(alpha)
		took = m.Eventually(2*time.Minute, "all show what is true", func() error {
			return errors.Join(refuses(gamma, thief, streams), refuses(gamma, own, nil),
				showsTrue(m, gamma, before, meanwhile, later), m.Seen(before, other, meanwhile, later))
		})
		t.Logf("gamma.test refuses both CAs and shows what is true after %v", took)

		if err := m.Frozen(); err != nil {
			t.Error(err)
		}

		// The refresh goes on by the new CA, and brings no other back.
		pinned := fingerprintAt(t, m, "beta.test")
		beta.Follow(alpha)
		m.Sleep(15 * time.Minute)

		if now := fingerprintAt(t, m, "beta.test"); now != pinned {
			t.Errorf("beta.test trusts %s after a refresh, and pinned %s", now, pinned)
		}

		after := m.Register("alpha.test", "after", 86400)
		m.Eventually(10*time.Second, "the domains are peers as before", func() error { return m.Seen(after) })
	})
}

// A thief of the CA of alpha.test issues two key documents of one number, so that the peers freeze
// alpha.test by evidence that its CA vouches for. Once a peer's operator has pinned the new CA, that
// evidence convicts nobody, and the operator's release holds.
//
// Requirement: MESH-022
func TestEvidenceOfADroppedAuthorityConvictsNobody(t *testing.T) {
	story(t)
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan})
		alpha := m.Domain("alpha.test")
		before := m.Register("alpha.test", "before", 86400)
		m.Eventually(10*time.Second, "it is seen", func() error { return m.Seen(before) })

		liar := m.Corrupt("alpha.test")
		liar.Steal(mesh.StealCA(m, "alpha.test"))

		one := *liar.Doc
		one.Seq += 100
		other := one
		other.Expires--
		liar.Issue("beta.test", &one)
		liar.Issue("gamma.test", &other)
		m.Eventually(rounds, "both peers freeze it", func() error { return m.Frozen("alpha.test") })

		if m.Domain("beta.test").Release(alpha) == nil {
			t.Error("it is released while the stolen CA is trusted")
		}

		liar.Leave()
		alpha.ReplaceCA()
		alpha.Nodes[0].Restart()

		for _, peer := range []*mesh.Domain{m.Domain("beta.test"), m.Domain("gamma.test")} {
			peer.Trust(alpha)

			must(t, peer.Release(alpha))
		}

		after := m.Register("alpha.test", "after", 86400)
		m.Eventually(time.Minute, "all is seen", func() error { return m.Seen(before, after) })
		m.Sleep(rounds)

		if err := m.Frozen(); err != nil {
			t.Error(err)
		}
	})
}

// accepted returns nil if a node takes the thief for a node of alpha.test, or, at alpha.test itself,
// for an operator.
func accepted(thief *mesh.Thief, n *mesh.Node) error {
	if n.Domain.Name != "alpha.test" {
		return thief.Federates(n)
	}

	return errors.Join(thief.Commands(n), thief.Proves(n))
}

// refuses returns nil if the nodes of a domain refuse the thief in each role, and have ended its
// streams.
func refuses(domain *mesh.Domain, thief *mesh.Thief, streams map[string][]*mesh.Stream) error {
	for _, n := range domain.Nodes {
		for role, try := range map[string]func(*mesh.Node) error{
			"agent": thief.Reads, "node": thief.Federates, "operator": thief.Commands, "proof": thief.Proves,
		} {
			if try(n) == nil {
				return fmt.Errorf("%s takes the thief as %s", n.Name, role)
			}
		}
	}

	for _, stream := range streams[domain.Name] {
		if err := stream.Ended(); err != nil {
			return err
		}
	}

	return nil
}

// showsTrue returns nil if all nodes of a domain show the agents with the deadlines that alpha.test
// announced.
func showsTrue(m *mesh.Mesh, domain *mesh.Domain, agents ...*mesh.Agent) error {
	for _, n := range domain.Nodes {
		shown, err := m.Lookup(n)
		if err != nil {
			return err
		}

		for _, a := range agents {
			if until := shown[a.RID].Provenance.ExpiresAt; until.Before(a.Until.Add(-time.Second)) {
				return fmt.Errorf("%s shows %s until %v, not %v", n.Name, a.Name, until, a.Until)
			}
		}
	}

	return nil
}

// A usurpation is the reign of a thief at the addresses of a domain.
type usurpation struct {
	liar  *mesh.Liar
	epoch uint64
	said  signed.Digest
}

// usurp has the thief take the addresses of alpha.test. It revokes the true keys, and announces
// to the peers earlier deadlines under revisions that alpha.test doesn't reach.
func usurp(m *mesh.Mesh, thief *mesh.Thief) *usurpation {
	m.T.Helper()
	u := &usurpation{liar: m.Corrupt("alpha.test")}
	u.liar.Steal(thief)

	var keys []string
	for _, key := range u.liar.Doc.Keys {
		keys = append(keys, key.KeyID())
	}

	u.said = u.liar.Last.Digests[0]
	u.said.Op = signed.OpRenew
	u.said.Revision = 1 << 41
	u.liar.Doc.Seq = 1 << 40
	u.begin(u.liar.Doc.Epoch)
	u.liar.Rotate(keys...)
	u.tell(m, "beta.test", "gamma.test")

	return u
}

// begin begins an epoch.
func (u *usurpation) begin(epoch uint64) {
	u.epoch = epoch
	u.liar.Doc.Epoch = epoch
	u.liar.Last.Epoch = epoch
}

// next returns the next lie.
func (u *usurpation) next() signed.Digest {
	u.said.Revision++
	u.said.Deadline -= 60

	return u.said
}

// tell announces the next lie to peers, and waits until they believe it.
func (u *usurpation) tell(m *mesh.Mesh, peers ...string) {
	m.T.Helper()

	digest := u.next()
	for _, peer := range peers {
		u.liar.Say(peer, digest)
	}

	for _, peer := range peers {
		m.Eventually(2*time.Minute, peer+" believes the thief", func() error { return u.believed(m, peer) })
	}
}

// believed returns nil if a node of a peer has accepted the last lie.
func (u *usurpation) believed(m *mesh.Mesh, peer string) error {
	m.T.Helper()

	want := directory.Position{Epoch: u.epoch, Revision: u.said.Revision}.String()

	for _, p := range peersAt(m.T.(*testing.T), m, peer) {
		if p.Domain == "alpha.test" && p.Watermark != want {
			return fmt.Errorf("it is at %s, not at %s", p.Watermark, want)
		}
	}

	return nil
}

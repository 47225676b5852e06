package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust"
)

// rounds is the length of two rounds in which nodes compare their pages, with jitter.
const rounds = 2*66*time.Second + 10*time.Second

// A domain that signs two different things for two peers is frozen by all: by the two as
// soon as they compare, and by the others on the evidence. The evidence convicts it on a
// machine that has nothing but the domain's bundle. Its earlier registrations are served
// to their deadlines, and no honest domain is frozen.
//
// Requirement: MESH-022
func TestALiarIsFrozenByAll(t *testing.T) {
	for name, lie := range map[string]func(*mesh.Mesh, *mesh.Liar){
		"E1": func(_ *mesh.Mesh, l *mesh.Liar) {
			d := renewal(l)
			l.Say("beta.test", d)
			d.Deadline -= 5
			l.Say("gamma.test", d)
		},
		"E1, by a key that it signs with no longer": func(m *mesh.Mesh, l *mesh.Liar) {
			d := renewal(l)
			l.Say("beta.test", d)
			m.Eventually(time.Minute, "one peer has it", func() error { return announcedUntil(m, "beta.test", d) })
			l.Rotate()
			d.Deadline -= 5
			l.Say("gamma.test", d)
		},
		"E3": func(_ *mesh.Mesh, l *mesh.Liar) {
			doc := *l.Doc
			doc.Seq += 100
			l.Issue("beta.test", &doc)
			other := doc
			other.Expires--
			l.Issue("gamma.test", &other)
		},
	} {
		for _, noGossip := range []bool{false, true}[:directorytest.Sample(2, 1)] {
			t.Run(fmt.Sprintf("%s, gossip %v", name, !noGossip), func(t *testing.T) {
				if strings.Contains(name, "key") { // takes minutes of the mesh for each
					story(t)
				}

				runStory(t, 2, func(t *testing.T, seed uint64) {
					m := mesh.Start(t, mesh.Options{Domains: 6, Nodes: 1, Seed: seed, Link: wan, NoGossip: noGossip})
					a := m.Register("alpha.test", "ada", 600)
					b := m.Register("beta.test", "bob", 600)
					m.Eventually(time.Minute, "all is seen everywhere", func() error { return m.Seen(a, b) })
					l := m.Corrupt("alpha.test")

					var first []string
					for _, k := range l.Doc.Keys {
						first = append(first, k.KeyID())
					}

					lie(m, l)
					took := m.Eventually(rounds, "all have frozen it", func() error { return m.Frozen("alpha.test") })
					t.Logf("frozen by all after %v", took)

					for _, n := range m.Living() {
						evidence := n.Evidence("alpha.test")

						report, err := trust.Verify(evidence,
							trust.VerifyOptions{Bundle: m.Domain("alpha.test").Bundle()})
						if trust.ExitCode(err) != 11 {
							t.Errorf("%s: exit code %d: %v\n%v", n.Name, trust.ExitCode(err), err, report)
						}
					}

					if err := m.Seen(a, b); err != nil {
						t.Errorf("its earlier registrations are not served: %v", err)
					}

					for _, n := range m.Living() {
						shown, err := m.Lookup(n)
						if err != nil || !shown[a.RID].Provenance.Verification.Disputed ||
							shown[b.RID].Provenance.Verification.Disputed {
							t.Errorf("%s marks as disputed: %+v, %+v, %v", n.Name, shown[a.RID], shown[b.RID], err)
						}
					}

					m.Domain("delta.test").Nodes[0].Kill()
					m.Domain("delta.test").Nodes[0].Restart()
					m.Eventually(time.Minute, "after a restart it is frozen", func() error {
						return m.Frozen("alpha.test")
					})

					if err := m.Release("alpha.test"); err == nil ||
						!strings.Contains(err.Error(), "still convicts alpha.test") {
						t.Errorf("it is released while its key holds: %v", err)
					}

					l.Rotate(first...)

					if err := m.Release("alpha.test"); err != nil {
						t.Errorf("once its keys are revoked: %v", err)
					}

					again := l.Last.Digests[0]
					// Statements from before the revocation are refused.
					again.Op = signed.OpRenew
					again.Revision = l.Doc.Seq + 1
					again.Deadline = again.Deadline - 20
					l.Say("beta.test", again)
					m.Eventually(2*time.Minute, "its announcements are accepted again", func() error {
						return announcedUntil(m, "beta.test", again)
					})
					sleepUntil(m, a.Until)
				})
			})
		}
	}
}

// renewal is the liar's next digest for its first registration: another deadline.
func renewal(l *mesh.Liar) signed.Digest {
	d := l.Last.Digests[0]
	d.Op = signed.OpRenew
	d.Revision = l.Last.At + 1
	d.Deadline = d.Deadline - 5

	return d
}

// A domain that signs two different things for two nodes of one domain is frozen there,
// although no third domain can be asked: for the mesh stream and for the domain's
// private stream.
//
// Requirement: MESH-022
func TestALiarIsFoundByTwoNodesOfOneDomain(t *testing.T) {
	for name, say := range map[string]func(*mesh.Liar, string, signed.Digest){
		"mesh": (*mesh.Liar).Say, "alone": (*mesh.Liar).SayAlone,
	} {
		t.Run(name, func(t *testing.T) {
			runStory(t, 1, func(t *testing.T, seed uint64) {
				m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan, NoGossip: true})
				a := m.Register("alpha.test", "ada", 600)
				b := m.Register("beta.test", "bob", 600)
				m.Eventually(time.Minute, "both are seen", func() error { return m.Seen(a, b) })
				l := m.Corrupt("alpha.test")

				d := renewal(l)
				for _, node := range []string{"beta.test/1", "beta.test/2", "beta.test/3"} {
					say(l, node, d)
					d.Deadline -= 5
				}

				took := m.Eventually(rounds, "all have frozen it", func() error { return m.Frozen("alpha.test") })
				t.Logf("frozen by all after %v", took)
			})
		})
	}
}

// announcedUntil returns nil when a domain shows a registration to the digest's deadline.
func announcedUntil(m *mesh.Mesh, domain string, d signed.Digest) error {
	shown, err := m.Lookup(m.Domain(domain).Nodes[0])
	if err != nil {
		return err
	}

	if until := shown[d.RID.String()].Provenance.ExpiresAt; until.Unix() != d.Deadline {
		return fmt.Errorf("it is shown until %v", until)
	}

	return nil
}

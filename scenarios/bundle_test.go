package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A domain's CA is replaced and no operator of a peer does anything: peers fetch its
// new bundle, believe its nodes throughout, and its old CA no longer once it is out
// of the bundle. While the endpoint can't be reached the last good bundle stays, and
// the operator sees why.
//
// Requirement: TRUST-002, TRUST-004
func TestAPeersNewCAIsFollowed(t *testing.T) {
	story(t)

	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{
			Domains: 2, Nodes: directorytest.Sample(3, 1), Seed: seed, Link: wan, Endpoints: true,
		})
		seen := m.Register("alpha.test", "before", 86400)
		m.Eventually(10*time.Second, "it is seen", func() error { return m.Seen(seen) })
		first := fingerprintAt(t, m, "beta.test")

		m.Domain("alpha.test").AddCA()
		m.Eventually(10*time.Minute, "beta.test believes both CAs", func() error {
			return fingerprintIsNot(t, m, "beta.test", first)
		})
		both := fingerprintAt(t, m, "beta.test")
		m.Domain("alpha.test").UseCA()
		m.Sleep(10 * time.Minute)
		between := m.Register("alpha.test", "between", 86400)
		m.Eventually(10*time.Second, "announcements by nodes with the new CA's SVIDs are accepted", func() error {
			return m.Seen(between)
		})
		m.Domain("alpha.test").DropCA()
		m.Eventually(10*time.Minute, "beta.test believes the new CA alone", func() error {
			return fingerprintIsNot(t, m, "beta.test", both)
		})
		after := m.Register("alpha.test", "after", 86400)
		m.Eventually(10*time.Second, "the domains are peers as before", func() error {
			return m.Seen(seen, between, after)
		})

		last := fingerprintAt(t, m, "beta.test")
		m.Cut("alpha.test", "beta.test")
		m.Eventually(20*time.Minute, "the operator sees it", func() error {
			for _, p := range peersAt(t, m, "beta.test") {
				if p.BundleError == "" {
					return fmt.Errorf("no error: %+v", p)
				}
			}

			return nil
		})

		if got := fingerprintAt(t, m, "beta.test"); got != last {
			t.Errorf("the last good bundle is gone: %s", got)
		}
	})
}

func peersAt(t *testing.T, m *mesh.Mesh, domain string) []apiclient.Peer {
	t.Helper()
	n := m.Domain(domain).Nodes[0]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	peers, _, err := apiclient.NewDirect(n.URL(), n.HTTP("/ops/operator")).Operator().Peers(ctx)
	must(t, err)

	return peers
}

func fingerprintAt(t *testing.T, m *mesh.Mesh, domain string) string {
	t.Helper()
	return strings.Join(peersAt(t, m, domain)[0].Fingerprints, " ")
}

func fingerprintIsNot(t *testing.T, m *mesh.Mesh, domain, old string) error {
	if fingerprintAt(t, m, domain) == old {
		return errors.New("the bundle is the old one")
	}

	return nil
}

// The node at whose address a domain's bundle is refreshed is dead while the domain replaces its CA.
// Its peer gets the new bundle from another node of the domain, and its operator does nothing.
//
// Requirement: TRUST-002, TRUST-004
func TestAPeersNewCAIsFollowedWithoutItsEndpoint(t *testing.T) {
	story(t)

	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Endpoints: true})
		alpha := m.Domain("alpha.test")
		first := fingerprintAt(t, m, "beta.test")

		alpha.Nodes[0].Kill()
		alpha.AddCA()
		m.Eventually(10*time.Minute, "beta.test believes both CAs", func() error {
			return fingerprintIsNot(t, m, "beta.test", first)
		})
		both := fingerprintAt(t, m, "beta.test")
		alpha.UseCA()
		m.Sleep(10 * time.Minute)
		alpha.DropCA()
		m.Eventually(10*time.Minute, "beta.test believes the new CA alone", func() error {
			return fingerprintIsNot(t, m, "beta.test", both)
		})
		agent := m.Register("alpha.test", "after", 86400)
		m.Eventually(10*time.Second, "the domains are peers as before", func() error { return m.Seen(agent) })

		for _, p := range peersAt(t, m, "beta.test") {
			if p.BundleError != "" {
				t.Errorf("the refresh fails: %s", p.BundleError)
			}
		}
	})
}

// A peer has addresses of a domain at which nothing listens, as after a restore onto other machines.
// The domain's nodes reach the peer and state where they are, so that it follows the domain again,
// its new bundle too. Its operator sees what to set.
//
// Requirement: MESH-019, TRUST-004
func TestAPeerFindsADomainThatHasMoved(t *testing.T) {
	story(t)

	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Endpoints: true, NoGossip: true})
		alpha, beta := m.Domain("alpha.test"), m.Domain("beta.test").Nodes[0]

		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()

		old := apiclient.PeerSettings{
			Addresses: []string{"https://old-1.alpha.test:8400", "https://old-2.alpha.test:8400"},
		}

		operator := apiclient.NewDirect(beta.URL(), beta.HTTP("/ops/operator")).Operator()
		must(t, operator.SetPeer(ctx, "alpha.test", old))

		for _, node := range m.Domain("beta.test").Nodes {
			node.Kill()
			node.Restart()
		}

		m.Sleep(time.Minute) // until the last pull at an old address has ended
		agent := m.Register("alpha.test", "moved", 86400)
		m.Eventually(2*time.Minute, "each node of beta.test follows alpha.test", func() error { return m.Seen(agent) })

		first := fingerprintAt(t, m, "beta.test")
		alpha.AddCA()
		m.Eventually(10*time.Minute, "beta.test believes both CAs", func() error {
			return fingerprintIsNot(t, m, "beta.test", first)
		})

		m.Eventually(10*time.Minute, "the operator of beta.test sees all addresses", func() error {
			for _, p := range peersAt(t, m, "beta.test") {
				if len(p.StatedAddresses) != len(alpha.Nodes) {
					return fmt.Errorf("these are %v", p.StatedAddresses)
				}
			}

			return nil
		})
	})
}

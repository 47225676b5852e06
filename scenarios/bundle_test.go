package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/wire"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust"
)

// A domain's CA is replaced and no operator of a peer does anything: peers fetch its
// new bundle, believe its nodes throughout, and its old CA no longer once it is out
// of the bundle. While the endpoint can't be reached the last good bundle stays, and
// the operator sees why.
//
// Requirement: TRUST-002, TRUST-004
func TestAPeersNewCAIsFollowed(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: full(3, 1), Seed: seed, Link: wan, Endpoints: true})
		seen := m.Register("alpha.test", "before", 86400)
		m.Eventually(time.Second, "it is seen", func() error { return m.Seen(seen) })
		first := fingerprintAt(t, m, "beta.test")

		m.Domain("alpha.test").AddCA()
		m.Eventually(10*time.Minute, "beta.test believes both CAs", func() error {
			return fingerprintIsNot(t, m, "beta.test", first)
		})
		both := fingerprintAt(t, m, "beta.test")
		m.Domain("alpha.test").UseCA()
		m.Sleep(10 * time.Minute)
		between := m.Register("alpha.test", "between", 86400)
		m.Eventually(5*time.Second, "announcements by nodes with the new CA's SVIDs are accepted", func() error {
			return m.Seen(between)
		})
		m.Domain("alpha.test").DropCA()
		m.Eventually(10*time.Minute, "beta.test believes the new CA alone", func() error {
			return fingerprintIsNot(t, m, "beta.test", both)
		})
		after := m.Register("alpha.test", "after", 86400)
		m.Eventually(5*time.Second, "the domains are peers as before", func() error {
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
	if err != nil {
		t.Fatal(err)
	}

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

// Anyone can read a domain's bundle at its well-known path, because the bundle itself is
// the root of trust.
//
// Requirement: TRUST-004
func TestABundleIsServed(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Seed: seed})
		n := m.Domain("alpha.test").Nodes[0]

		resp, err := n.HTTP("").Get(n.URL() + wire.BundlePath)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()

		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s: %v", resp.Status, body, err)
		}

		got, err := trust.ParseBundle(spiffeid.RequireTrustDomainFromString("alpha.test"), body)
		if err != nil {
			t.Fatal(err)
		}

		seq, _ := got.SequenceNumber()

		want := m.Domain("alpha.test").Bundle().X509Authorities()
		if seq == 0 || len(got.X509Authorities()) != 1 || !got.X509Authorities()[0].Equal(want[0]) {
			t.Errorf("served is %s", body)
		}
	})
}

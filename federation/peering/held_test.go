package peering_test

import (
	"testing"
	"testing/synctest"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/peering"
)

// A trusting has the bundles that are in force.
type trusting map[spiffeid.TrustDomain]string

func (b trusting) Set(td spiffeid.TrustDomain, bundle []byte) error {
	b[td] = string(bundle)
	return nil
}
func (b trusting) Remove(td spiffeid.TrustDomain) { delete(b, td) }

func withBundle(bundle string) directory.Peering {
	return directory.Peering{
		Domain: beta, State: directory.PeeringActive, Bundle: []byte(bundle),
		Endpoint: directory.BundleEndpoint{URL: "https://ad.beta.test/bundle"},
	}
}

// runTrusting runs a node to which one bundle is proven, and which appends those to be confirmed to asked.
func runTrusting(t *testing.T, dir string, domains peering.Consensus, proven *string,
	asked *[]*directory.BundleChange) (*peering.Agreements, trusting) {
	inForce := trusting{}

	node := loadWith(t, domains, dir, func(c *peering.Config) {
		c.Bundles = inForce
		c.Proven = func(_ spiffeid.TrustDomain, bundle []byte) bool { return string(bundle) == *proven }
		c.Judge = func(change *directory.BundleChange) { *asked = append(*asked, change) }
	})
	t.Cleanup(starts(t, node.Run))

	return node, inForce
}

// A bundle that one member alone brought in a snapshot is not in force until the peer's endpoint confirms it, also
// after a restart. The bundle before is, and the node starts without the endpoint.
//
// Requirement: SEC-012
func TestAnUnconfirmedBundleOfASnapshotIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(bundle string) *log {
			return &log{all: []directory.Peering{withBundle(bundle)}}
		}
		dir, proven := t.TempDir(), ""

		var asked []*directory.BundleChange

		// run starts a node, and checks the bundle that it has in force.
		run := func(domains *log, want string) (*peering.Agreements, trusting) {
			node, inForce := runTrusting(t, dir, domains, &proven, &asked)

			if inForce[beta] != want {
				t.Errorf("in force is %q, want %q", inForce[beta], want)
			}

			if known := node.BundlesInForce(); known != directory.BundlesHash(with(want).all) {
				t.Errorf("other members are not told of %q", want)
			}

			return node, inForce
		}

		run(with("old"), "old")
		run(with("old"), "old")
		run(with("forged"), "old")
		run(with("forged"), "old")

		node, inForce := run(with("new"), "old")
		if len(asked) != 3 || string(asked[2].Was.Bundle) != "old" || string(asked[2].Next) != "new" ||
			!node.Holds(asked[2]) {
			t.Fatalf("to be confirmed are %+v", asked)
		}

		node.Confirm(asked[0]) // of a run before: it changes nothing
		synctest.Wait()

		if inForce[beta] != "old" || !node.Holds(asked[2]) {
			t.Errorf("in force is %q after a forged one of a run before was confirmed", inForce[beta])
		}

		node.Confirm(asked[2])
		synctest.Wait()

		if inForce[beta] != "new" || node.Holds(asked[2]) {
			t.Errorf("in force is %q after the endpoint confirmed another", inForce[beta])
		}

		run(with("new"), "new")

		proven = "newest"

		run(with("newest"), "newest")
	})
}

// A bundle that waits for its confirmation is dropped once the domain has another one, or no peer: a late
// confirmation changes nothing. A domain that is a peer anew begins with the bundle of the new agreement.
//
// Requirement: SEC-012
func TestABundleThatWaitsEndsWithItsAgreement(t *testing.T) {
	for _, next := range []directory.Peering{
		withBundle("old"), withBundle("forged anew"), withBundle("forged").Ended(true),
	} {
		synctest.Test(t, func(t *testing.T) {
			var (
				asked []*directory.BundleChange
				store = &countedLog{changed: make(chan struct{})}
			)

			store.all = []directory.Peering{withBundle("old")}
			node, inForce := runTrusting(t, t.TempDir(), store, new(string), &asked)

			put := func(peering directory.Peering) {
				store.put(peering)
				synctest.Wait()
			}
			put(withBundle("forged"))

			if len(asked) != 1 || !node.Holds(asked[0]) {
				t.Fatalf("to be confirmed are %+v", asked)
			}

			put(next)

			if node.Holds(asked[0]) {
				t.Errorf("%s, %q: the bundle waits still", next.State, next.Bundle)
			}

			node.Confirm(asked[0])
			synctest.Wait()

			if inForce[beta] == "forged" {
				t.Errorf("%s, %q: the dropped bundle is in force", next.State, next.Bundle)
			}

			if next.State == directory.PeeringTerminated {
				if node.BundlesInForce() != directory.BundlesHash(nil) {
					t.Error("a former peer's bundle counts among those in force")
				}

				put(withBundle("anew"))

				if inForce[beta] != "anew" {
					t.Errorf("in force of a peer anew is %q", inForce[beta])
				}
			}
		})
	}
}

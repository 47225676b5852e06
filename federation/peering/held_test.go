package peering_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
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

// A bundle that one member alone brought in a snapshot is not in force until the peer's endpoint confirms it, also
// after a restart. The bundle before is, and the node starts without the endpoint.
//
// Requirement: SEC-012
func TestAnUnconfirmedBundleOfASnapshotIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(bundle string) *log {
			return &log{all: []directory.Peering{{
				Domain: beta, State: directory.PeeringActive, Bundle: []byte(bundle),
				Endpoint: directory.BundleEndpoint{URL: "https://ad.beta.test/bundle"},
			}}}
		}
		dir, proven := t.TempDir(), ""

		var asked []*directory.BundleChange

		// run starts a node, and checks the bundle that it has in force.
		run := func(domains *log, want string) (*peering.Agreements, trusting) {
			inForce := trusting{}

			node, err := peering.Load(peering.Config{
				Dir: dir, Bundles: inForce, Logger: slog.New(slog.DiscardHandler), Changed: func() {},
				Proven: func(_ spiffeid.TrustDomain, bundle []byte) bool { return string(bundle) == proven },
				Judge:  func(change *directory.BundleChange) { asked = append(asked, change) },
				ReplaceFile: func(path string, contents []byte, mode fs.FileMode) error {
					return os.WriteFile(path, contents, mode)
				},
			})
			if err != nil {
				t.Fatal(err)
			}

			node.Begin(domains)

			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)

			go node.Run(ctx)
			synctest.Wait()

			if inForce[beta] != want {
				t.Errorf("in force is %q, want %q", inForce[beta], want)
			}

			if known := node.BundlesInForce(); known != directory.BundlesHash(with(want).all) {
				t.Errorf("other members are not told of %q", want)
			}

			return node, inForce
		}

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

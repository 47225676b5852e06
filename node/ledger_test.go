package node

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/trust"
)

// openStore starts a domain alpha.test of one member, and returns once that leads.
func openStore(t *testing.T) *consensus.Store {
	t.Helper()

	td := spiffeid.RequireTrustDomainFromString("alpha.test")

	ca, err := trust.NewCA(td, time.Now())
	must(t, err)

	svid, err := ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(t, err)

	bundles := trust.NewBundles()
	must(t, bundles.SetX509(td, ca.Bundle().X509Authorities()))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	source := trust.NewSource(svid)

	store, err := consensus.Open(consensus.Config{
		Domain: td, Node: svid.ID, Dir: t.TempDir(), Listener: ln,
		Members: []consensus.Member{{ID: svid.ID, Address: ln.Addr().String()}},
		Dial: func(ctx context.Context, to string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to)
		},
		ServerTLS: trust.ServerTLS(source, bundles, nil),
		ClientTLS: trust.ClientTLS(source, bundles, AuthorizeNodesOf(td)),
		Index:     index.New(), Timing: consensus.LocalTiming,
	})
	must(t, err)

	t.Cleanup(func() { _ = store.Close() })

	again := time.Tick(5 * time.Millisecond)
	for end := time.Now().Add(time.Minute); store.Ready() != nil; <-again {
		if time.Now().After(end) {
			t.Fatal(store.Ready())
		}
	}

	return store
}

// The cosignatures of the log at hand are shown with no other log: its tree is not that of a former epoch.
//
// Requirement: LOG-019
func TestCosignaturesAreShownOfTheirEpoch(t *testing.T) {
	store := openStore(t)
	must(t, store.PinAudit(t.Context(), 1, directory.Hash{1}))

	own := consensus.Cosignatures{Epoch: store.Position().Epoch, Lines: "— beta.test/witness AAAA\n"}
	own.Size, own.Root = store.Ledger()
	must(t, store.KeepCosignatures(t.Context(), own))

	tree := ledger.Tree{Size: own.Size + 1, Root: directory.Hash{2}}
	if _, lines := (ledgers{store: store}).shown(own.Epoch, tree, 0); lines != own.Lines {
		t.Errorf("with the log at hand %q is shown", lines)
	}

	if shown, lines := (ledgers{store: store}).shown(own.Epoch-1, tree, 0); shown != tree || lines != "" {
		t.Errorf("of a former epoch, %+v is shown with %q", shown, lines)
	}
}

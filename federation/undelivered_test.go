package federation

import (
	"testing"

	"github.com/roster-mesh/roster/federation/protocol"
)

// A peer announces records and doesn't deliver them: so many count as missing and are requested as
// its quota allows, and the others when there is room. All that is delivered later is shown.
//
// Requirement: MESH-026
func TestUndeliveredRecordsAreBounded(t *testing.T) {
	const (
		announced = 6000
		bound     = 4096 // the least, for a quota of 10,000
	)

	w := newWorld()
	origin := newModel(alpha, beta)
	alphas := w.open(t, t.TempDir(), 1, origin, active(beta, 1))
	betas := w.open(t, t.TempDir(), 1, newModel(beta, alpha), active(alpha, 1))
	origin.listKeys(nil, alphas.keys)

	goods := newStock(origin, announced)
	delivered := goods.records
	goods.records = nil
	alphas.cfg.Source = goods
	alphas.reopen(t)

	betas.cfg.Records = 10_000
	betas.reopen(t)

	from := betas.origins.Get(alpha)
	giver := protocol.Node{Domain: alpha, Base: alphas.base}
	must(t, betas.pulls(from, &from.Mesh, giver))

	if status := betas.Peers()[0]; status.Pending != bound || status.OverQuota != announced-bound {
		t.Fatalf("%d records are missing and %d have no room, want %d and %d", status.Pending, status.OverQuota, bound,
			announced-bound)
	}

	betas.follower.backlog(t.Context(), from)

	if position, ok := from.Position(); !ok || position.Revision == 0 {
		t.Errorf("after a request the position is %v: readers wait for records that nobody has", position)
	}

	goods.records = delivered
	betas.reopen(t)

	from = betas.origins.Get(alpha)
	if status := betas.Peers()[0]; status.Pending != bound {
		t.Errorf("after a restart %d records are missing, want %d", status.Pending, bound)
	}

	for range 2 * announced / 1000 {
		betas.follower.backlog(t.Context(), from)
		must(t, from.Readmit())
	}

	if status := betas.Peers()[0]; status.Records != announced || status.Pending != 0 || status.OverQuota != 0 {
		t.Errorf("%d of %d delivered records are held, %d are missing and %d have no room", status.Records, announced,
			status.Pending, status.OverQuota)
	}
}

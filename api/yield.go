package api

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// releaseSlot gives back the slot of the call that ctx belongs to.
func releaseSlot(ctx context.Context) {
	if c := request.Of(ctx); c != nil {
		c.Slot.Release()
	}
}

// A yieldingRegistry releases a call's slot before it waits for the domain.
type yieldingRegistry struct{ Registry }

func (r yieldingRegistry) Register(ctx context.Context, ask directory.RegisterRequest) (directory.Outcome, error) {
	releaseSlot(ctx)
	return r.Registry.Register(ctx, ask)
}

func (r yieldingRegistry) Refresh(ctx context.Context, ask directory.RefreshRequest) (directory.Outcome, error) {
	releaseSlot(ctx)
	return r.Registry.Refresh(ctx, ask)
}

func (r yieldingRegistry) RefreshMany(ctx context.Context, ask directory.RefreshBatch) (directory.Outcome, error) {
	releaseSlot(ctx)
	return r.Registry.RefreshMany(ctx, ask)
}

func (r yieldingRegistry) Remove(ctx context.Context, ask directory.RemoveRequest) (directory.Outcome, error) {
	releaseSlot(ctx)
	return r.Registry.Remove(ctx, ask)
}

func (r yieldingRegistry) TransferOwner(ctx context.Context, ask directory.TransferRequest) (directory.Outcome, error) {
	releaseSlot(ctx)
	return r.Registry.TransferOwner(ctx, ask)
}

func (r yieldingRegistry) Linearize(ctx context.Context) error {
	releaseSlot(ctx)
	return r.Registry.Linearize(ctx)
}

// yieldingRecords releases a call's slot before it waits for another domain.
type yieldingRecords struct{ ad.Records }

func (r yieldingRecords) Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	releaseSlot(ctx)
	return r.Records.Record(ctx, origin, rid)
}

func (r yieldingRecords) Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error) {
	releaseSlot(ctx)
	return r.Records.Proof(ctx, origin, rid)
}

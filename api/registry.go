package api

import (
	"cmp"
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// A domainRegistry is the domain's for the server's calls. A call gives back its slot before it
// waits for the domain, and its change is recorded in the audit log.
type domainRegistry struct {
	Registry
	audit *auditor // nil without an audit log
	view  *index.View
	own   spiffeid.TrustDomain
}

func (r domainRegistry) Register(ctx context.Context, ask directory.RegisterRequest) (directory.Outcome, error) {
	event := directory.AuditEvent{Action: "register", Agent: ask.Agent, Owner: cmp.Or(ask.Owner, ask.Caller.Identity),
		Actor: ask.Caller.Identity, RequestID: ask.Caller.RequestID}

	// A registration that is replaced keeps its owner.
	for _, held := range r.view.Find(ask.Agent) {
		if held.Origin == r.own {
			event.Owner = held.Owner
		}
	}

	return r.change(ctx, event, func() (directory.Outcome, error) { return r.Registry.Register(ctx, ask) })
}

func (r domainRegistry) Refresh(ctx context.Context, ask directory.RefreshRequest) (directory.Outcome, error) {
	action := "refresh"
	if ask.Patch != nil {
		action = "update"
	}

	event := r.about(ask.RID, action, ask.Caller)
	event.Routine = ask.Patch == nil

	return r.change(ctx, event, func() (directory.Outcome, error) { return r.Registry.Refresh(ctx, ask) })
}

func (r domainRegistry) RefreshMany(ctx context.Context, ask directory.RefreshBatch) (directory.Outcome, error) {
	event := directory.AuditEvent{Action: "refresh", Actor: ask.Caller.Identity, RequestID: ask.Caller.RequestID,
		Routine: true}
	for _, item := range ask.Items {
		event.RIDs = append(event.RIDs, item.RID)
	}

	return r.change(ctx, event, func() (directory.Outcome, error) { return r.Registry.RefreshMany(ctx, ask) })
}

func (r domainRegistry) Remove(ctx context.Context, ask directory.RemoveRequest) (directory.Outcome, error) {
	event := r.about(ask.RID, "remove", ask.Caller)

	return r.change(ctx, event, func() (directory.Outcome, error) { return r.Registry.Remove(ctx, ask) })
}

func (r domainRegistry) TransferOwner(ctx context.Context, ask directory.TransferRequest) (directory.Outcome, error) {
	event := r.about(ask.RID, "transfer."+string(ask.Step), ask.Caller)
	event.Target = ask.To.String()

	return r.change(ctx, event, func() (directory.Outcome, error) { return r.Registry.TransferOwner(ctx, ask) })
}

func (r domainRegistry) Linearize(ctx context.Context) error {
	releaseSlot(ctx)

	return r.Registry.Linearize(ctx)
}

// change makes a change of a registration.
func (r domainRegistry) change(ctx context.Context, event directory.AuditEvent,
	propose func() (directory.Outcome, error)) (directory.Outcome, error) {
	releaseSlot(ctx)

	if r.audit == nil {
		return propose()
	}

	return r.audit.record(ctx, event, propose)
}

// about is an event about a registration of the domain, with its owner and name if this
// node has it.
func (r domainRegistry) about(rid directory.RID, action string, by directory.Caller) directory.AuditEvent {
	event := directory.AuditEvent{Action: action, RID: rid, Actor: by.Identity, RequestID: by.RequestID}
	if e, ok := r.view.Get(r.own, rid); ok {
		event.Owner = e.Owner
		event.Agent = e.Agent
	}

	return event
}

// releaseSlot gives back the slot of the call that ctx belongs to.
func releaseSlot(ctx context.Context) {
	if c := request.Of(ctx); c != nil {
		c.Slot.Release()
	}
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

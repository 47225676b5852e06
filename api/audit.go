package api

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// audit records everything that changes something in the audit log, around the domain's
// interfaces, so that no route can leave it out. Changes of registrations are recorded by
// the registry.
func (cfg *Config) audit() *auditor {
	a := &auditor{log: cfg.AuditLog}
	if cfg.Limits[admission.Writes] > 0 {
		a.refused = limit.NewRates[string](maxRefusedCallers)
	}

	cfg.Operator = auditedOperator{cfg.Operator, a}
	cfg.Peerings = auditedPeerings{cfg.Peerings, a}
	cfg.Cluster = auditedCluster{cfg.Cluster, a}
	cfg.Backups = auditedBackups{cfg.Backups, a}

	return a
}

// An auditor records changes in the audit log.
type auditor struct {
	log AuditLog
	// refused counts changes of callers that were refused; nil without limits.
	refused *limit.Rates[string]
}

// Each change that is refused by the domain has two lines in the audit log, which are
// written before that is known. So a caller may have only some of them: more would push the
// lines of others out (SEC-013).
var refusedChanges = limit.Rate{PerSecond: 2, Burst: 100}

const maxRefusedCallers = 1 << 16

// mayFail refuses a caller that has had too many changes refused.
func (a *auditor) mayFail(call *request.Call) error {
	if a.refused == nil || call.Anonymous() {
		return nil
	}

	if left, _, _ := a.refused.Take(auditKey(call), refusedChanges, time.Now(), 0); left >= 1 {
		return nil
	}

	return &problem.Refusal{
		Err: directory.Refuse(directory.RateLimited,
			"more than %d of your changes were refused; the limit is %v a second", refusedChanges.Burst,
			refusedChanges.PerSecond),
		Retry: 1,
	}
}

// failed counts a change that was refused.
func (a *auditor) failed(call *request.Call, err error) {
	if a.refused != nil && !call.Anonymous() && err != nil &&
		problem.Explain(err).Rule().Status < http.StatusInternalServerError {
		a.refused.Take(auditKey(call), refusedChanges, time.Now(), 1)
	}
}

// auditKey is the party whose refused changes count together.
func auditKey(call *request.Call) string {
	party := call.Caller().Party
	return cmp.Or(party.Group, party.ID)
}

// record makes a change between its intent and its outcome in the audit log.
func (a *auditor) record(
	ctx context.Context, event directory.AuditEvent, change func() (directory.Outcome, error),
) (directory.Outcome, error) {
	call := request.Of(ctx)
	if call == nil { // the node's own change
		call = &request.Call{}
	} else {
		event = call.Audit(event)
	}

	// The limit is checked before the first line is written, because each refused change takes two lines.
	if err := a.mayFail(call); err != nil {
		return directory.Outcome{}, err
	}

	done, err := a.log.Intend(event)
	if err != nil {
		return directory.Outcome{}, err
	}

	call.Audited = true
	outcome, err := change()
	a.failed(call, err)

	event.Outcome = request.OutcomeOf(err)

	event.Count = uint64(len(event.RIDs))
	event.RIDs = nil

	if err == nil && outcome.Position.Epoch != 0 {
		event.Revision = outcome.Position.String()
	}

	if !outcome.RID.IsZero() {
		event.RID = outcome.RID
	}

	if err == nil && outcome.Granted > 0 {
		event.Lifetime = outcome.Granted
		event.Credential = int64(call.Credential.Life.Seconds())
	}

	done(event)

	return outcome, err
}

// operate is record for an operator's change.
func (a *auditor) operate(ctx context.Context, action, target string, change func() error) error {
	_, err := a.record(ctx, directory.AuditEvent{Action: action, Target: target}, func() (directory.Outcome, error) {
		return directory.Outcome{}, change()
	})

	return err
}

// A domainRegistry is the domain's for the server's calls. A call gives back its slot before it
// waits for the domain, and its change is recorded in the audit log.
type domainRegistry struct {
	Registry
	audit *auditor
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

type auditedOperator struct {
	Operator
	*auditor
}

func (a auditedOperator) SetPeering(ctx context.Context, p directory.Peering) error {
	return a.operate(ctx, "peer."+string(p.State), p.Domain.Name(), func() error {
		return a.Operator.SetPeering(ctx, p)
	})
}

func (a auditedOperator) SetPolicy(ctx context.Context, by directory.Identity, text string,
	replaces []uint64) (directory.Outcome, error) {
	event := directory.AuditEvent{Action: "policy.write"}

	return a.record(ctx, event, func() (directory.Outcome, error) {
		return a.Operator.SetPolicy(ctx, by, text, replaces)
	})
}

func (a auditedOperator) RotateKey(ctx context.Context) error {
	return a.operate(ctx, directory.ActionRotateKey, "", func() error { return a.Operator.RotateKey(ctx) })
}

func (a auditedOperator) RevokeKey(ctx context.Context, id string) error {
	return a.operate(ctx, directory.ActionRevokeKey, id, func() error { return a.Operator.RevokeKey(ctx, id) })
}

func (a auditedOperator) EraseHistory(ctx context.Context, rid directory.RID) error {
	return a.operate(ctx, directory.ActionErase, rid.String(), func() error {
		return a.Operator.EraseHistory(ctx, rid)
	})
}

// An auditedPeerings doesn't embed its Peers: a change that is added to those must be
// audited here first.
type auditedPeerings struct {
	peerings operator.Peers
	*auditor
}

func (a auditedPeerings) Invited(secret string, peer spiffeid.TrustDomain) bool {
	return a.peerings.Invited(secret, peer)
}

func (a auditedPeerings) Set(ctx context.Context, peer spiffeid.TrustDomain, to operator.PeerSettings) error {
	return a.operate(ctx, "peer.set", peer.Name(), func() error { return a.peerings.Set(ctx, peer, to) })
}

func (a auditedPeerings) Invite(ctx context.Context, peer spiffeid.TrustDomain,
	life time.Duration, secret directory.Hash) (made wire.Invitation, err error) {
	err = a.operate(ctx, "peer.invite", peer.Name(), func() (err error) {
		made, err = a.peerings.Invite(ctx, peer, life, secret)
		return err
	})

	return made, err
}

func (a auditedPeerings) Accept(ctx context.Context, token operator.Token,
	expected []string) (accepted wire.Accepted, err error) {
	err = a.operate(ctx, "peer.accept", token.Domain, func() (err error) {
		accepted, err = a.peerings.Accept(ctx, token, expected)
		return err
	})

	return accepted, err
}

func (a auditedPeerings) Redeem(ctx context.Context, secret string,
	peer directory.Peering) (own directory.Peering, used bool, err error) {
	err = a.operate(ctx, "peer.redeem", peer.Domain.Name(), func() (err error) {
		own, used, err = a.peerings.Redeem(ctx, secret, peer)
		return err
	})

	return own, used, err
}

func (a auditedPeerings) Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error {
	return a.operate(ctx, "peer."+string(verb), peer.Name(), func() error { return a.peerings.Change(ctx, peer, verb) })
}

type auditedCluster struct {
	operator.Members
	*auditor
}

func (a auditedCluster) Transfer(ctx context.Context, to spiffeid.ID) error {
	return a.operate(ctx, "raft.transfer", to.String(), func() error { return a.Members.Transfer(ctx, to) })
}

func (a auditedCluster) Remove(ctx context.Context, id spiffeid.ID) error {
	return a.operate(ctx, "raft.remove", id.String(), func() error { return a.Members.Remove(ctx, id) })
}

func (a auditedCluster) Admit(ctx context.Context, id spiffeid.ID, withdraw bool) error {
	action := "raft.admit"
	if withdraw {
		action = "raft.admit.withdraw"
	}

	return a.operate(ctx, action, id.String(), func() error { return a.Members.Admit(ctx, id, withdraw) })
}

func (a auditedCluster) AdmitStanding(ctx context.Context, pattern string, most uint32) error {
	action := directory.ActionAdmit
	if most == 0 {
		action = directory.ActionWithdraw
	}

	return a.operate(ctx, action, pattern, func() error { return a.Members.AdmitStanding(ctx, pattern, most) })
}

func (a auditedCluster) ConfirmClock(ctx context.Context, step time.Duration) error {
	return a.operate(ctx, directory.ActionConfirmClock, step.String(), func() error {
		return a.Members.ConfirmClock(ctx, step)
	})
}

func (a auditedCluster) Leave(ctx context.Context) error {
	return a.operate(ctx, "raft.leave", "", func() error { return a.Members.Leave(ctx) })
}

type auditedBackups struct {
	operator.BackupStore
	*auditor
}

// Save changes nothing, but takes the whole state out of the domain.
func (a auditedBackups) Save(ctx context.Context, w io.Writer) error {
	return a.operate(ctx, "snapshot.save", "", func() error { return a.BackupStore.Save(ctx, w) })
}

func (a auditedBackups) Restore(
	ctx context.Context, backup io.Reader, options operator.RestoreOptions,
) (done wire.Restored, err error) {
	err = a.operate(ctx, "snapshot.restore", "", func() error {
		done, err = a.BackupStore.Restore(ctx, backup, options)
		return err
	})

	return done, err
}

// auditRefusal records that a change or an operator's request was refused before it came
// to a change. An operator's read that finds nothing, as a peer without evidence, is not refused.
func (s *Server) auditRefusal(call *request.Call, route *route, err error) {
	status := problem.Explain(err).Rule().Status
	level := route.who.level

	audited := level == levelIdentified || level == levelOperator || route.who.calls
	if call.Audited || !audited || status >= http.StatusInternalServerError {
		return
	}

	if level == levelOperator && route.method == http.MethodGet && status == http.StatusNotFound {
		return
	}

	action := route.who.action
	if action == "" {
		action = route.method + " " + route.path
	}

	s.cfg.AuditLog.Refused(call.Audit(directory.AuditEvent{Action: action, Outcome: request.OutcomeOf(err)}))
}

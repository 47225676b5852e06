package api

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/problem"
)

// A Trail keeps the audit trail of a node (trust.md, "Audit").
type Trail interface {
	// Intend is told of a change before it is proposed. Where it fails, which is
	// Unavailable, the change is not made.
	Intend(directory.AuditEvent) error
	// Done is told what became of it.
	Done(directory.AuditEvent)
	// Refused is told of what was refused before it came so far. It doesn't wait.
	Refused(directory.AuditEvent)
}

// audit puts the trail around everything that changes something, so that no route
// can leave it out.
func (cfg *Config) audit() {
	t := &trailed{cfg.Trail, cfg.View, cfg.Domain}
	cfg.Registry = auditedRegistry{cfg.Registry, t}
	if cfg.Operator != nil {
		cfg.Operator = auditedOperator{cfg.Operator, t}
	}
	if cfg.Peerings != nil {
		cfg.Peerings = auditedPeerings{cfg.Peerings, t}
	}
	if cfg.Cluster != nil {
		cfg.Cluster = auditedCluster{cfg.Cluster, t}
	}
	if cfg.Backups != nil {
		cfg.Backups = auditedBackups{cfg.Backups, t}
	}
}

type trailed struct {
	trail Trail
	view  *index.View
	own   spiffeid.TrustDomain
}

// by completes what is told of a call.
func (c *call) by(e directory.AuditEvent) directory.AuditEvent {
	e.RequestID, e.Actor, e.Policies = c.requestID, c.id, c.decided
	if e.Authn = c.credential.Method; e.Authn != "" && c.credential.ReadOnly {
		e.Authn += ", for reads"
	}
	return e
}

// do has a change made between its intent and its outcome.
func (t *trailed) do(ctx context.Context, e directory.AuditEvent, change func() (directory.Outcome, error)) (directory.Outcome, error) {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil { // the node's own doing
		c = &call{}
	} else {
		e = c.by(e)
	}
	if err := t.trail.Intend(e); err != nil {
		return directory.Outcome{}, err
	}
	c.audited = true
	out, err := change()
	e.Outcome, e.RIDs = outcomeOf(err), nil
	if err == nil && out.Position.Epoch != 0 {
		e.Revision = out.Position.String()
	}
	if !out.RID.IsZero() {
		e.RID = out.RID
	}
	if err == nil && out.Granted > 0 {
		e.Lifetime, e.Credential = out.Granted, int64(c.credential.Life.Seconds())
	}
	t.trail.Done(e)
	return out, err
}

func outcomeOf(err error) string {
	if err == nil {
		return "ok"
	}
	return string(problem.Explain(err).Err.Problem)
}

// of tells of a registration of the domain, where this node has it.
func (t *trailed) of(rid directory.RID, action string, by directory.Caller) directory.AuditEvent {
	e := directory.AuditEvent{Action: action, RID: rid, Actor: by.Identity, RequestID: by.RequestID}
	if entry, ok := t.view.Get(t.own, rid); ok {
		e.Owner, e.Agent = entry.Owner, entry.Agent
	}
	return e
}

// Registry is the domain's, with what is told of its changes to the audit trail: for
// what a node does of its own.
func (s *Server) Registry() Registry { return s.cfg.Registry }

type auditedRegistry struct {
	Registry
	*trailed
}

func (a auditedRegistry) Register(ctx context.Context, r directory.Registering) (directory.Outcome, error) {
	e := directory.AuditEvent{Action: "register", Agent: r.Agent, Owner: cmp.Or(r.Owner, r.Caller.Identity), Actor: r.Caller.Identity, RequestID: r.Caller.RequestID}
	for _, held := range a.view.Find(r.Agent) {
		if held.Origin == a.own {
			e.Owner = held.Owner
		}
	}
	return a.do(ctx, e, func() (directory.Outcome, error) { return a.Registry.Register(ctx, r) })
}

func (a auditedRegistry) Refresh(ctx context.Context, r directory.Refreshing) (directory.Outcome, error) {
	action := "refresh"
	if r.Patch != nil {
		action = "update"
	}
	return a.do(ctx, a.of(r.RID, action, r.Caller), func() (directory.Outcome, error) { return a.Registry.Refresh(ctx, r) })
}

func (a auditedRegistry) RefreshMany(ctx context.Context, r directory.RefreshingMany) (directory.Outcome, error) {
	e := directory.AuditEvent{Action: "refresh", Actor: r.Caller.Identity, RequestID: r.Caller.RequestID}
	for _, item := range r.Items {
		e.RIDs = append(e.RIDs, item.RID)
	}
	return a.do(ctx, e, func() (directory.Outcome, error) { return a.Registry.RefreshMany(ctx, r) })
}

func (a auditedRegistry) Remove(ctx context.Context, r directory.Removing) (directory.Outcome, error) {
	return a.do(ctx, a.of(r.RID, "remove", r.Caller), func() (directory.Outcome, error) { return a.Registry.Remove(ctx, r) })
}

func (a auditedRegistry) TransferOwner(ctx context.Context, r directory.Transferring) (directory.Outcome, error) {
	e := a.of(r.RID, "transfer", r.Caller)
	e.Target = r.To.String()
	return a.do(ctx, e, func() (directory.Outcome, error) { return a.Registry.TransferOwner(ctx, r) })
}

// operate is do for what an operator does.
func (t *trailed) operate(ctx context.Context, action, target string, change func() error) error {
	_, err := t.do(ctx, directory.AuditEvent{Action: action, Target: target}, func() (directory.Outcome, error) { return directory.Outcome{}, change() })
	return err
}

type auditedOperator struct {
	Operator
	*trailed
}

func (a auditedOperator) SetPeering(ctx context.Context, p directory.Peering) error {
	return a.operate(ctx, "peer."+string(p.State), p.Domain.Name(), func() error { return a.Operator.SetPeering(ctx, p) })
}

func (a auditedOperator) SetPolicy(ctx context.Context, by directory.Identity, text string, replaces []uint64) (directory.Outcome, error) {
	e := directory.AuditEvent{Action: "policy.write"}
	return a.do(ctx, e, func() (directory.Outcome, error) { return a.Operator.SetPolicy(ctx, by, text, replaces) })
}

// Its Peerings are not embedded: what they learn to change must be audited here first.
type auditedPeerings struct {
	peerings Peerings
	*trailed
}

func (a auditedPeerings) Invited(secret string, peer spiffeid.TrustDomain) bool {
	return a.peerings.Invited(secret, peer)
}

func (a auditedPeerings) Set(ctx context.Context, peer spiffeid.TrustDomain, to PeerSettings) error {
	return a.operate(ctx, "peer.set", peer.Name(), func() error { return a.peerings.Set(ctx, peer, to) })
}

func (a auditedPeerings) Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration) (made wire.Invitation, err error) {
	err = a.operate(ctx, "peer.invite", peer.Name(), func() (err error) {
		made, err = a.peerings.Invite(ctx, peer, life)
		return err
	})
	return made, err
}

func (a auditedPeerings) Accept(ctx context.Context, token Token) error {
	return a.operate(ctx, "peer.accept", token.Domain, func() error { return a.peerings.Accept(ctx, token) })
}

func (a auditedPeerings) Redeem(ctx context.Context, secret string, peer directory.Peering) error {
	return a.operate(ctx, "peer.redeem", peer.Domain.Name(), func() error { return a.peerings.Redeem(ctx, secret, peer) })
}

func (a auditedPeerings) Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error {
	return a.operate(ctx, "peer."+string(verb), peer.Name(), func() error { return a.peerings.Change(ctx, peer, verb) })
}

type auditedCluster struct {
	Cluster
	*trailed
}

func (a auditedCluster) Transfer(ctx context.Context, to spiffeid.ID) error {
	return a.operate(ctx, "raft.transfer", to.String(), func() error { return a.Cluster.Transfer(ctx, to) })
}

func (a auditedCluster) Remove(ctx context.Context, id spiffeid.ID) error {
	return a.operate(ctx, "raft.remove", id.String(), func() error { return a.Cluster.Remove(ctx, id) })
}

func (a auditedCluster) Admit(ctx context.Context, id spiffeid.ID, not bool) error {
	action := "raft.admit"
	if not {
		action = "raft.admit.withdraw"
	}
	return a.operate(ctx, action, id.String(), func() error { return a.Cluster.Admit(ctx, id, not) })
}

func (a auditedCluster) Leave(ctx context.Context) error {
	return a.operate(ctx, "raft.leave", "", func() error { return a.Cluster.Leave(ctx) })
}

type auditedBackups struct {
	Backups
	*trailed
}

// Save changes nothing, and lets all that there is out of the domain.
func (a auditedBackups) Save(ctx context.Context, w io.Writer) error {
	return a.operate(ctx, "snapshot.save", "", func() error { return a.Backups.Save(ctx, w) })
}

func (a auditedBackups) Restore(ctx context.Context, backup io.Reader, force bool, reason string) (done wire.Restored, err error) {
	err = a.operate(ctx, "snapshot.restore", "", func() error {
		done, err = a.Backups.Restore(ctx, backup, force, reason)
		return err
	})
	return done, err
}

// refused tells the trail of a change or an operator's question that was refused
// before it came so far.
func (s *Server) refused(c *call, row row, err error) {
	status := problem.Explain(err).Rule().Status
	changes := row.who.level == levelIdentified || row.who.level == levelOperator || row.who.calls
	if s.cfg.Trail == nil || c.audited || !changes || status >= http.StatusInternalServerError {
		return
	}
	action := row.who.action
	if action == "" {
		action = row.method + " " + row.path
	}
	s.cfg.Trail.Refused(c.by(directory.AuditEvent{Action: action, Outcome: outcomeOf(err)}))
}

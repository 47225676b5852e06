package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
	"github.com/roster-mesh/roster/trust/policy"
)

// orders checks operators' requests: at this node, when one arrives; at the leader, before its
// command is proposed; and at every node, after a command was applied.
type orders struct {
	domain  spiffeid.TrustDomain
	node    spiffeid.ID
	require bool // operator.require_proof
	chains  *trust.ChainVerifier
	policy  *policy.Policy // in force
	builtin *policy.Policy
	store   func() *consensus.Store
}

func newOrders(n *Node) (*orders, error) {
	builtin, err := policy.New(n.cfg.Policy, n.cfg.TrustDomain)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}

	return &orders{
		domain: n.cfg.TrustDomain, node: n.id, require: n.cfg.RequiresProof(),
		chains: trust.NewClientVerifier(n.bundles), policy: n.policy, builtin: builtin,
		store: func() *consensus.Store { return n.store },
	}, nil
}

// Accept implements api.Orders: it checks a request as it arrives, and completes it.
func (o *orders) Accept(request *directory.OperatorRequest) error {
	if err := o.store().MustVote(); err != nil {
		return err
	}

	request.From = o.node

	if request.Proof == "" {
		if o.require {
			return errNoProof
		}

		return nil
	}

	proof, err := operatorproof.Parse(request.Proof)
	if err != nil {
		return refused(err)
	}

	request.ProofID = proofID(request.By, proof)
	request.ProofUntil = proof.Expires.Add(operatorproof.Skew).Unix()

	// The proof arrives ahead of the body. The body, once it has been read, must have this hash.
	if request.BodyHash.IsZero() {
		request.BodyHash = proof.BodyHash()
	}

	return o.verify(request, time.Now())
}

// Precede implements api.Orders.
func (o *orders) Precede(ctx context.Context, action, target string) error {
	return o.store().Order(ctx, action, target)
}

var errNoProof = directory.Refuse(directory.Forbidden,
	"an operator's change needs the header field %s: the roster program and the Go client send it, and "+
		"\"roster proof METHOD URL FILE\" prints it for other programs; nothing was changed", operatorproof.Header)

func refused(err error) error {
	return directory.Refuse(directory.Forbidden, "%w; nothing was changed", err)
}

// proofID identifies a proof for its one use: its jti, of that operator.
func proofID(by directory.Identity, proof *operatorproof.Proof) directory.Hash {
	return sha256.Sum256([]byte("roster-op\x00" + by.String() + "\x00" + proof.ID))
}

// reservedPath begins the IDs of nodes and gateways of every domain.
const reservedPath = "/roster/"

// verify checks the proof of a request at a time.
func (o *orders) verify(request *directory.OperatorRequest, at time.Time) error {
	proof, err := operatorproof.Parse(request.Proof)
	if err == nil {
		err = proof.VerifySignature()
	}

	if err == nil {
		err = proof.Covers(operatorproof.Request{
			Domain: o.domain.Name(), Method: request.Method, URL: request.Target, Body: request.BodyHash,
		}, at)
	}

	if err != nil {
		return refused(err)
	}

	id, err := o.chains.Verify(proof.Chain, at)

	switch {
	case err != nil:
		return refused(fmt.Errorf("the certificate of the operator's proof: %w", err))
	case directory.IdentityOf(id) != request.By:
		return directory.Refuse(directory.Forbidden, "the proof is by %s, and the request by %s; nothing was changed",
			id, request.By)
	case id.TrustDomain() != o.domain:
		// Whatever policy permits: another domain's authority is not to order anything here.
		return directory.Refuse(directory.Forbidden, "%s is no identity of %s; nothing was changed", id,
			o.domain.Name())
	case strings.HasPrefix(id.Path(), reservedPath):
		// Whatever policy permits: a stolen node's key is to order nothing.
		return directory.Refuse(directory.Forbidden, "%s is no operator; nothing was changed", id)
	case request.ProofID != proofID(request.By, proof),
		request.ProofUntil != proof.Expires.Add(operatorproof.Skew).Unix():
		// The member that brought the request has computed both. By another ID, one proof could be used twice.
		return directory.Refuse(directory.Forbidden, "the request names another proof than it has; nothing was changed")
	case request.Body != nil && sha256.Sum256(request.Body) != request.BodyHash:
		return directory.Refuse(directory.Forbidden, "the proof is for another body; nothing was changed")
	}

	return nil
}

// CheckCommand checks who ordered an operator's command: the proof of the request, that policy
// permits it to the operator, and that the request asks for this command.
func (o *orders) CheckCommand(command directory.OperatorCommand) error {
	request := command.Request
	if request == nil || request.Proof == "" {
		if o.require {
			return directory.Refuse(directory.Forbidden,
				"%s is an operator's command and came without the operator's proof from %s; nothing was changed",
				command.Action, command.From)
		}

		return nil // the member that brought it vouches for it
	}

	at := command.Judged

	// The domain's time is without the step that the operator confirms, and the proof's is with it.
	if command.Action == directory.ActionConfirmClock {
		step, err := directory.ParseClockStep(command.Target)
		if err != nil {
			return err
		}

		at = at.Add(step)
	}

	if err := o.verify(request, at); err != nil {
		return err
	}

	action, err := apioperator.CheckOrder(o.domain, command.OperatorChange, request)
	if err != nil {
		return err
	}

	// The policy before the command decides: the command may itself replace the policy.
	in := o.builtin
	if len(command.Policy) > 0 {
		if in, err = o.policy.With(policyFile, command.Policy); err != nil {
			return err
		}
	}

	if !in.Operate(request.By, action).Allow {
		return directory.Refuse(directory.Forbidden, "%s may not do %q; nothing was changed", request.By, action)
	}

	return nil
}

// CheckFarewell checks that the operator of a peer has ended the peering, as its nodes say.
func (o *orders) CheckFarewell(change *directory.PeeringChange, at time.Time) error {
	if change.Was == nil {
		return directory.Refuse(directory.Forbidden, "a farewell names the peering that it ends; nothing was changed")
	}

	return judgeFarewell(*change.Was, o.domain, change.Farewell, at)
}

// A commandRecorder writes the commands of operators, and of nodes where an operator could have
// made them, into this node's audit log once they are applied here, and reports those whose
// proof does not hold.
type commandRecorder struct {
	store   *consensus.Store
	orders  *orders
	trail   *audit.Log
	log     *slog.Logger
	invalid func() // counts
	// unchecked counts commands that were not checked, by reason.
	unchecked *prometheus.CounterVec
	removals  *removals
	bundle    func(*directory.BundleChange) // has a peer's new bundle checked at its source
	started   directory.Position            // of the last command in the audit log when the node started
}

// run records commands until ctx ends. Where the node starts, it goes on behind the last
// command in the audit log.
func (r *commandRecorder) run(ctx context.Context) {
	r.started = r.trail.LastApplied()
	last := r.started.Revision

	for {
		// The channel is taken before the commands are read, so a command that is applied meanwhile closes it.
		changed := r.store.Agreed()
		last = r.recordNews(r.store.Commands.After(last), r.store.Position().Epoch)

		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// recordNews records commands and the gaps between them, and returns the number of the newest one. A
// restored history begins behind a lower number than that of the last recorded command.
func (r *commandRecorder) recordNews(news consensus.News, epoch uint64) uint64 {
	last := news.After

	for _, command := range news.Commands {
		r.missed(command.Position.Epoch, last+1, command.Number-1, news.InState)
		r.record(command)
		last = command.Number
	}

	r.missed(epoch, last+1, news.Newest, news.InState)

	return news.Newest
}

// missed records that this node has no line for the commands from first to last. Those up to inState
// came in a snapshot. The others were applied here, and dropped before they were checked: a leader may
// have made them to hide another.
func (r *commandRecorder) missed(epoch, first, last, inState uint64) {
	if until := min(last, inState); first <= until {
		r.gap(epoch, first, until, metrics.MissedSnapshot)
		first = until + 1
	}

	if first <= last {
		r.gap(epoch, first, last, metrics.MissedOverflow)
	}
}

func (r *commandRecorder) gap(epoch, first, last uint64, reason string) {
	count := last - first + 1
	event := directory.AuditEvent{
		Action: "commands.skipped", Count: count, Outcome: directory.OutcomeOK,
		Position: directory.Position{Epoch: epoch, Revision: last},
	}

	if reason == metrics.MissedOverflow {
		event.Outcome = directory.OutcomeUnchecked
		r.log.Error("operators' commands were applied faster than this node could check them and have no lines in "+
			"its audit log; a member's key may be stolen: compare with another node's log",
			"first", first, "last", last)
	} else {
		r.log.Warn("operators' commands have no lines in this node's audit log: they came in a snapshot; see "+
			"another node's log", "first", first, "last", last)
	}

	r.unchecked.WithLabelValues(reason).Add(float64(count))
	r.write(event)
}

func (r *commandRecorder) record(command directory.OperatorCommand) {
	event := directory.AuditEvent{
		Action: command.Action, Target: command.Target, Outcome: directory.OutcomeOK,
		Revision:   command.Position.String(),
		Position:   directory.Position{Epoch: command.Position.Epoch, Revision: command.Number},
		Agent:      command.Agent,
		Difference: r.orders.difference(&command),
		Payload:    string(command.Logged),
	}
	if !command.From.IsZero() {
		event.BroughtBy = directory.IdentityOf(command.From)
	}

	switch request := command.Request; {
	case command.Node:
		event.By, event.Entitlement = directory.ByNode, entitlements[command.Action]
	case request == nil:
		event.AttestedBy = event.BroughtBy
	default:
		event.Actor, event.Proof = request.By, request.Proof
		if request.Proof == "" {
			event.AttestedBy = event.BroughtBy
		}
	}

	// The command is in force on all members by now, so a bad proof is reported and undoes nothing.
	if err := r.check(&command); err != nil {
		event.Outcome = directory.OutcomeUnproven

		r.invalid()
		r.log.Error("an operator's command was applied without a valid proof; a member's key may be stolen",
			"action", command.Action, "target", command.Target, "brought_by", event.BroughtBy.String(),
			"revision", event.Revision, "err", err)
	}

	r.removals.note(&command)
	r.write(event)

	// A node that starts applies a part of its log again. The endpoint may have replaced those bundles.
	if again := command.Again && !r.started.Before(event.Position); command.Bundle != nil && !again {
		r.bundle(command.Bundle)
	}
}

// check checks an operator's command, and the farewell of a peer's operator that a node brought.
func (r *commandRecorder) check(command *directory.OperatorCommand) error {
	switch {
	case command.Action == directory.ActionFarewell:
		return r.orders.CheckFarewell(command.Peering, command.Judged)
	case command.Node:
		return nil
	}

	return r.orders.CheckCommand(*command)
}

func (r *commandRecorder) write(event directory.AuditEvent) {
	if err := r.trail.Applied(event); err != nil {
		r.log.Error("an applied command is missing in the audit trail", "action", event.Action, "revision",
			event.Revision, "err", err)
	}
}

// entitlements has, by action, the reason that entitles a node to act by itself.
var entitlements = map[string]string{
	directory.ActionRedeem:   "invitation",
	directory.ActionBundle:   "bundle-endpoint",
	directory.ActionFarewell: "farewell of the peer's operator",
	directory.ActionFreeze:   "evidence",
	directory.ActionConfirm:  "acceptance by the operator",
	directory.ActionJoin:     "admission",
	directory.ActionForget:   "removal",
	directory.ActionMove:     "request of the member, after its former address is silent",
	directory.ActionFeature:  "versions that all members read",

	directory.ActionPinBundle: "authorities of the domain",
	directory.ActionPinAudit:  "audit log of the member",
}

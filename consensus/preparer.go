package consensus

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/names"
	"github.com/roster-mesh/roster/directory/signed"
)

// A preparer makes commands of requests, as the leader: it completes them with all that
// apply may not find out by itself (time, randomness, policy), and refuses in advance
// the requests that apply would refuse.
type preparer struct {
	*member
}

// prepareFor makes the command that is proposed for a request.
func (p *preparer) prepareFor(req *message.Request) (*state.Command, error) {
	// Of a forwarded request only the caller's identity counts: another member's key may be stolen.
	if forwarded := !req.From.IsZero(); forwarded && p.cfg.Commission != nil {
		caller := req.Caller().Identity
		req.SetCommissioning(!caller.IsZero() && p.cfg.Commission(caller))
	}

	command, err := p.prepare(req)
	if err == nil {
		err = p.judgedNow(req.Caller())
	}

	if err != nil {
		return nil, err
	}

	command.Spend = req.Proof()

	command.Origin = req.Origin(p.cfg.Node)

	// For an operator's command, orderDesk sets it.
	command.Origin.Operator = nil

	return command, nil
}

// prepare makes the command, except for its proof.
func (p *preparer) prepare(req *message.Request) (*state.Command, error) {
	switch {
	case req.Register != nil:
		return p.prepareRegister(req.Register, !req.From.IsZero())
	case req.Refresh != nil && (req.Refresh.Patch != nil || p.replica.unconfirmed(req.Refresh.RID)):
		// The refresh of an unconfirmed registration is an update, because it takes a statement of this epoch.
		return p.prepareUpdate(req.Refresh, !req.From.IsZero())
	case req.Refresh != nil:
		r := req.Refresh

		return &state.Command{Refresh: &state.Refresh{RID: r.RID, Caller: r.Caller.Identity,
			Commissioning: r.Caller.Commissioning, Lifetime: p.grantLifetime(r.Lifetime), IfMatch: r.IfMatch}}, nil
	case req.Renew != nil:
		return p.prepareRenew(req.Renew)
	case req.Remove != nil:
		r := req.Remove

		return &state.Command{Remove: &state.Remove{Format: p.replica.statementFormat(), RID: r.RID,
			Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, IfMatch: r.IfMatch}}, nil
	case req.Transfer != nil:
		return p.prepareTransfer(req.Transfer, !req.From.IsZero())
	case req.Offer != nil:
		return p.prepareOffer(req.Offer, !req.From.IsZero())
	case req.Peer != nil:
		return &state.Command{Peer: req.Peer}, p.checkPeering(req.Peer)
	case req.Amend != nil:
		return &state.Command{Amend: req.Amend}, p.checkPeering(&req.Amend.Peer)
	case req.Rebundle != nil:
		return &state.Command{Rebundle: req.Rebundle}, p.checkBundle(req)
	case req.Redeem != nil:
		return p.prepareRedeem(req.Redeem)
	case req.Policy != nil:
		return &state.Command{Policy: req.Policy}, p.checkPolicy(req.Policy)
	case req.Spend != nil:
		// The command has no member. prepareFor puts the proof beside it.
		return &state.Command{}, nil
	case req.Claim != nil:
		return &state.Command{Claim: req.Claim}, p.checkClaim(req.Claim)
	case req.Settle != nil:
		return &state.Command{Settle: p.withinShare(req.Settle)}, req.Settle.Check()
	case req.Attest != nil:
		return p.prepareKey(req.Attest)
	case req.Cosign != nil:
		return p.prepareCosign(req.Cosign, !req.From.IsZero())
	case req.Witnessed != nil:
		return &state.Command{Witnessed: req.Witnessed}, p.checkWitnessed(req.Witnessed)
	case req.Revoke != nil:
		return &state.Command{Revoke: req.Revoke}, ask(p.replica, func(s *state.State) error {
			return s.Keys().CheckRevoke(req.Revoke)
		})
	case req.Pin != nil:
		return &state.Command{Pin: req.Pin}, ask(p.replica, func(s *state.State) error {
			return s.Pins().Check(req.Pin)
		})
	case req.Erase != nil:
		return &state.Command{Erase: req.Erase}, ask(p.replica, func(s *state.State) error {
			return s.Erasures().CheckErase(req.Erase)
		})
	}

	return nil, directory.Refuse(directory.BadRequest, "unknown request: the member that sent it runs another release")
}

// judgedNow refuses a request that was permitted by another version of the policy. It is
// asked after the grants were decided, and apply accepts only grants of the policy in
// force.
func (p *preparer) judgedNow(caller message.Caller) error {
	if caller.PolicyVersion == nil {
		return nil
	}

	return ask(p.replica, func(s *state.State) error {
		if *caller.PolicyVersion != policyVersion(s) {
			return overtaken("the domain has had another policy since this was permitted")
		}

		return nil
	})
}

func (p *preparer) prepareRegister(r *message.Register, forwarded bool) (*state.Command, error) {
	now := p.cfg.Clock.Now().UnixMilli()

	register := &state.Register{
		Format: p.replica.statementFormat(), RID: newRID(now), Salt: newSalt(),
		Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning,
		Agent: r.Agent, Kind: r.Kind, Document: r.Document,
		Lifetime: p.grantLifetime(r.Lifetime), Visibility: r.Visibility, IfMatch: r.IfMatch, Present: r.Present,
		Absent: r.Absent, For: r.For,
	}
	register.Lifetime = cmp.Or(register.Lifetime, directory.DefaultLifetime)

	if err := names.Check(register.Agent); err != nil {
		return nil, err
	}

	if register.Agent == "" {
		register.Agent = register.RID.String()
	}

	doc, err := directory.LoadDocument(register.Kind, register.Document).Decompressed()
	if err != nil {
		return nil, state.Damaged(err)
	}

	// The member has parsed the document, too, but its key may be stolen.
	if forwarded {
		if doc, err = directory.ParseDocument(register.Kind, doc.Bytes()); err != nil {
			return nil, err
		}
	}

	subject := Subject{register.RID, register.Agent, register.Owner(), doc, nil, register.Visibility}

	var (
		held *directory.Entry
		full error
	)

	p.replica.view(func(s *state.State) { held, full = replaced(s, register, r.Keep, &subject, now) })

	if directory.ProblemOf(full) == directory.QuotaExceeded {
		// It is refused here, and not once more for each attempt in the log, with its document.
		return nil, full
	}

	if err := prepareDates(register, held, subject.Document, now); err != nil {
		return nil, err
	}

	register.ImportedFrom = doc.Source()

	projection, made, err := state.Project(register.Agent, subject.Document, r.Packed)
	if err != nil {
		return nil, err
	}

	err = p.permit(forwarded, Proposal{r.Caller.Identity, cmp.Or(r.For, r.Caller.Identity), register.Agent,
		projection, register.Visibility})
	if err != nil {
		return nil, err
	}

	subject.Projection = projection
	register.Granted, register.Made = p.decide(subject), made
	made.Complete(subject.Agent, subject.Document, register.Provenance(), register.Salt, register.Granted)

	return &state.Command{Register: register}, nil
}

// replaced returns the registration that a command replaces, nil if none, and completes the
// subject by it. full is the reason why the quotas have no room for the command.
func replaced(s *state.State, register *state.Register, keep bool, subject *Subject, now int64) (held *directory.Entry,
	full error) {
	old := s.Registrations().Named(register.Agent)

	var ends *state.Registration

	// A registration past its deadline is there until the sweep, and has the name no more.
	if old != nil && old.Entry().ExpiresAt <= max(now, s.History().Now()) {
		old, ends = nil, old
	}

	if old != nil {
		held = old.Entry()

		subject.RID = held.RID

		// A caller with the commissioning role replaces in the owner's name.
		if register.Commissioning && register.For.IsZero() {
			subject.Owner = held.Owner
		}

		if keep {
			register.Visibility, subject.Visibility = held.Visibility, held.Visibility
		}
	}

	// Otherwise another owner has the name, and apply refuses the command for that.
	if held == nil || held.Owner == subject.Owner {
		full = s.Registrations().Permits(register, old, ends, subject.Owner)
	}

	return held, full
}

// permit asks policy about the contents of a registration, if another member brings them: that member has
// asked its own policy, and may be a thief of its key.
func (p *preparer) permit(forwarded bool, proposal Proposal) error {
	if !forwarded || p.cfg.Permit == nil {
		return nil
	}

	return p.cfg.Permit(proposal)
}

// decide asks policy for the subject's grants. An incomplete grant is dropped.
func (p *preparer) decide(subject Subject) state.Granted {
	granted := state.Granted{Owner: subject.Owner, Policy: ask(p.replica, func(s *state.State) uint64 {
		return s.Policy().Basis()
	})}

	if p.cfg.Grants == nil {
		return granted
	}

	seen := map[directory.Audience]bool{{}: true}
	for _, w := range state.GrantsOf(p.cfg.Grants(subject)) {
		if !seen[w.Audience] && directory.Grant(w).Complete(subject.Document.Kind()) {
			seen[w.Audience] = true
			granted.Grants = append(granted.Grants, w)
		}
	}

	return granted
}

// grantLifetime is AD-011: over the maximum is granted the maximum.
func (p *preparer) grantLifetime(asked uint32) uint32 { return min(asked, p.cfg.MaxLifetime) }

func newRID(now int64) directory.RID {
	var entropy [10]byte
	_, _ = rand.Read(entropy[:]) // never fails

	return directory.NewRID(now, entropy)
}

func newSalt() (salt signed.Salt) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}

// prepareDates checks a document's dates against the clock and the registration that it
// replaces, nil for none, and completes r.
func prepareDates(r *state.Register, held *directory.Entry, doc directory.Document, now int64) error {
	dates := kinds.DatesOf(doc)
	switch at := time.UnixMilli(now); {
	case dates.Updated.Sub(at) > maxAhead:
		return directory.Refuse(directory.BadDocument,
			"updated_at is %s ahead of this directory's clock; at most %s are allowed",
			dates.Updated.Sub(at).Round(time.Second), maxAhead).At("/updated_at")
	case !dates.Expires.IsZero():
		r.Until = state.EndOf(doc)
		if _, err := state.CapLifetime(r.Lifetime, r.Until, now); err != nil {
			return err
		}
	}

	if doc.Kind() != directory.KindProfile {
		return nil
	}

	switch {
	case held == nil && (r.Present || r.Absent || r.IfMatch != nil):
		// apply evaluates the caller's conditions
	case held == nil:
		// No registration was compared, so the command holds only while the name is free.
		r.Absent = true
	case held.Owner != r.Owner() && (!r.Commissioning || !r.For.IsZero()), r.Absent, r.IfMatch != nil &&
		!slices.Contains(r.IfMatch, held.Revision):
		// apply refuses it, and says why
	default:
		// The dates are compared with this revision alone.
		r.IfMatch = []uint64{held.Revision}
		return supersedes(dates, kinds.DatesOf(held.Document))
	}

	return nil
}

// supersedes refuses a document that is older than the one that it replaces (XU-023): by
// updated_at, or if one has none, by their versions, if both are SemVer.
func supersedes(dates, old kinds.Dates) error {
	switch {
	case !dates.Updated.IsZero() && !old.Updated.IsZero():
		if dates.Updated.Before(old.Updated) {
			return directory.Refuse(directory.StaleMetadata,
				"updated_at is %s, and what is registered is of %s: newer metadata is not replaced by older",
				dates.Updated.Format(time.RFC3339Nano), old.Updated.Format(time.RFC3339Nano)).At("/updated_at")
		}
	case isSemVer(dates.Version) && isSemVer(old.Version) && semver.Compare("v"+dates.Version, "v"+old.Version) < 0:
		return directory.Refuse(directory.StaleMetadata,
			"version is %.100q, and %.100q is registered: newer metadata is not replaced by older", dates.Version,
			old.Version).At("/version")
	}

	return nil
}

// isSemVer reports whether s is a version of Semantic Versioning 2.0.0, of which
// package semver takes shortened ones too.
func isSemVer(s string) bool {
	core, _, _ := strings.Cut(s, "+")
	core, _, _ = strings.Cut(core, "-")

	return semver.IsValid("v"+s) && strings.Count(core, ".") == 2
}

// Documents may say how old they are and when they end (draft-xu, 4.8 and 9). The leader
// judges them by its clock and by the registration that they replace, because no other
// member knows both. It pins the registration that it has compared with by a precondition
// in the command. The end is in the command, so that apply need not read the document.

// maxAhead is how far ahead of the leader's clock a document's own date may be
// (XU-061).
const maxAhead = 60 * time.Second

// prepareUpdate merges a patch, if there is one, with the document as it is; the
// command holds only as long as that is so.
func (p *preparer) prepareUpdate(r *message.Refresh, forwarded bool) (*state.Command, error) {
	reg, err := p.replica.owned(r.RID, r.Caller.Identity, r.Caller.Commissioning, r.IfMatch)
	if err != nil {
		return nil, err
	}

	entry := reg.Entry()

	doc := entry.Document
	if r.Statement != 0 && r.Statement != entry.Statement {
		return nil, overtaken("registration %s has changed since policy was asked about it", entry.RID)
	}

	if r.Patch != nil {
		if doc.Kind() != directory.KindAD {
			return nil, directory.Refuse(directory.WrongKind,
				"registration %s was written as %s; replace it by the same way", entry.RID, doc.Kind())
		}

		if doc, err = doc.Merge(r.Patch); err != nil {
			return nil, err
		}
	}

	projection, err := kinds.Project(entry.Agent, doc)
	if err != nil {
		return nil, err
	}

	// Without a patch the contents are those that were permitted before.
	err = p.permit(forwarded && r.Patch != nil, Proposal{entry.Owner, entry.Owner, entry.Agent, projection,
		entry.Visibility})
	if err != nil {
		return nil, err
	}

	subject := Subject{entry.RID, entry.Agent, entry.Owner, doc, projection, entry.Visibility}

	update := &state.Update{
		Until:  state.EndOf(doc),
		Format: p.replica.statementFormat(), RID: entry.RID, Salt: newSalt(),
		Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, Statement: entry.Statement,
		Document: doc.Compressed().StoredBytes(), Lifetime: p.grantLifetime(r.Lifetime), IfMatch: r.IfMatch,
		Granted: p.decide(subject),
		Made:    &state.Made{Packed: state.Pack(doc, projection)}, Unchanged: r.Patch == nil,
	}
	if err := p.roomFor(update.Demand(reg)); err != nil {
		return nil, err
	}

	update.Made.Complete(subject.Agent, subject.Document, update.Provenance(reg), update.Salt, update.Granted)

	return &state.Command{Update: update}, nil
}

// roomFor refuses a change for which a quota has no room before it is in the log, because
// an owner without room may try again and again with large documents.
func (p *preparer) roomFor(demand state.Demand) error {
	return ask(p.replica, func(s *state.State) error { return s.Owners().Affords(demand) })
}

// prepareRenew makes the command. Lifetimes are granted up to the maximum.
func (p *preparer) prepareRenew(r *message.Renew) (*state.Command, error) {
	if err := r.Renewals.Check(); err != nil {
		return nil, err
	}

	granted := state.Renewals{RIDs: r.Renewals.RIDs}
	for _, lifetime := range r.Renewals.Lifetimes {
		granted.Lifetimes = append(granted.Lifetimes, p.grantLifetime(lifetime))
	}

	return &state.Command{Renew: &state.Renew{Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning,
		Renewals: granted}}, nil
}

// prepareTransfer makes the command of an operator's transfer.
func (p *preparer) prepareTransfer(r *message.Transfer, forwarded bool) (*state.Command, error) {
	reg, err := p.replica.owned(r.RID, r.Caller.Identity, true, r.IfMatch)
	if err != nil {
		return nil, err
	}

	granted, made, err := p.forOwner(reg, r.To, r.Statement, forwarded)
	if err != nil {
		return nil, err
	}

	transfer := &state.Transfer{
		Format: p.replica.statementFormat(), RID: r.RID, Salt: newSalt(), Caller: r.Caller.Identity,
		Statement: r.Statement, IfMatch: r.IfMatch, Granted: granted, Made: made, Agent: reg.Entry().Agent,
	}
	if err := p.roomFor(transfer.Demand(reg)); err != nil {
		return nil, err
	}

	entry := reg.Entry()
	made.Complete(entry.Agent, entry.Document, transfer.Provenance(reg), transfer.Salt, granted)

	return &state.Command{Transfer: transfer}, nil
}

// prepareOffer makes the command of a step of a transfer with the new owner's consent.
func (p *preparer) prepareOffer(r *message.Offer, forwarded bool) (*state.Command, error) {
	switch r.Step {
	case directory.TransferOffer:
		offer := &state.Offer{RID: r.RID, Caller: r.Caller.Identity, To: r.To, Statement: r.Statement,
			Lifetime: r.Lifetime, IfMatch: r.IfMatch}

		return &state.Command{Offer: offer}, p.checkOffer(offer)
	case directory.TransferAccept:
		return p.prepareAccept(r, forwarded)
	case directory.TransferWithdraw, directory.TransferDecline:
		return &state.Command{CloseOffer: &state.CloseOffer{RID: r.RID, Caller: r.Caller.Identity,
			IfMatch: r.IfMatch}}, nil
	}

	return nil, directory.Refuse(directory.BadRequest, "unknown step of a transfer: %.50q", string(r.Step))
}

// checkOffer refuses an offer that apply would refuse.
func (p *preparer) checkOffer(offer *state.Offer) error {
	return ask(p.replica, func(s *state.State) error {
		reg, err := s.Registrations().Owned(offer.RID, offer.Caller, false, offer.IfMatch)
		if err != nil {
			return err
		}

		if reg.Entry().Statement != offer.Statement {
			return overtaken("registration %s has changed since it was read", offer.RID)
		}

		return s.Offers().Check(offer, reg)
	})
}

// prepareAccept makes the command by which the caller accepts a registration.
func (p *preparer) prepareAccept(r *message.Offer, forwarded bool) (*state.Command, error) {
	var reg *state.Registration

	err := ask(p.replica, func(s *state.State) (err error) {
		reg, err = s.Registrations().Acceptable(r.RID, r.Caller.Identity, r.IfMatch)
		return err
	})
	if err != nil {
		return nil, err
	}

	granted, made, err := p.forOwner(reg, r.Caller.Identity, r.Statement, forwarded)
	if err != nil {
		return nil, err
	}

	accept := &state.Accept{Format: p.replica.statementFormat(), RID: r.RID, Salt: newSalt(),
		Caller: r.Caller.Identity, Statement: r.Statement, IfMatch: r.IfMatch, Granted: granted, Made: made}
	if err := p.roomFor(accept.Demand(reg)); err != nil {
		return nil, err
	}

	entry := reg.Entry()
	made.Complete(entry.Agent, entry.Document, accept.Provenance(reg), accept.Salt, granted)

	return &state.Command{Accept: accept}, nil
}

// forOwner decides the grants of a registration for a new owner and begins the Made of its
// contents, which are those of the statement about which policy was asked.
func (p *preparer) forOwner(reg *state.Registration, owner directory.Identity, statement uint64,
	forwarded bool) (state.Granted, *state.Made, error) {
	entry := reg.Entry()
	if entry.Statement != statement {
		return state.Granted{}, nil, overtaken("registration %s has changed since policy was asked about it", entry.RID)
	}

	projection, err := kinds.Reproject(entry.Agent, entry.Document)
	if err != nil {
		return state.Granted{}, nil, err
	}

	if err := p.permit(forwarded, Proposal{owner, owner, entry.Agent, projection, entry.Visibility}); err != nil {
		return state.Granted{}, nil, err
	}

	subject := Subject{entry.RID, entry.Agent, owner, entry.Document, projection, entry.Visibility}

	return p.decide(subject), &state.Made{Packed: state.Pack(entry.Document, projection)}, nil
}

// maxSecret bounds the secret of an invitation, in bytes.
const maxSecret = 128

// prepareRedeem makes the command that redeems an invitation.
func (p *preparer) prepareRedeem(redeem *state.Redeem) (*state.Command, error) {
	if len(redeem.Shown) > maxSecret {
		return nil, directory.Refuse(directory.BadRequest, "an invitation's secret has at most %d bytes", maxSecret)
	}

	return &state.Command{Redeem: redeem}, p.checkPeering(&redeem.Peer)
}

// prepareKey makes the command that attests a key, unless apply would ignore it. Any text would
// become a part of the key document, and every peer would refuse the document for it: so the
// attestations are judged here, and how often a node has another key.
func (p *preparer) prepareKey(attest *state.Attest) (*state.Command, error) {
	var changes bool

	err := ask(p.replica, func(s *state.State) error {
		changes = s.Keys().Changes(attest)
		return s.Keys().CheckAttest(attest)
	})

	if err == nil && p.cfg.CheckAttestation != nil {
		err = p.cfg.CheckAttestation(signed.SigningKey{
			Public: attest.Public, Node: attest.Node, Cosign: attest.Cosign, Attestations: attest.Attestations,
		})
	}

	if err == nil && changes {
		err = p.keys.take(attest)
	}

	return &state.Command{Attest: attest}, err
}

// checkPeering refuses a peering that is impossible or over a bound.
func (p *preparer) checkPeering(peer *state.Peer) error {
	return ask(p.replica, func(s *state.State) error { return s.Peerings().Check(peer) })
}

// checkBundle refuses a peer's bundle that is too large, older than the one in force, or that another
// member brings and this one has not found itself: a member's key alone does not replace a peer's authorities.
func (p *preparer) checkBundle(req *message.Request) error {
	if err := state.CheckBundle(req.Rebundle.Bundle); err != nil {
		return err
	}

	err := ask(p.replica, func(s *state.State) error { return s.Peerings().CheckRebundle(req.Rebundle) })
	if err != nil {
		return err
	}

	if req.From.IsZero() || p.cfg.CheckBundle == nil {
		return nil
	}

	return p.cfg.CheckBundle(req.Rebundle.Domain, req.Rebundle.Bundle)
}

func (p *preparer) checkPolicy(policy *state.Policy) error {
	if len(policy.Text) > state.MaxPolicy {
		return directory.Refuse(directory.TooLarge, "the policy has %d bytes; at most %d are allowed",
			len(policy.Text), state.MaxPolicy)
	}

	if p.cfg.CheckPolicy == nil || len(policy.Text) == 0 {
		return nil
	}

	return p.cfg.CheckPolicy(policy.Text)
}

// checkClaim refuses an Idempotency-Key that is malformed or has no share left.
func (p *preparer) checkClaim(claim *state.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}

	return ask(p.replica, func(s *state.State) error { return s.Claims().Check(claim) })
}

// withinShare returns the outcome of an invocation, without its answer if the caller's share of the
// answers is used up.
func (p *preparer) withinShare(settle *state.Settle) *state.Settle {
	within := *settle
	p.replica.view(func(s *state.State) {
		if !s.Claims().KeepsAnswer(settle) {
			within.Answer = nil
		}
	})

	return &within
}

package consensus

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// maxPrepared bounds how often a command is prepared anew because the state
// moved under it.
const maxPrepared = 8

// lead does a request as the leader: it prepares a command, with all that apply
// may not find out by itself, and proposes it.
func (s *Store) lead(ctx context.Context, req *request) (directory.Outcome, error) {
	if req.Order != nil {
		return s.obey(ctx, req.Order)
	}
	for range maxPrepared {
		c, err := s.command(req)
		if err != nil {
			return directory.Outcome{}, err
		}
		out, err := s.propose(ctx, c)
		if !c.moved(err) {
			if req.Renew != nil && err == nil {
				s.leadAlone(ctx, req.Renew, &out)
			}
			if (req.Peer != nil || req.Amend != nil || req.Redeem != nil || req.Policy != nil) && err == nil {
				s.askRegrants()
			}
			return out, err
		}
	}
	return directory.Outcome{}, directory.Refuse(directory.Unavailable, "this was changed by others again and again; nothing was changed by you: try again")
}

// command makes what is proposed of a request.
func (s *Store) command(req *request) (*command, error) {
	c, err := s.prepare(req)
	if err == nil {
		err = s.judgedNow(req.by())
	}
	if err != nil {
		return nil, err
	}
	c.Spend = req.spend()
	return c, nil
}

// moved reports whether c is to be prepared anew, since that by which it was prepared has
// changed: apply's answer says so.
func (c *command) moved(answer error) bool {
	return errors.Is(answer, errMoved) || c.pinned() && directory.ProblemOf(answer) == directory.PreconditionFailed
}

// judgedNow refuses what a policy has permitted that is in force no more. It is asked
// when the command has its grants, and apply takes it only with grants of the policy
// that is in force then.
func (s *Store) judgedNow(c caller) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c.Judged != nil && *c.Judged != s.state.law.Revision {
		return overtaken("the domain has had another policy since this was permitted")
	}
	return nil
}

func overtaken(format string, args ...any) error {
	return directory.Refuse(directory.Overtaken, format+"; nothing was changed: try again", args...)
}

func (s *Store) prepare(req *request) (*command, error) {
	switch {
	case req.Register != nil:
		return s.prepareRegister(req.Register)
	case req.Refresh != nil && (req.Refresh.Patch != nil || s.unconfirmed(req.Refresh.RID)):
		return s.prepareUpdate(req.Refresh)
	case req.Refresh != nil:
		r := req.Refresh
		return &command{Refresh: &refresh{r.RID, r.Caller.Identity, r.Caller.Commissioning, s.grantLifetime(r.Lifetime), r.IfMatch}}, nil
	case req.Renew != nil:
		return s.prepareRenew(req.Renew)
	case req.Remove != nil:
		r := req.Remove
		return &command{Remove: &remove{s.statementFormat(), r.RID, r.Caller.Identity, r.Caller.Commissioning, r.IfMatch}}, nil
	case req.Transfer != nil:
		return s.prepareTransfer(req.Transfer)
	case req.Peer != nil:
		return &command{Peer: req.Peer}, checkPeering(s, req.Peer)
	case req.Amend != nil:
		return &command{Amend: req.Amend}, checkPeering(s, &req.Amend.Peer)
	case req.Rebundle != nil:
		return &command{Rebundle: req.Rebundle}, checkBundle(req.Rebundle.Bundle)
	case req.Redeem != nil:
		return &command{Redeem: req.Redeem}, checkPeering(s, &req.Redeem.Peer)
	case req.Policy != nil:
		return &command{Policy: req.Policy}, s.checkPolicy(req.Policy)
	case req.Spend != nil:
		return &command{}, nil // which has the proof beside it
	case req.Claim != nil:
		return &command{Claim: req.Claim}, req.Claim.check()
	case req.Settle != nil:
		return &command{Settle: req.Settle}, req.Settle.check()
	case req.Attest != nil:
		return s.prepareKey(req.Attest)
	case req.Revoke != nil:
		return &command{Revoke: req.Revoke}, s.checkRevoke(req.Revoke)
	}
	return nil, directory.Refuse(directory.BadRequest, "the request is none that this release knows")
}

func (s *Store) prepareRegister(r *registerRequest) (*command, error) {
	now := s.cfg.clock().UnixMilli()
	c := &register{
		Format: s.statementFormat(), RID: newRID(now), Salt: newSalt(),
		Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning,
		Agent: r.Agent, Kind: r.Kind, Document: r.Document,
		Lifetime: s.grantLifetime(r.Lifetime), Visibility: r.Visibility, IfMatch: r.IfMatch, Present: r.Present, Absent: r.Absent, For: r.For,
	}
	if c.Lifetime == 0 {
		c.Lifetime = directory.DefaultLifetime
	}
	if c.Agent == "" {
		c.Agent = c.RID.String()
	}
	doc, err := directory.LoadDocument(c.Kind, c.Document).Awake()
	if err != nil {
		return nil, damaged(err)
	}
	subject := Subject{c.RID, c.Agent, c.owner(), doc, nil, c.Visibility}
	var held *directory.Entry
	s.mu.RLock()
	old := s.state.regs.named(c.Agent)
	var ends *registration
	if old != nil && old.entry.ExpiresAt <= max(now, s.state.now) {
		old, ends = nil, old
	}
	if old != nil {
		held = &old.entry
		subject.RID = held.RID
		if c.Commissioning && c.For.IsZero() {
			subject.Owner = held.Owner
		}
		if r.Keep {
			c.Visibility, subject.Visibility = held.Visibility, held.Visibility
		}
	}
	var full error
	if held == nil || held.Owner == subject.Owner { // else the name is taken
		full = s.state.permits(c, old, ends, subject.Owner)
	}
	s.mu.RUnlock()
	if directory.ProblemOf(full) == directory.QuotaExceeded {
		return nil, full // and not once more for each attempt in the log, with its document
	}
	if err := prepareDates(c, held, subject.Document, now); err != nil {
		return nil, err
	}
	projection, made, err := r.projected(c.Agent, subject.Document)
	if err != nil {
		return nil, err
	}
	subject.Projection = projection
	c.Granted, c.Made = s.decide(subject), made
	made.complete(&subject, c.provenance(), c.Salt, c.Granted)
	return &command{Register: c}, nil
}

// prepareUpdate merges a patch, if there is one, with the document as it is; the
// command holds only as long as that is so.
func (s *Store) prepareUpdate(r *refreshRequest) (*command, error) {
	s.mu.RLock()
	reg, err := s.state.owned(r.RID, r.Caller.Identity, r.Caller.Commissioning, r.IfMatch)
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	e := &reg.entry
	doc := e.Document
	if r.Statement != 0 && r.Statement != e.Statement {
		return nil, overtaken("registration %s has changed since policy was asked about it", e.RID)
	}
	if r.Patch != nil {
		if doc.Kind() != directory.KindAD {
			return nil, directory.Refuse(directory.WrongKind, "registration %s was written as %s; replace it by the same way", e.RID, doc.Kind())
		}
		if doc, err = doc.Merge(r.Patch); err != nil {
			return nil, err
		}
	}
	p, err := directory.Project(e.Agent, doc)
	if err != nil {
		return nil, err
	}
	subject := Subject{e.RID, e.Agent, e.Owner, doc, p, e.Visibility}
	c := &update{
		Until:  untilOf(doc),
		Format: s.statementFormat(), RID: e.RID, Salt: newSalt(),
		Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, Statement: e.Statement,
		Document: doc.AtRest().Resting(), Lifetime: s.grantLifetime(r.Lifetime), IfMatch: r.IfMatch, Granted: s.decide(subject),
		Made: &made{Packed: pack(doc, p)}, Unchanged: r.Patch == nil,
	}
	if err := s.roomFor(c.demand(reg)); err != nil {
		return nil, err
	}
	c.Made.complete(&subject, c.provenance(reg), c.Salt, c.Granted)
	return &command{Update: c}, nil
}

// roomFor refuses before it is in the log what apply would refuse: an owner without room
// may try again and again, with a large document each time.
func (s *Store) roomFor(d demand) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.affords(d)
}

// decide asks policy for the subject's grants. What holds less than a grant must
// hold is none.
func (s *Store) decide(subject Subject) granted {
	s.mu.RLock()
	g := granted{Owner: subject.Owner, Policy: s.state.policy}
	s.mu.RUnlock()
	if s.cfg.Grants == nil {
		return g
	}
	seen := map[directory.Audience]bool{{}: true}
	for _, w := range wireGrants(s.cfg.Grants(subject)) {
		if !seen[w.Audience] && directory.Grant(w).Complete(subject.Document.Kind()) {
			seen[w.Audience] = true
			g.Grants = append(g.Grants, w)
		}
	}
	return g
}

// grantLifetime is AD-011: over the maximum is granted the maximum.
func (s *Store) grantLifetime(asked uint32) uint32 { return min(asked, s.cfg.MaxLifetime) }

func newRID(now int64) directory.RID {
	var entropy [10]byte
	_, _ = rand.Read(entropy[:]) // never fails
	return directory.NewRID(now, entropy)
}

func newSalt() (salt directory.Salt) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}

// Bounds of what members bring into the state besides registrations.
const (
	maxAttestations = 4
	maxAttestation  = 16 << 10
	maxPeerings     = 1000
	maxBundle       = 512 << 10
	maxAddresses    = 64
	maxRevoked      = 1024 // a key document has no room for all that ever were
)

func (s *Store) checkRevoke(c *revoke) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch _, err := directory.ParseHash(c.Key); {
	case err != nil:
		return directory.Refuse(directory.BadRequest, "%.60q is no key id: it is a thumbprint, as \"roster keys list\" shows it", c.Key)
	case slices.Contains(s.state.revoked, c.Key):
		return nil
	case len(s.state.revoked) >= maxRevoked:
		return directory.Refuse(directory.Conflict, "%d keys are revoked, and a key document has room for no more", maxRevoked)
	}
	return nil
}

func checkBundle(b []byte) error {
	if len(b) > maxBundle {
		return directory.Refuse(directory.TooLarge, "a peer's bundle has at most %d bytes, and this one has %d", maxBundle, len(b))
	}
	return nil
}

func checkPeering(s *Store, p *peer) error {
	s.mu.RLock()
	_, known := s.state.peerings[p.Domain]
	full := !known && len(s.state.peerings) >= maxPeerings
	s.mu.RUnlock()
	switch {
	case p.Domain == s.cfg.Domain || p.Domain.IsZero() || p.Domain.Name() == directory.Mesh.String():
		return directory.Refuse(directory.BadRequest, "%q cannot be a peer of %s", p.Domain.Name(), s.cfg.Domain.Name())
	case full:
		return directory.Refuse(directory.BadRequest, "there are %d peerings already", maxPeerings)
	case len(p.Bundle) > maxBundle || len(p.Addresses) > maxAddresses || len(p.Gossip) > maxAddresses:
		return directory.Refuse(directory.TooLarge, "a peering has a bundle of at most %d bytes and at most %d addresses", maxBundle, maxAddresses)
	}
	return nil
}

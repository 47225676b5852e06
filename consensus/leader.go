package consensus

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
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
		if !req.moved(c, err) {
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
func (s *Store) command(req *request) (*state.Command, error) {
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

// moved reports whether a command has to be prepared again, because the state for which
// it was prepared has changed: the answer of apply says so.
func (r *request) moved(c *state.Command, answer error) bool {
	return errors.Is(answer, state.ErrMoved) || r.pinnedBy(c) && directory.ProblemOf(answer) == directory.PreconditionFailed
}

// pinnedBy reports whether the leader has added a precondition to the registration that
// was requested (see prepareDates).
func (r *request) pinnedBy(c *state.Command) bool {
	if r.Register == nil || c.Register == nil {
		return false
	}

	return r.Register.Absent != c.Register.Absent || !slices.Equal(r.Register.IfMatch, c.Register.IfMatch)
}

// judgedNow refuses what a policy has permitted that is in force no more. It is asked
// when the command has its grants, and apply takes it only with grants of the policy
// that is in force then.
func (s *Store) judgedNow(c caller) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c.Judged != nil && *c.Judged != policyVersion(s.state) {
		return overtaken("the domain has had another policy since this was permitted")
	}
	return nil
}

func overtaken(format string, args ...any) error {
	return directory.Refuse(directory.Overtaken, format+"; nothing was changed: try again", args...)
}

func (s *Store) prepare(req *request) (*state.Command, error) {
	switch {
	case req.Register != nil:
		return s.prepareRegister(req.Register)
	case req.Refresh != nil && (req.Refresh.Patch != nil || s.unconfirmed(req.Refresh.RID)):
		return s.prepareUpdate(req.Refresh)
	case req.Refresh != nil:
		r := req.Refresh
		return &state.Command{Refresh: &state.Refresh{RID: r.RID, Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, Lifetime: s.grantLifetime(r.Lifetime), IfMatch: r.IfMatch}}, nil
	case req.Renew != nil:
		return s.prepareRenew(req.Renew)
	case req.Remove != nil:
		r := req.Remove
		return &state.Command{Remove: &state.Remove{Format: s.statementFormat(), RID: r.RID, Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, IfMatch: r.IfMatch}}, nil
	case req.Transfer != nil:
		return s.prepareTransfer(req.Transfer)
	case req.Peer != nil:
		return &state.Command{Peer: req.Peer}, s.checkPeering(req.Peer)
	case req.Amend != nil:
		return &state.Command{Amend: req.Amend}, s.checkPeering(&req.Amend.Peer)
	case req.Rebundle != nil:
		return &state.Command{Rebundle: req.Rebundle}, state.CheckBundle(req.Rebundle.Bundle)
	case req.Redeem != nil:
		return &state.Command{Redeem: req.Redeem}, s.checkPeering(&req.Redeem.Peer)
	case req.Policy != nil:
		return &state.Command{Policy: req.Policy}, s.checkPolicy(req.Policy)
	case req.Spend != nil:
		return &state.Command{}, nil // which has the proof beside it
	case req.Claim != nil:
		return &state.Command{Claim: req.Claim}, req.Claim.Check()
	case req.Settle != nil:
		return &state.Command{Settle: req.Settle}, req.Settle.Check()
	case req.Attest != nil:
		return s.prepareKey(req.Attest)
	case req.Revoke != nil:
		return &state.Command{Revoke: req.Revoke}, s.checkRevoke(req.Revoke)
	}
	return nil, directory.Refuse(directory.BadRequest, "the request is none that this release knows")
}

func (s *Store) prepareRegister(r *registerRequest) (*state.Command, error) {
	now := s.cfg.clock().UnixMilli()
	c := &state.Register{
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
		return nil, state.Damaged(err)
	}
	subject := Subject{c.RID, c.Agent, c.Owner(), doc, nil, c.Visibility}
	var held *directory.Entry
	s.mu.RLock()
	old := s.state.Registrations().Named(c.Agent)
	var ends *state.Registration
	if old != nil && old.Entry().ExpiresAt <= max(now, s.state.History().Now()) {
		old, ends = nil, old
	}
	if old != nil {
		held = old.Entry()
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
		full = s.state.Registrations().Permits(c, old, ends, subject.Owner)
	}
	s.mu.RUnlock()
	if directory.ProblemOf(full) == directory.QuotaExceeded {
		return nil, full // and not once more for each attempt in the log, with its document
	}
	if err := prepareDates(c, held, subject.Document, now); err != nil {
		return nil, err
	}
	projection, made, err := state.Project(c.Agent, subject.Document, r.Packed)
	if err != nil {
		return nil, err
	}
	subject.Projection = projection
	c.Granted, c.Made = s.decide(subject), made
	made.Complete(subject.Agent, subject.Document, c.Provenance(), c.Salt, c.Granted)
	return &state.Command{Register: c}, nil
}

// prepareUpdate merges a patch, if there is one, with the document as it is; the
// command holds only as long as that is so.
func (s *Store) prepareUpdate(r *refreshRequest) (*state.Command, error) {
	s.mu.RLock()
	reg, err := s.state.Registrations().Owned(r.RID, r.Caller.Identity, r.Caller.Commissioning, r.IfMatch)
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	e := reg.Entry()
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
	p, err := kinds.Project(e.Agent, doc)
	if err != nil {
		return nil, err
	}
	subject := Subject{e.RID, e.Agent, e.Owner, doc, p, e.Visibility}
	c := &state.Update{
		Until:  state.EndOf(doc),
		Format: s.statementFormat(), RID: e.RID, Salt: newSalt(),
		Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, Statement: e.Statement,
		Document: doc.AtRest().Resting(), Lifetime: s.grantLifetime(r.Lifetime), IfMatch: r.IfMatch, Granted: s.decide(subject),
		Made: &state.Made{Packed: state.Pack(doc, p)}, Unchanged: r.Patch == nil,
	}
	if err := s.roomFor(c.Demand(reg)); err != nil {
		return nil, err
	}
	c.Made.Complete(subject.Agent, subject.Document, c.Provenance(reg), c.Salt, c.Granted)
	return &state.Command{Update: c}, nil
}

// roomFor refuses before it is in the log what apply would refuse: an owner without room
// may try again and again, with a large document each time.
func (s *Store) roomFor(d state.Demand) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.Owners().Affords(d)
}

// decide asks policy for the subject's grants. What holds less than a grant must
// hold is none.
func (s *Store) decide(subject Subject) state.Granted {
	s.mu.RLock()
	g := state.Granted{Owner: subject.Owner, Policy: s.state.Policy().Basis()}
	s.mu.RUnlock()
	if s.cfg.Grants == nil {
		return g
	}
	seen := map[directory.Audience]bool{{}: true}
	for _, w := range state.GrantsOf(s.cfg.Grants(subject)) {
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

func newSalt() (salt signed.Salt) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}

func (s *Store) checkPolicy(p *state.Policy) error {
	if len(p.Text) > state.MaxPolicy {
		return directory.Refuse(directory.TooLarge, "the policy has %d bytes; at most %d are allowed", len(p.Text), state.MaxPolicy)
	}
	if s.cfg.CheckPolicy == nil || len(p.Text) == 0 {
		return nil
	}
	return s.cfg.CheckPolicy(p.Text)
}

// prepareKey makes the command that attests a key, unless apply would ignore it.
func (s *Store) prepareKey(c *state.Attest) (*state.Command, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return &state.Command{Attest: c}, s.state.Keys().CheckAttest(c)
}

// checkPeering refuses a peering that is impossible or over a bound.
func (s *Store) checkPeering(c *state.Peer) error {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.Peerings().Check(c)
}

// checkRevoke refuses to revoke a key whose id is malformed or has no room.
func (s *Store) checkRevoke(c *state.Revoke) error {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.Keys().CheckRevoke(c)
}

func (s *Store) prepareTransfer(r *transferRequest) (*state.Command, error) {
	s.mu.RLock()
	reg, err := s.state.Registrations().Owned(r.RID, r.Caller.Identity, r.Any, r.IfMatch)
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	e := reg.Entry()
	if e.Statement != r.Statement {
		return nil, overtaken("registration %s has changed since policy was asked about it", e.RID)
	}
	p, err := kinds.Reproject(e.Agent, e.Document)
	if err != nil {
		return nil, err
	}
	subject := Subject{e.RID, e.Agent, r.To, e.Document, p, e.Visibility}
	c := &state.Transfer{
		Format: s.statementFormat(), RID: e.RID, Salt: newSalt(), Caller: r.Caller.Identity, Any: r.Any,
		Statement: e.Statement, IfMatch: r.IfMatch, Granted: s.decide(subject), Made: &state.Made{Packed: state.Pack(e.Document, p)},
	}
	if err := s.roomFor(c.Demand(reg)); err != nil {
		return nil, err
	}
	c.Made.Complete(subject.Agent, subject.Document, c.Provenance(reg), c.Salt, c.Granted)
	return &state.Command{Transfer: c}, nil
}

// prepareRenew makes the command. Lifetimes are granted up to the maximum.
func (s *Store) prepareRenew(r *renewRequest) (*state.Command, error) {
	if err := r.Renewals.Check(); err != nil {
		return nil, err
	}
	granted := state.Renewals{RIDs: r.Renewals.RIDs}
	for _, lifetime := range r.Renewals.Lifetimes {
		granted.Lifetimes = append(granted.Lifetimes, s.grantLifetime(lifetime))
	}
	return &state.Command{Renew: &state.Renew{Caller: r.Caller.Identity, Commissioning: r.Caller.Commissioning, Renewals: granted}}, nil
}

// leadAlone refreshes, one by one, what could not share the command of a
// RefreshMany: what a restored history has not confirmed yet takes a statement
// each.
func (s *Store) leadAlone(ctx context.Context, req *renewRequest, out *directory.Outcome) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards out.Position
	slots := make(chan struct{}, maxAlone)
	who := req.Caller
	who.Proof, who.ProofUntil, who.Judged = directory.Hash{}, 0, nil // the command that found these has spent it, and was judged
	for i := range out.Each {
		if !errors.Is(out.Each[i].Err, state.ErrMoved) {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r := req.Renewals.At(i)
			one, err := s.lead(ctx, &request{Refresh: &refreshRequest{who, r.RID, r.Lifetime, nil, nil, 0}})
			out.Each[i] = directory.Renewed{Granted: one.Granted, Err: err}
			if errors.Is(err, errNotLeader) {
				out.Each[i].Err = directory.Refuse(directory.Unavailable, "the leader changed meanwhile; nothing was changed: try again")
			}
			mu.Lock()
			defer mu.Unlock()
			if out.Position.Before(one.Position) {
				out.Position = one.Position
			}
		})
	}
	all.Wait()
}

// maxAlone bounds how many items of a RefreshMany that cannot share its log entry
// are under way at once.
const maxAlone = 64

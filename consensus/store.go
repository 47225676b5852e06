package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/stream"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// ErrDamaged says that a member's log or snapshots are not as it wrote them. If other
// members have the domain's state, such a member begins again with an empty Dir, while
// all the others are up, because its votes are gone as well.
var ErrDamaged = disk.ErrDamaged

// A Store is one member of a domain: its replica of the domain's state, and the parts by
// which it takes part in the Raft group. Its methods are safe for concurrent use.
type Store struct {
	*member
	*Replica
	peers
	diskWatch
	reader
	restorer

	// Logs are this member's copies of the domain's ledgers.
	Logs Ledger

	clocks *clocks
	terms  *terms

	inspector  inspector
	forwarder  forwarder
	writes     writeServer
	follower   follower
	sweeper    sweeper
	statements statementKeeper
	comparer   ledgerComparer
	joins      admitter
	joiner     joiner

	closed func() error
}

// Open starts a member from the contents of its Dir. Members without any state begin the domain
// once all configured members are there and have no state either. Open does not wait for that: see
// Ready.
func Open(cfg Config) (*Store, error) {
	store, err := newStore(cfg)
	if err != nil {
		return nil, err
	}

	if err := store.start(); err != nil {
		return nil, err
	}

	return store, nil
}

// Close hands leadership over if another member can take it, stops, and closes the
// listener. It is safe to call twice.
func (s *Store) Close() error { return s.closed() }

// Register registers a name or replaces its owner's registration (jimenez 4.1, 4.2), with
// a document that kinds.Project has accepted. Without a name it is registered by its rid,
// each time again. As every write it may be called on any member, returns once the change
// is committed and applied on this one too, and fails with a *directory.Error:
// Unavailable if nothing was changed, OutcomeUnknown if it may have been; to repeat it is
// safe.
func (s *Store) Register(ctx context.Context, r directory.RegisterRequest) (directory.Outcome, error) {
	req := &message.Register{
		Caller: message.CallerOf(r.Caller), Agent: r.Agent, Kind: r.Document.Kind(),
		Document: r.Document.Compressed().StoredBytes(), Lifetime: r.Lifetime, Visibility: r.Visibility,
		IfMatch: r.IfMatch,
		Present: r.Present, Absent: r.Absent, Keep: r.KeepVisibility, Packed: nil, For: r.Owner,
	}

	// Without a name in the request, the name is not known yet.
	if r.Projection != nil && r.Agent != "" {
		req.Packed = state.Pack(r.Document, r.Projection)
	}

	return s.forwarder.write(ctx, &message.Request{Register: req})
}

// Refresh sets a new deadline and, with a patch, other members (jimenez 4.4).
func (s *Store) Refresh(ctx context.Context, r directory.RefreshRequest) (directory.Outcome, error) {
	return s.forwarder.write(ctx,
		&message.Request{Refresh: &message.Refresh{Caller: message.CallerOf(r.Caller), RID: r.RID,
			Lifetime: r.Lifetime, Patch: r.Patch, IfMatch: r.IfMatch, Statement: r.Statement}})
}

// RefreshMany is Refresh of many registrations in one log entry. The outcome's Each has
// the result of each; an error says that none was refreshed, or that the outcome is
// unknown.
func (s *Store) RefreshMany(ctx context.Context, r directory.RefreshBatch) (directory.Outcome, error) {
	return s.forwarder.write(ctx,
		&message.Request{Renew: &message.Renew{Caller: message.CallerOf(r.Caller),
			Renewals: state.PackRenewals(r.Items)}})
}

// Remove ends a registration (jimenez 4.5).
func (s *Store) Remove(ctx context.Context, r directory.RemoveRequest) (directory.Outcome, error) {
	return s.forwarder.write(ctx,
		&message.Request{Remove: &message.Remove{Caller: message.CallerOf(r.Caller), RID: r.RID, IfMatch: r.IfMatch}})
}

// AmendPeering replaces the peering with a domain if it still equals was; otherwise it changes
// nothing and fails with directory.Conflict. A was without a state means no peering. The leader
// then decides all grants again.
func (s *Store) AmendPeering(ctx context.Context, was, p directory.Peering) error {
	return s.forwarder.change(ctx, &message.Request{Amend: &state.Amend{Was: state.Peer(was), Peer: state.Peer(p)}})
}

// EndPeering is AmendPeering by a peer's farewell, the request of its operator, which every member judges.
func (s *Store) EndPeering(ctx context.Context, was, p directory.Peering, farewell *directory.OperatorRequest) error {
	return s.forwarder.change(ctx, &message.Request{Amend: &state.Amend{Was: state.Peer(was), Peer: state.Peer(p),
		Farewell: state.OriginOf(s.cfg.Node, farewell).Operator}})
}

// SetRules replaces a member's rules for owners and names, which should be the same on all
// members. The leader's come into force in the domain.
func (s *Store) SetRules(rules Rules) { s.setRules(&rules) }

// SetBundle puts a peer's new bundle in the place of held, which it was compared
// with. Where the peering has another by then, or is not in force, nothing changes.
func (s *Store) SetBundle(ctx context.Context, peer spiffeid.TrustDomain, held, bundle []byte) error {
	return s.forwarder.change(ctx,
		&message.Request{Rebundle: &state.Rebundle{Domain: peer, Held: directory.HashOf(held), Bundle: bundle}})
}

// Redeem makes a pending peering active as p, if secret is that of its invitation and the
// invitation has not ended; otherwise it fails with directory.Forbidden. Of two callers with one
// secret the first is the peer.
func (s *Store) Redeem(ctx context.Context, secret string, p directory.Peering) error {
	redeem := &state.Redeem{Secret: directory.HashOf([]byte(secret)), Peer: state.Peer(p), Shown: secret}
	return s.forwarder.change(ctx, &message.Request{Redeem: redeem})
}

// Revoke revokes a signing key permanently: the key document that is issued with it says
// so, and its readers accept no signature of the key. The key need not be one that the
// domain has now. To repeat it is safe.
func (s *Store) Revoke(ctx context.Context, key string) error {
	return s.forwarder.change(ctx, &message.Request{Revoke: &state.Revoke{Key: key}})
}

// Erase takes the contents of a registration that has ended out of the history, on all members: each erases
// them from its disk as soon as it has applied the command. To repeat it is safe.
func (s *Store) Erase(ctx context.Context, rid directory.RID) error {
	statements, _, complete, err := s.Logs.History(rid, directory.Position{})

	switch {
	case err != nil:
		return err
	case len(statements) == 0 && !complete:
		return directory.Refuse(directory.Unavailable, "this node still copies the history; try again later")
	case len(statements) == 0:
		return directory.Refuse(directory.NotFound, "nothing was stated of registration %s", rid)
	}

	_, err = s.forwarder.write(ctx, &message.Request{Erase: &state.Erase{RID: rid}})

	return err
}

// AuditDue reports whether the head of this node's audit log can be put into the ledger.
func (s *Store) AuditDue() bool {
	return ask(s.member.replica, func(st *state.State) bool { return st.Pins().AuditDue(s.cfg.Node) })
}

// PinAudit puts the head of this node's audit log into the ledger: the number and the hash of its last line.
func (s *Store) PinAudit(ctx context.Context, lines uint64, head directory.Hash) error {
	return s.forwarder.change(ctx,
		&message.Request{Pin: &state.Pin{Node: s.cfg.Node, Lines: lines, Head: head}})
}

// Attest replaces this node's signing key and attestation, and thereby issues a key
// document.
func (s *Store) Attest(ctx context.Context, k signed.SigningKey) error {
	return s.forwarder.change(ctx,
		&message.Request{Attest: &state.Attest{Node: k.Node, Public: k.Public, Attestations: k.Attestations,
			Cosign: k.Cosign}})
}

// Claim claims an Idempotency-Key for the first request with it in the domain, and returns nil;
// for later ones it returns the first one's answer. The error is KeyInUse before there is an
// answer, KeySpent if the answer is not kept or not known, and KeyReused if the first was
// another request. Repeating it with the same holder is safe.
func (s *Store) Claim(ctx context.Context, c directory.Claim) (*directory.StoredAnswer, error) {
	w := state.Claim(c)
	out, err := s.forwarder.write(ctx, &message.Request{Claim: &w})

	return out.StoredAnswer, err
}

// Settle reports the outcome of a claim. An answer over the domain's bounds is not kept.
// To repeat it is safe; a claim of another holder stays as it is.
func (s *Store) Settle(ctx context.Context, c directory.Settlement) error {
	w := state.Settle{Key: c.Key, Holder: c.Holder, Release: c.Release, Answer: (*state.Answer)(c.Answer)}
	if w.Check() != nil {
		w.Answer = nil
	}

	return s.forwarder.change(ctx, &message.Request{Settle: &w})
}

// SetPolicy puts a policy in force on all members, if the version in force is among
// replaces, and in any case if replaces is nil; the version of the built-in policy is 0.
// Otherwise it changes nothing and fails with directory.PreconditionFailed. The leader
// then decides all grants again, in bounded commands. It returns once this member answers
// by the policy, with the position at which it came into force, whose revision is its
// version.
func (s *Store) SetPolicy(ctx context.Context, text []byte, replaces []uint64) (directory.Outcome, error) {
	policy := &state.Policy{Text: text}
	if replaces != nil {
		policy.Replaces = &replaces
	}

	return s.forwarder.write(ctx, &message.Request{Policy: policy})
}

// Spend uses up a proof of a request that is no command; it fails with Replayed if the
// proof was used before. An unknown outcome is no permission to go on.
func (s *Store) Spend(ctx context.Context, proof directory.Hash, until int64) error {
	return s.forwarder.change(ctx, &message.Request{Spend: &state.Spend{Proof: proof, Until: until}})
}

// TransferOwner makes a step of a transfer of ownership. To force one to its owner changes
// nothing, without an error. It fails with Overtaken if the contents differ from those that the
// request names, and with OfferChanged if they differ from those that were offered.
func (s *Store) TransferOwner(ctx context.Context, t directory.TransferRequest) (directory.Outcome, error) {
	caller := message.CallerOf(t.Caller)
	if t.Step == directory.TransferForce {
		return s.forwarder.write(ctx, &message.Request{Transfer: &message.Transfer{Caller: caller, RID: t.RID,
			To: t.To, Statement: t.Statement, IfMatch: t.IfMatch}})
	}

	return s.forwarder.write(ctx, &message.Request{Offer: &message.Offer{Caller: caller, RID: t.RID, Step: t.Step,
		To: t.To, Lifetime: t.Lifetime, Statement: t.Statement, IfMatch: t.IfMatch}})
}

// An Admission lets a node become a member, once and within a day; or, with a Pattern, the nodes
// that match it, while the domain has fewer than Max members that do.
type Admission struct {
	ID       spiffeid.ID
	Pattern  string // an ID that may end in *; empty for one node
	Max      uint32
	Withdraw bool // ends such an admission
}

// Admit makes or withdraws an admission.
func (s *Store) Admit(ctx context.Context, a Admission) error {
	order := &message.Order{Verb: message.AdmitNode, ID: a.ID, Pattern: a.Pattern, Max: a.Max}
	if a.Withdraw {
		order.Verb = message.WithdrawAdmission
	}

	return s.forwarder.change(ctx, &message.Request{Order: order})
}

// Order puts an operator's order into the log that this member is about to carry out by
// itself, or by commands that need no order.
func (s *Store) Order(ctx context.Context, action, target string) error {
	order := &message.Order{Verb: message.NoteOrder, Action: action, Target: target}
	return s.forwarder.change(ctx, &message.Request{Order: order})
}

// ConfirmClock confirms the step of the leader's clock, which differs by less than directory.MaxStep from
// the given one. The leader stamps by its clock within its next sweep.
func (s *Store) ConfirmClock(ctx context.Context, step time.Duration) error {
	order := &message.Order{Verb: message.ConfirmClock, Target: step.String()}
	return s.forwarder.change(ctx, &message.Request{Order: order})
}

// Expel removes a member from the domain. It is refused if the domain could not write any
// more after it.
func (s *Store) Expel(ctx context.Context, id spiffeid.ID) error {
	_, err := s.forwarder.write(ctx, removalOf(id, directory.ActionRemoveMember))
	if directory.ProblemOf(err) == directory.OutcomeUnknown {
		return removalUnknown(id, err)
	}

	return err
}

func removalOf(id spiffeid.ID, action string) *message.Request {
	return &message.Request{Order: &message.Order{Verb: message.RemoveMember, ID: id, Action: action}}
}

// Leave removes this member from its domain, as Expel does; a leader hands over first. The node
// continues to show its state until it is stopped, and is not ready.
func (s *Store) Leave(ctx context.Context) error {
	_, err := s.forwarder.write(ctx, removalOf(s.cfg.Node, directory.ActionLeave))
	if err == nil {
		why := "it has left; stop it"
		s.group.outside.Store(&why)
		s.log.Info("this node has left its domain")
	}

	return err
}

// Ready returns nil if this member knows a leader and has applied the leader's recent position,
// and otherwise the reason why it cannot serve.
func (s *Store) Ready() error {
	leader, ok := s.group.leader()
	leads := s.terms.leader() != nil

	switch {
	case s.life.failure() != nil:
		return s.life.failure()
	case s.life.closing.Err() != nil:
		return errors.New("this member is stopping")
	case s.diskWatch.hanging() > 0:
		return errDiskHangs
	// Without a leader the fate of the log is unknown.
	case s.Replica.isSealed() && (ok || leads):
		return errSealed
	case leads:
		return nil
	case s.group.outside.Load() != nil:
		return fmt.Errorf("%w: %s", ErrOutside, *s.group.outside.Load())
	case !ok && s.group.stuck.Load() != nil:
		return fmt.Errorf("%w: %s", errNoLeader, *s.group.stuck.Load())
	case !ok:
		return errNoLeader
	case leader.ID == s.cfg.Node:
		return errNotYet
	case !s.caughtUp.Load():
		return errBehind
	}

	// A live registration would be shown as ended, or the other way round.
	if off := s.Clock().Skew; off != 0 {
		return fmt.Errorf("clock skew of %v from the leader; synchronise this node's clock", off.Round(time.Second))
	}

	return nil
}

// Clock compares this machine's clock with the domain's time.
func (s *Store) Clock() ClockState {
	clock := ClockState{Skew: time.Duration(s.clocks.clockOff.Load()), Step: s.clocks.step()}
	if s.terms.leader() != nil {
		clock.Behind = s.clocks.behind()
	}

	return clock
}

// ErrOutside says that this node is no member of its domain: it was removed, or not admitted yet.
var ErrOutside = errors.New("this node is no member of its domain")

// IsOutside reports whether this node is known to be no member of its domain.
func (s *Store) IsOutside() bool { return s.group.outside.Load() != nil }

// Stopping says that this node's process stops, and perhaps those of the other members: that they are lost
// is no warning from now on. Close follows it.
func (s *Store) Stopping() { s.group.stopping.Store(true) }

// Transfer transfers the leadership to a member, or to the best one if to is zero, and
// returns once it has it and this member knows that. If the answer is lost, the new leader
// shows the outcome.
func (s *Store) Transfer(ctx context.Context, to spiffeid.ID) error {
	before, _ := s.group.leader()

	_, err := s.forwarder.write(ctx, &message.Request{Order: &message.Order{Verb: message.TransferLeadership, ID: to}})

	// A new leader shows that an unknown outcome is a success.
	for known := time.After(s.cfg.Timing.Heartbeat); ; {
		now, ok := s.group.leader()
		switch {
		case ok && now.ID != before.ID && (now.ID == to || to.IsZero()):
			return nil
		case err != nil && directory.ProblemOf(err) != directory.OutcomeUnknown:
			return err
		}

		select {
		case <-time.After(retryPause):
		case <-known: // without an error it is handed over; the new leader announces itself
			return err
		case <-ctx.Done():
			return err
		}
	}
}

func newStore(cfg Config) (*Store, error) {
	cfg.Timing = cfg.Timing.withDefaults()
	cfg.MaxLifetime = cmp.Or(cfg.MaxLifetime, directory.MaxLifetime)

	if cfg.clock == nil {
		cfg.clock = cfg.Clock.Wall
	}

	cfg.Clock = cmp.Or(cfg.Clock, directory.NewCheckedClock(cfg.clock))

	if cfg.reads.Log == 0 {
		cfg.reads = state.ReadableVersions()
	}

	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))

	if err := cfg.check(); err != nil {
		return nil, err // which names the member
	}

	return assemble(&cfg), nil
}

// assemble makes the parts of a member, each after those on which it depends.
func assemble(cfg *Config) *Store {
	m := newMember(cfg)
	clocks := newClocks(cfg, m.replica, m.group.voters)
	terms := &terms{member: m, clocks: clocks}

	s := &Store{
		member: m, Replica: m.replica, Logs: Ledger{member: m, epochs: m.replica.ledger}, clocks: clocks, terms: terms,
		peers:     peers{member: m, terms: terms},
		diskWatch: diskWatch{member: m},
		follower:  follower{member: m, terms: terms, clocks: clocks},
		sweeper:   sweeper{member: m, terms: terms, clocks: clocks},
		reader:    newReader(m, terms),
		joins:     admitter{member: m, terms: terms, found: newCandidates()},
	}
	s.comparer = ledgerComparer{member: m, logs: &s.Logs}
	s.statements = statementKeeper{member: m, logs: &s.Logs}
	s.inspector = inspector{member: m, confirmed: s.peers.confirmed}
	s.restorer = restorer{member: m, terms: terms, reader: &s.reader}
	s.joiner = joiner{member: m, terms: terms, diskWatch: &s.diskWatch, joins: &s.joins, mistakes: map[string]string{}}
	s.forwarder = forwarder{
		member: m, terms: terms, peers: &s.peers,
		batches: newBatcher[forwardResult](m.life.closing.Done(), maxMessage, maxMessageBytes),
		streams: openStreams{dialing: make(chan struct{}, 1), own: map[spiffeid.ID]*leaderStream{}},
	}
	s.writes = writeServer{member: m, terms: terms}
	s.writes.streams = &stream.Server{
		Parallel: 2 * maxMessages, // the sender has half of that under way
		Answer:   s.writes.answerFrame, WriteTime: cfg.Timing.Write, CloseTime: cfg.Timing.Heartbeat,
		Occupy:   func(conn net.Conn, by int) { m.messenger.cluster.Occupy(conn, by) },
		IsMember: func(from spiffeid.ID) bool { return m.messenger.cluster.IsMember(from) },
	}
	s.closed = sync.OnceValue(s.shutdown)

	return s
}

// Failed returns a channel that is closed once this member cannot go on: its log could not
// be written, or has an entry that this release does not know. Ready returns the reason.
// Writes acknowledged before are safe, and none is acknowledged after; only a new start
// from the disk puts it right.
func (s *Store) Failed() <-chan struct{} { return s.life.failing }

// Leader returns the node that is known to lead the domain.
func (s *Store) Leader() (spiffeid.ID, bool) { return s.group.Leader() }

// IsLeader reports whether this member leads and is ready to.
func (s *Store) IsLeader() bool { return s.terms.leader() != nil }

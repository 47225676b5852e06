package consensus

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ErrDamaged says that a member's log or snapshots are not as it wrote them. Its domain
// has all of it where other members do: such a member begins anew with an empty Dir,
// while all the others are up, since its votes are gone as well.
var ErrDamaged = disk.ErrDamaged

// A Store is one member of a domain. Its methods are safe for concurrent use.
type Store struct {
	cfg     Config
	log     *slog.Logger
	raft    *raft.Raft
	running atomic.Pointer[raft.Raft] // the same, for what Raft itself may ask before it is set
	disk    *disk.Disk
	cluster *cluster
	opened  time.Time

	batches   batcher
	growth    growth
	courier   courier
	lines     switchboard
	tenure    tenure
	presence  presence
	jumps     jumpWatch
	unread    atomic.Pointer[error]  // why the last snapshot that did not do was none for this release
	outside   atomic.Pointer[string] // why this node is no member yet; nil where it is
	found     candidates
	restores  sync.Mutex    // one at a time
	seating   chan struct{} // holds one while members or the numbers in force change
	pace      negotiationPace
	leading   atomic.Bool               // leads, has applied all before its term, and the history has begun
	caughtUp  atomic.Bool               // a follower's: has applied what the leader had a moment ago
	clockOff  atomic.Int64              // a follower's: by how much its clock is wrong, where it is
	clockSaid atomic.Pointer[time.Time] // when a leader last said what time it is; nil for never
	settled   atomic.Bool               // has led or caught up since it was opened
	failed    atomic.Pointer[error]
	failing   chan struct{} // closed once failed is set
	regrants  chan struct{} // asks for grants to be decided anew; holds one

	reads     reign
	asked     shared // by a follower of its leader, for linearizable reads
	confirmed shared // by a leader of a majority, for the same
	gates     map[spiffeid.ID]chan struct{}
	transport memberTransport
	telling   map[raft.ServerID]chan struct{} // holds one: a word of a commit is under way; of tellLoop alone

	stop    context.CancelFunc
	closing context.Context
	loops   sync.WaitGroup
	closed  func() error

	shown atomic.Pointer[glimpse] // what every read asks of state: it must not wait while a log entry is applied

	mu      sync.RWMutex
	state   *state.State
	told    uint64        // the revision of the law that Config.Policy was told of last
	changed chan struct{} // closed and replaced at every change of state
	agreed  chan struct{} // the same at those of more than registrations
}

// Open starts a member from what its Dir holds. A member without any state
// begins with the configured members, all of which do the same; the domain is
// there once a majority is. Open does not wait for that: see Ready.
func Open(cfg Config) (*Store, error) {
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close hands leadership over where there is somebody to take it, stops, and
// closes the listener. It is safe to call twice.
func (s *Store) Close() error { return s.closed() }

// Register registers a name or replaces what its owner registered (jimenez 4.1,
// 4.2), with a document that directory.Project has accepted. Without a name it is
// registered by its rid, each time anew. As every write it may be called on any member, returns once the change
// is committed and applied on this one too, and fails with a *directory.Error:
// Unavailable where nothing was changed, OutcomeUnknown where it may have been;
// to repeat it is safe.
func (s *Store) Register(ctx context.Context, r directory.Registering) (directory.Outcome, error) {
	req := &registerRequest{
		callerOf(r.Caller), r.Agent, r.Document.Kind(), r.Document.AtRest().Resting(), r.Lifetime, r.Visibility, r.IfMatch, r.Present, r.Absent, r.KeepVisibility, nil, r.Owner,
	}
	if r.Projection != nil && r.Agent != "" { // else its name is not known yet
		req.Packed = state.Pack(r.Document, r.Projection)
	}
	return s.write(ctx, &request{Register: req})
}

// Refresh sets a new deadline and, where there is a patch, other members
// (jimenez 4.4).
func (s *Store) Refresh(ctx context.Context, r directory.Refreshing) (directory.Outcome, error) {
	return s.write(ctx, &request{Refresh: &refreshRequest{callerOf(r.Caller), r.RID, r.Lifetime, r.Patch, r.IfMatch, r.Statement}})
}

// RefreshMany is Refresh of many registrations in one log entry. The outcome's
// Each has what became of them; an error says that none was refreshed, or that it
// is not known which.
func (s *Store) RefreshMany(ctx context.Context, r directory.RefreshingMany) (directory.Outcome, error) {
	return s.write(ctx, &request{Renew: &renewRequest{callerOf(r.Caller), state.PackRenewals(r.Items)}})
}

// Remove ends a registration (jimenez 4.5).
func (s *Store) Remove(ctx context.Context, r directory.Removing) (directory.Outcome, error) {
	return s.write(ctx, &request{Remove: &removeRequest{callerOf(r.Caller), r.RID, r.IfMatch}})
}

// SetPeering puts what an operator agreed with another domain in the place of
// what was agreed before. The leader then asks policy about all grants anew.
func (s *Store) SetPeering(ctx context.Context, p directory.Peering) error {
	w := state.Peer(p)
	_, err := s.write(ctx, &request{Peer: &w})
	return err
}

// AmendPeering is SetPeering where the domain has agreed what was says, and changes
// nothing where it hasn't: directory.Conflict. A was without a state says nothing was
// agreed.
func (s *Store) AmendPeering(ctx context.Context, was, p directory.Peering) error {
	_, err := s.write(ctx, &request{Amend: &state.Amend{Was: state.Peer(was), Peer: state.Peer(p)}})
	return err
}

// SetBundle puts a peer's new bundle in the place of held, which it was compared
// with. Where the peering has another by then, or is not in force, nothing changes.
func (s *Store) SetBundle(ctx context.Context, peer spiffeid.TrustDomain, held, bundle []byte) error {
	_, err := s.write(ctx, &request{Rebundle: &state.Rebundle{Domain: peer, Held: directory.HashOf(held), Bundle: bundle}})
	return err
}

// Redeem makes a pending peering what p says, if secret is the hash of its
// invitation's secret and the invitation has not ended: directory.Forbidden else.
// Of two that try with one secret the first is the peer.
func (s *Store) Redeem(ctx context.Context, secret directory.Hash, p directory.Peering) error {
	_, err := s.write(ctx, &request{Redeem: &state.Redeem{Secret: secret, Peer: state.Peer(p)}})
	return err
}

// Revoke takes a signing key back for good: the key document that is issued with it
// says so, and nothing that the key signed is believed by whoever has that. A key
// that the domain doesn't have now may be named, such as one that it had. To repeat
// it is safe.
func (s *Store) Revoke(ctx context.Context, key string) error {
	_, err := s.write(ctx, &request{Revoke: &state.Revoke{Key: key}})
	return err
}

// Attest puts this node's signing key with its newest attestation in the place
// of what the domain had of this node, and thereby issues a key document.
func (s *Store) Attest(ctx context.Context, k signed.SigningKey) error {
	_, err := s.write(ctx, &request{Attest: &state.Attest{Node: k.Node, Public: k.Public, Attestations: k.Attestations}})
	return err
}

// Claim makes a request the first with its key in the domain, and returns nil; else
// the first one's answer. The error is KeyInUse while there is none, KeySpent where it
// is not kept or not known, KeyReused where the first was another request. To repeat
// it with the same holder is safe.
func (s *Store) Claim(ctx context.Context, c directory.Claim) (*directory.KeptAnswer, error) {
	w := state.Claim(c)
	out, err := s.write(ctx, &request{Claim: &w})
	return out.Kept, err
}

// Settle says what came of a claim. An answer that is larger than the domain keeps is
// not kept. To repeat it is safe; a claim that is not its holder's any more stays as
// it is.
func (s *Store) Settle(ctx context.Context, c directory.Settlement) error {
	w := state.Settle{Key: c.Key, Holder: c.Holder, Release: c.Release, Answer: (*state.Answer)(c.Answer)}
	if w.Check() != nil {
		w.Answer = nil
	}
	_, err := s.write(ctx, &request{Settle: &w})
	return err
}

// SetPolicy puts a policy in force on all members, where the one that is in force has
// one of the revisions replaces, and in any case where replaces is nil; a domain that
// never made a policy has revision 0. Else it changes nothing, and the error is
// directory.PreconditionFailed. The leader then decides anew, in bounded commands, who
// beyond the domain may have what. It returns once this member's answers are by it, with
// the position of the change that put it in force, whose revision is its version.
func (s *Store) SetPolicy(ctx context.Context, text []byte, replaces []uint64) (directory.Outcome, error) {
	p := &state.Policy{Text: text}
	if replaces != nil {
		p.Replaces = &replaces
	}
	return s.write(ctx, &request{Policy: p})
}

// Spend uses up a proof by which a request came that is no command: Replayed where it
// was before. That it is not known whether it was is no leave to go on.
func (s *Store) Spend(ctx context.Context, proof directory.Hash, until int64) error {
	_, err := s.write(ctx, &request{Spend: &state.Spend{Proof: proof, Until: until}})
	return err
}

// TransferOwner makes a registration another identity's. That it is that one's
// already changes nothing, and is no error. Overtaken says that it has other contents
// than policy was asked about.
func (s *Store) TransferOwner(ctx context.Context, t directory.Transferring) (directory.Outcome, error) {
	return s.write(ctx, &request{Transfer: &transferRequest{callerOf(t.Caller), t.RID, t.To, t.Any, t.Statement, t.IfMatch}})
}

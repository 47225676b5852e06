package state

import (
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A State is the replicated state of a domain. Apply changes it as a pure function of
// itself and the entry, so that a test, a fuzzer or a recovery tool can drive it alone.
// It has no lock: its owner keeps readers and Apply apart.
type State struct {
	history       History
	members       Membership
	peers         Peerings
	keys          Keyring
	policy        PolicyState
	owners        Ownership
	streams       Streams
	registrations Registrations
	spent         spent
	claims        claims
}

// New returns the state of a domain before its first command. The index, if there is
// one, is kept up to date from now on.
func New(domain spiffeid.TrustDomain, index *index.Index) *State {
	s := &State{
		history: History{domain: domain},
		members: newMembership(),
		peers:   newPeerings(),
		keys:    newKeyring(),
		owners:  newOwnership(),
		streams: newStreams(),
		spent:   newSpent(),
		claims:  newClaims(),
	}
	s.registrations = newRegistrations(index)
	s.connect()

	return s
}

// connect gives each part the parts on which it depends.
func (s *State) connect() {
	s.members.history, s.members.keys = &s.history, &s.keys
	s.peers.history, s.peers.keys, s.peers.policy = &s.history, &s.keys, &s.policy
	s.keys.history, s.keys.mesh, s.keys.formats = &s.history, s.peers.mesh, s.members.Readable
	s.policy.history = &s.history
	s.owners.history = &s.history
	s.streams.history = &s.history
	s.registrations.history = &s.history
	s.registrations.members = &s.members
	s.registrations.policy = &s.policy
	s.registrations.owners = &s.owners
	s.registrations.streams = &s.streams
}

// History returns how far the history goes.
func (s *State) History() *History { return &s.history }

// Members returns what is known of the members.
func (s *State) Members() *Membership { return &s.members }

// Peerings returns the agreements with other domains.
func (s *State) Peerings() *Peerings { return &s.peers }

// Keys returns the signing keys.
func (s *State) Keys() *Keyring { return &s.keys }

// Policy returns the policy and how far grants are decided by it.
func (s *State) Policy() *PolicyState { return &s.policy }

// Owners returns who owns how much.
func (s *State) Owners() *Ownership { return &s.owners }

// Streams returns what was announced.
func (s *State) Streams() *Streams { return &s.streams }

// Registrations returns the domain's registrations.
func (s *State) Registrations() *Registrations { return &s.registrations }

// errMoved says that what the leader prepared a command for has changed since;
// it prepares again.
var ErrMoved = errors.New("the state has moved on")

// errUnknownFormat says that this member cannot go on: the others know more.
var errUnknownFormat = errors.New("cannot build the statement")

// A result is what one command did, or why it did nothing.
type Result struct {
	Outcome directory.Outcome
	Err     error
}

// apply applies a log entry. Only an error of the second result ends this
// member's applying; the first are answers. Where there are many changes, it calls
// breathe between some of them: the state is whole then, and may be read.
func (s *State) Apply(b *Batch, breathe func()) ([]Result, error) {
	s.registrations.pace = pace{breathe: breathe}
	defer s.registrations.show()
	s.history.now = max(s.history.now, b.Time)
	s.streams.free()
	s.claims.forget(s.history.now / 1000)
	results := make([]Result, len(b.Commands))
	for i := range b.Commands {
		s.registrations.step()
		r := &results[i]
		r.Outcome, r.Err = s.do(&b.Commands[i])
		s.streams.pin()
		if errors.Is(r.Err, errUnknownFormat) {
			return nil, r.Err
		}
		r.Outcome.Position = s.history.Position()
	}
	return results, nil
}

func (s *State) do(c *Command) (directory.Outcome, error) {
	if (s.history.epoch == 0 || s.history.sealed != "") && c.Epoch == nil {
		return directory.Outcome{}, directory.Refuse(directory.Unavailable, "the domain's history has not begun")
	}
	if err := s.spent.check(c.Spend, s.history.now/1000); err != nil {
		return directory.Outcome{}, err
	}
	out, err := s.change(c)
	if !errors.Is(err, ErrMoved) { // else the same proof comes again, with the command prepared anew
		s.spent.spend(c.Spend)
	}
	return out, err
}

func (s *State) change(c *Command) (directory.Outcome, error) {
	switch {
	case c.Register != nil:
		return s.registrations.register(c.Register)
	case c.Update != nil:
		return s.registrations.update(c.Update)
	case c.Refresh != nil:
		return s.registrations.refresh(c.Refresh)
	case c.Renew != nil:
		return s.registrations.renewMany(c.Renew)
	case c.Remove != nil:
		return s.registrations.remove(c.Remove)
	case c.Transfer != nil:
		return s.registrations.transfer(c.Transfer)
	case c.Expire != nil:
		return directory.Outcome{}, s.registrations.expireAll(c.Expire)
	case c.Announce != nil:
		s.registrations.announceAll(c.Announce)
	case c.Attest != nil:
		s.keys.attest(c.Attest)
	case c.Revoke != nil:
		s.keys.revoke(c.Revoke)
	case c.Issue != nil:
		s.keys.reissue(c.Issue)
	case c.Peer != nil:
		s.peers.set(c.Peer)
	case c.Amend != nil:
		return directory.Outcome{}, s.peers.amend(c.Amend)
	case c.Rebundle != nil:
		s.peers.rebundle(c.Rebundle)
	case c.Redeem != nil:
		return directory.Outcome{}, s.peers.redeem(c.Redeem)
	case c.Epoch != nil:
		s.begin(c.Epoch)
	case c.Regrant != nil:
		s.registrations.regrant(c.Regrant)
	case c.Decide != nil:
		s.policy.conclude(c.Decide)
	case c.Policy != nil:
		return s.policy.setPolicy(c.Policy)
	case c.Rules != nil:
		s.owners.setRules(c.Rules)
	case c.Member != nil:
		return directory.Outcome{}, s.members.update(c.Member)
	case c.Feature != nil:
		return directory.Outcome{}, s.members.feature(c.Feature)
	case c.Admit != nil:
		s.members.admit(c.Admit)
	case c.Claim != nil:
		return s.claims.claim(c.Claim, s.history.now/1000)
	case c.Settle != nil:
		s.claims.settle(c.Settle)
	default:
		c.apply(&s.history)
	}
	return directory.Outcome{}, nil
}

// begin begins the domain's history, or a new epoch of one that was restored (rule
// P1): leaf 0 of the ledger says of which epoch it is and what came before. Any
// other beginning changes nothing.
func (s *State) begin(c *Epoch) {
	if s.history.epoch != 0 && s.history.sealed == "" || c.Epoch <= s.history.epoch {
		return
	}
	old, size, root := "", s.history.ledger.size, s.history.ledger.root()
	if s.history.epoch != 0 {
		old = logOrigin(s.history.domain, s.history.epoch)
	}
	payload := epochPayload(s.history.domain, c.Epoch, old, size, root, s.history.restored, c.Reason)
	s.history.epoch, s.history.sealed, s.history.ledger = c.Epoch, "", frontier{}
	s.history.restored = 0
	s.history.next()
	s.history.ledger.append(leafEpoch, payload)
	if len(s.keys.byNode) > 0 {
		s.keys.issue()
	}
}

package state

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/ledger"
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
	ordered       ordered
	claims        Claims
	offers        Offers
	decided       decided
	witness       Witness
	erasures      Erasures
	pins          Pins

	traced []directory.OperatorCommand // by the last Apply
}

// New returns the state of a domain before its first command. The index, if there is
// one, is kept up to date from now on.
func New(domain spiffeid.TrustDomain, index *index.Index) *State {
	state := &State{
		history:  History{domain: domain},
		members:  newMembership(),
		peers:    newPeerings(),
		keys:     newKeyring(),
		owners:   newOwnership(),
		streams:  newStreams(),
		spent:    newSpent(),
		ordered:  ordered{spent: newSpent()},
		claims:   newClaims(),
		offers:   newOffers(),
		decided:  decided{},
		witness:  newWitness(),
		erasures: Erasures{known: map[directory.RID]bool{}},
		pins:     Pins{audited: map[spiffeid.ID]int64{}},
	}
	state.registrations = newRegistrations(index)
	state.connect()

	return state
}

// connect gives each part the parts on which it depends.
func (s *State) connect() {
	s.members.history, s.members.keys = &s.history, &s.keys
	s.peers.history = &s.history
	s.peers.keys = &s.keys
	s.peers.policy = &s.policy
	s.keys.history = &s.history
	s.keys.mesh = s.peers.mesh
	s.keys.formats = s.members.Readable
	s.policy.history = &s.history
	s.owners.history = &s.history
	s.streams.history = &s.history
	s.registrations.history = &s.history
	s.registrations.members = &s.members
	s.registrations.policy = &s.policy
	s.registrations.owners = &s.owners
	s.registrations.streams = &s.streams
	s.registrations.offers = &s.offers
	s.offers.history = &s.history
	s.offers.regs = &s.registrations.regs
	s.witness.history, s.witness.members = &s.history, &s.members
	s.pins.history = &s.history
	s.erasures.history, s.erasures.regs, s.erasures.owners = &s.history, &s.registrations.regs, &s.owners
}

// History returns how far the history goes.
func (s *State) History() *History { return &s.history }

// Members returns the knowledge of members.
func (s *State) Members() *Membership { return &s.members }

// Peerings returns the agreements with other domains.
func (s *State) Peerings() *Peerings { return &s.peers }

// Keys returns the signing keys.
func (s *State) Keys() *Keyring { return &s.keys }

// Policy returns the policy and how far grants are decided by it.
func (s *State) Policy() *PolicyState { return &s.policy }

// Owners returns the ownership part of the state.
func (s *State) Owners() *Ownership { return &s.owners }

// Streams returns the announced streams.
func (s *State) Streams() *Streams { return &s.streams }

// Registrations returns the domain's registrations.
func (s *State) Registrations() *Registrations { return &s.registrations }

// Offers returns the open offers of ownership.
func (s *State) Offers() *Offers { return &s.offers }

// Witness returns the logs that the domain has cosigned, and the cosignatures of its ledger.
func (s *State) Witness() *Witness { return &s.witness }

// Pins returns the facts that the ledger of the epoch has beside the domain's changes.
func (s *State) Pins() *Pins { return &s.pins }

// Erasures returns the registrations whose contents are erased.
func (s *State) Erasures() *Erasures { return &s.erasures }

// Claims returns the Idempotency-Keys that are known.
func (s *State) Claims() *Claims { return &s.claims }

// ErrMoved says that the state for which a command was prepared has changed; the leader
// prepares it again.
var ErrMoved = errors.New("the state has moved on")

// errUnknownFormat says that this member cannot go on: the others know more.
var errUnknownFormat = errors.New("cannot build the statement")

// CheckProof refuses an operator's proof that was used, or that cannot be remembered.
func (s *State) CheckProof(origin *Origin) error {
	return s.ordered.check(origin.proof())
}

// Traced returns the commands of operators, and of nodes by themselves where an operator could
// have made them, that the last Apply has applied.
func (s *State) Traced() []directory.OperatorCommand { return s.traced }

// A Result is the outcome of one command, or its refusal.
type Result struct {
	Outcome directory.Outcome
	Err     error
}

// Apply applies a log entry at once. Only an error of the second result ends this member's
// applying; the first are answers.
func (s *State) Apply(batch *Batch) ([]Result, error) {
	entry := s.Begin(batch)
	for {
		if more, err := entry.Next(); err != nil || !more {
			return entry.results, err
		}
	}
}

// An Application is a log entry on its way into the state, piece by piece. Between two pieces
// the state is whole and may be read: the index shows it, and all that is announced is in the
// ledger.
type Application struct {
	state   *State
	batch   *Batch
	results []Result // nil before the first piece
	command int      // the next one, or the one that is under way
	item    int      // the next one of its list
	before  mark     // the state before it
}

// Begin begins to apply a log entry. No other one is begun before it is finished.
func (s *State) Begin(batch *Batch) *Application { return &Application{state: s, batch: batch} }

// Results returns the results of the commands, after the last piece.
func (a *Application) Results() []Result { return a.results }

// atOneGo is the number of changes of a piece. Ending a registration of 10^6 takes up to 60 µs.
const atOneGo = 64

// Next applies the next piece, of atOneGo changes or as many more as it takes until the state is
// whole, and reports whether there is another. An error ends this member's applying.
func (a *Application) Next() (more bool, err error) {
	s := a.state

	// The caller has taken over the entries of the piece before.
	s.history.entries, s.history.began, s.history.past = s.history.entries[:0], nil, nil

	defer s.registrations.show()

	if a.results == nil {
		a.results = make([]Result, len(a.batch.Commands))

		// Before the first command, because all commands of an entry are judged at its time.
		s.history.advance(a.batch.Time)
		s.streams.free()
		s.claims.forget(s.history.now / 1000)
		s.offers.forget()
		s.traced = nil
	}

	for changes := 0; a.command < len(a.results); changes++ {
		// Readers come between two pieces, so each announced digest must have its leaf by then.
		if changes >= atOneGo && len(s.streams.uncovered) == 0 {
			return true, nil
		}

		if err := a.change(); err != nil {
			a.results = nil
			return false, err
		}
	}

	return false, nil
}

// change makes the next change: a command, or an item of one that is a list of changes.
func (a *Application) change() error {
	s, command, result := a.state, &a.batch.Commands[a.command], &a.results[a.command]
	s.history.bringer = command.Origin.member()

	if a.item == 0 {
		a.before = s.mark(command)
		result.Err = s.admits(command)
	}

	if result.Err == nil {
		if unfinished := a.execute(command, result); unfinished {
			return nil
		}

		s.conclude(command, a.before, result.Err)
	}

	s.streams.pin()
	result.Outcome.Position = s.history.Position()
	a.command++
	a.item = 0

	// This release can't write the statement, so its ledger would differ from those of other members.
	if errors.Is(result.Err, errUnknownFormat) {
		return result.Err
	}

	return nil
}

// execute executes a command, or the next item of its list, and reports whether items are left.
func (a *Application) execute(command *Command, result *Result) (unfinished bool) {
	items, isList := command.items()
	if !isList {
		result.Outcome, result.Err = a.state.change(command)
		return false
	}

	// The form of the list is checked once, before its first item.
	if command.Renew != nil && a.item == 0 {
		result.Err = command.Renew.Renewals.Check()
	}

	if result.Err == nil && a.item < items {
		result.Err = a.state.registrations.changeItem(command, a.item, &result.Outcome)
		a.item++
	}

	return result.Err == nil && a.item < items
}

// admits refuses a command that may not change the state now.
func (s *State) admits(command *Command) error {
	if (s.history.epoch == 0 || s.history.sealed != "") && command.Epoch == nil {
		return directory.Refuse(directory.Unavailable, "the domain's history has not begun")
	}

	if err := s.checkForm(command); err != nil {
		return err
	}

	if err := s.spent.check(command.Spend, s.history.now/1000); err != nil {
		return err
	}

	return s.CheckProof(command.Origin)
}

// conclude uses up the proofs of a command, and records its changes since before.
func (s *State) conclude(command *Command, before mark, err error) {
	// An operator's proof is used up by a command that succeeds, so that a command that
	// another precedes can be prepared again.
	if err == nil {
		s.ordered.spend(command.Origin.proof(), s.history.now/1000)
		s.trace(command, before)

		if s.history.revision != before.revision {
			s.keepDecided(command)
		}
	}

	// After ErrMoved the same proof comes again, because the leader prepares the command again.
	if !errors.Is(err, ErrMoved) {
		s.spent.spend(command.Spend, s.history.now/1000)
	}
}

// checkForm refuses a command that is traced as another than it is applied
// as, or that only uses up an operator's proof.
func (s *State) checkForm(command *Command) error {
	count := command.members()
	_, traced := command.Change()

	switch {
	case count > 1 || count == 0 && command.Spend == nil:
		return directory.Refuse(directory.BadRequest, "a command has one member, and this one has %d", count)
	case command.Origin.Request() != nil && !traced:
		return directory.Refuse(directory.BadRequest, "a command that is not traced has no operator")
	case command.Origin.Request() != nil && command.Epoch == nil &&
		command.Origin.Policy != s.policy.current.Revision:
		// It was judged by another policy.
		return ErrMoved
	}

	return nil
}

// rebundle replaces a peer's bundle by a newer one.
func (s *State) rebundle(c *Rebundle) error {
	if err := s.peers.CheckRebundle(c); err != nil {
		return err
	}

	s.peers.rebundle(c)

	return nil
}

// redeem redeems an invitation by its secret. All members have the secret's hash, which redeems nothing.
func (s *State) redeem(redeem *Redeem) error {
	if directory.HashOf([]byte(redeem.Shown)) != redeem.Secret {
		return refuseInvitation(redeem.Peer.Domain)
	}

	return s.peers.redeem(redeem)
}

// change makes the change of a command that is no list of changes.
func (s *State) change(command *Command) (directory.Outcome, error) {
	switch {
	case command.Register != nil:
		return s.registrations.register(command.Register)
	case command.Update != nil:
		return s.registrations.update(command.Update)
	case command.Refresh != nil:
		return s.registrations.refresh(command.Refresh)
	case command.Remove != nil:
		return s.registrations.remove(command.Remove)
	case command.Transfer != nil:
		return s.registrations.transfer(command.Transfer)
	case command.Offer != nil:
		return s.registrations.offer(command.Offer)
	case command.Accept != nil:
		return s.registrations.accept(command.Accept)
	case command.CloseOffer != nil:
		return s.registrations.closeOffer(command.CloseOffer)
	case command.Attest != nil:
		s.keys.attest(command.Attest)
	case command.Revoke != nil:
		s.keys.revoke(command.Revoke)
	case command.Issue != nil:
		s.keys.reissue(command.Issue)
	case command.Peer != nil:
		s.peers.set(command.Peer)
	case command.Amend != nil:
		return directory.Outcome{}, s.peers.amend(command.Amend)
	case command.Rebundle != nil:
		return directory.Outcome{}, s.rebundle(command.Rebundle)
	case command.Redeem != nil:
		return directory.Outcome{}, s.redeem(command.Redeem)
	case command.Epoch != nil:
		s.begin(command.Epoch)
	case command.Decide != nil:
		s.policy.conclude(command.Decide)
	case command.Policy != nil:
		return s.policy.setPolicy(command.Policy, command.Origin)
	case command.Rules != nil:
		s.owners.setRules(command.Rules)
	case command.Member != nil:
		return directory.Outcome{}, s.members.update(command.Member)
	case command.Feature != nil:
		return directory.Outcome{}, s.members.feature(command.Feature)
	case command.Admit != nil:
		s.members.admit(command.Admit)
	case command.Order != nil:
		s.history.next()
	case command.Claim != nil:
		return s.claims.claim(command.Claim, s.history.now/1000)
	case command.Settle != nil:
		s.claims.settle(command.Settle)
	case command.Cosign != nil:
		return s.witness.cosign(command.Cosign)
	case command.Erase != nil:
		return s.erasures.erase(command.Erase, command.Origin)
	case command.Witnessed != nil:
		return directory.Outcome{}, s.witness.keep(command.Witnessed)
	case command.Pin != nil:
		return directory.Outcome{}, s.pins.pin(command.Pin)
	default:
		command.apply(&s.history)
	}

	return directory.Outcome{}, nil
}

// trace records an applied command for the members' audit logs and as a leaf of the ledger. A node's own
// command that changed nothing leaves no trace, and one that is another leaf needs none of its own.
func (s *State) trace(command *Command, before mark) {
	change, ok := command.Change()
	if !ok {
		return
	}

	origin, within := command.Origin, JudgedFor

	// The order of a restore is in the sealed state, and the command of its epoch has none.
	if command.Epoch != nil {
		origin, within = s.history.restoredBy, RestoredFor
		s.ordered.spend(origin.proof(), s.history.now/1000)
	}

	switch request := origin.Request(); {
	case request == nil && change.Node && s.history.revision == before.revision:
		return
	case command.Epoch != nil && (before.epoch == 0 || before.epoch == s.history.epoch):
		// A new domain begins by itself, and an epoch that is ignored changes nothing.
		return
	}

	applied := directory.OperatorCommand{
		OperatorChange: change, Request: origin.Request(), At: time.UnixMilli(s.history.now),
		Judged: origin.JudgedAt(s.history.now, within),
		Policy: before.policy.Text, PolicyVersion: before.policy.Revision,
		Number: s.history.commands + 1, Position: s.history.Position(), From: origin.member(),
	}

	if command.Rebundle != nil {
		applied.Bundle = &directory.BundleChange{Was: before.peering, Next: command.Rebundle.Bundle}
	}

	switch {
	case command.Pin != nil:
		applied.Logged = s.pins.payload
	case !change.Node || s.history.ledger.Size == before.leaves:
		leaf := commandLeaf{domain: s.history.domain, OperatorCommand: &applied, bundle: command.peerBundle()}
		applied.Logged = leaf.payload()
		s.history.log(ledger.Command, applied.Logged)
	}

	s.history.commands++
	s.traced = append(s.traced, applied)
}

// peerBundle returns the bundle that a node's own command gives a peer; nil for others. An operator's request has
// its own hash in the ledger.
func (c *Command) peerBundle() []byte {
	switch {
	case c.Rebundle != nil:
		return c.Rebundle.Bundle
	case c.Redeem != nil:
		return c.Redeem.Peer.Bundle
	}

	return nil
}

// A mark is the part of the state before a command that its trace needs.
type mark struct {
	epoch, revision, leaves uint64
	policy                  policyText
	peering                 directory.Peering // whose bundle the command replaces
}

func (s *State) mark(command *Command) mark {
	m := mark{
		epoch: s.history.epoch, revision: s.history.revision, leaves: s.history.ledger.Size, policy: s.policy.current,
	}
	if command.Rebundle != nil {
		m.peering = s.peers.Get(command.Rebundle.Domain)
	}

	return m
}

// begin begins the domain's history, or a new epoch of a restored one (rule P1): leaf 0
// of the ledger names the epoch and its predecessor. Any other beginning changes nothing.
func (s *State) begin(epoch *Epoch) {
	if s.history.epoch != 0 && s.history.sealed == "" || epoch.Epoch <= s.history.epoch {
		return
	}

	// The leaf has the end of the former ledger, so it precedes the change.
	start := &ledger.Start{
		Domain:   s.history.domain,
		Epoch:    epoch.Epoch,
		Former:   s.history.epoch,
		Size:     s.history.ledger.Size,
		Root:     s.history.ledger.Root(),
		Restored: s.history.restored,
		Reason:   epoch.Reason,
	}

	s.history.epoch = epoch.Epoch
	s.history.sealed = ""
	s.history.began = start
	s.history.ledger = ledger.Frontier{}

	// The cosignatures are of the former epoch's ledger.
	s.witness.own = Witnessed{}
	s.keys.endCosigning()
	s.pins.forget()
	s.history.next()
	s.history.log(ledger.Epoch, start.Payload())

	// The document names its epoch, so it is issued anew.
	if len(s.keys.byNode) > 0 {
		s.keys.issue()
	}
}

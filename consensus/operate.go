package consensus

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An order is what an operator wants of the domain's members, as a follower hands
// it to the leader.
type order struct {
	Verb verb        `cbor:"1,keyasint"`
	ID   spiffeid.ID `cbor:"2,keyasint"` // zero where any will do
}

type verb string

const (
	verbTransfer verb = "transfer"
	verbRemove   verb = "remove"
	verbAdmit    verb = "admit"
	verbWithdraw verb = "withdraw"
)

// admittedFor is how long a node has to join once it is admitted.
const admittedFor = 24 * time.Hour

// Transfer gives the leadership to a member, or to whichever is fit where to is
// zero, and returns once it has it, and this member knows that.
func (s *Store) Transfer(ctx context.Context, to spiffeid.ID) error {
	before, _ := s.leader()
	_, err := s.write(ctx, &request{Order: &order{verbTransfer, to}})
	if err != nil {
		return err
	}
	for known := time.After(s.cfg.Timing.Heartbeat); ; {
		if now, ok := s.leader(); ok && (now.ID == to || to.IsZero() && now.ID != before.ID) {
			return nil
		}
		select {
		case <-time.After(retryPause):
		case <-known: // it has been handed over: who has it will be heard
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Expel takes a member out of the domain. It is refused where the domain could not
// write any more after it.
func (s *Store) Expel(ctx context.Context, id spiffeid.ID) error {
	_, err := s.write(ctx, &request{Order: &order{verbRemove, id}})
	return err
}

// Leave takes this member out of its domain, as Expel does; a leader hands over
// first. The node goes on and shows what it has until it is stopped, and is not
// ready.
func (s *Store) Leave(ctx context.Context) error {
	err := s.Expel(ctx, s.cfg.Node)
	if err == nil {
		why := "it has left; stop it"
		s.outside.Store(&why)
		s.log.Info("this node has left its domain")
	}
	return err
}

// Admit lets a node become a member, once and within a day; or no longer, where
// not is set.
func (s *Store) Admit(ctx context.Context, id spiffeid.ID, not bool) error {
	o := &order{verbAdmit, id}
	if not {
		o.Verb = verbWithdraw
	}
	_, err := s.write(ctx, &request{Order: o})
	return err
}

// Admitted returns who may become a member, sorted by id, and until when.
func (s *Store) Admitted() (ids []spiffeid.ID, until []time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, a := range s.state.Members().Admissions() {
		if a.Until > s.state.History().Now()/1000 {
			ids, until = append(ids, a.ID), append(until, time.Unix(a.Until, 0))
		}
	}
	return ids, until
}

// obey does an order as the leader.
func (s *Store) obey(ctx context.Context, o *order) (directory.Outcome, error) {
	switch o.Verb {
	case verbTransfer:
		return directory.Outcome{Position: s.Position()}, s.handOver(o.ID)
	case verbRemove:
		return directory.Outcome{Position: s.Position()}, s.expel(o.ID)
	case verbAdmit, verbWithdraw:
		return s.admit(ctx, o)
	}
	return directory.Outcome{}, directory.Refuse(directory.BadRequest, "the order %.40q is none that this release knows", o.Verb)
}

func (s *Store) admit(ctx context.Context, o *order) (directory.Outcome, error) {
	c := &state.Admission{ID: o.ID}
	s.mu.RLock()
	_, known := s.state.Members().Admitted(o.ID)
	full := s.state.Members().CheckAdmission(o.ID)
	s.mu.RUnlock()
	_, is := s.server(o.ID)
	switch {
	case o.ID.TrustDomain() != s.cfg.Domain || o.ID.Path() == "":
		return directory.Outcome{}, directory.Refuse(directory.BadRequest, "%q is no node of %s", o.ID, s.cfg.Domain.Name())
	case o.Verb == verbWithdraw && !known:
		return directory.Outcome{}, directory.Refuse(directory.NotFound, "%s is not admitted", o.ID)
	case o.Verb == verbWithdraw:
	case is:
		return directory.Outcome{}, directory.Refuse(directory.Conflict, "%s is a member already", o.ID)
	case full != nil:
		return directory.Outcome{}, full
	default:
		c.Until = s.cfg.clock().Add(admittedFor).Unix()
	}
	return s.propose(ctx, &state.Command{Admit: c})
}

// handOver gives the leadership away.
func (s *Store) handOver(to spiffeid.ID) error {
	m, is := s.server(to)
	var transfer func() raft.Future
	switch {
	case to == s.cfg.Node:
		return directory.Refuse(directory.Conflict, "%s leads already", to)
	case !s.hasHeir():
		return directory.Refuse(directory.Conflict, "no other member has a vote: nobody can take the leadership over")
	case to.IsZero():
		transfer = s.handOn
	case !is:
		return unknownMember(to)
	case !m.voter:
		return directory.Refuse(directory.Conflict, "%s has no vote, so it cannot lead", to)
	default:
		transfer = func() raft.Future {
			return s.raft.LeadershipTransferToServer(raft.ServerID(to.String()), raft.ServerAddress(m.Address))
		}
	}
	if err := s.yield(transfer); err != nil {
		return directory.Refuse(directory.Unavailable, "the leadership was not taken over: is that member in reach? Try again: %w", err)
	}
	return nil
}

// yield hands over between two log entries: Raft would not say what became of
// those under way. What comes meanwhile waits, and goes to the next leader. Where
// the log does not come to rest soon, it hands over all the same.
func (s *Store) yield(transfer func() raft.Future) error {
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Heartbeat)
	defer cancel()
	if release, err := s.pause(ctx); err == nil {
		defer release()
	}
	return transfer().Error()
}

func unknownMember(id spiffeid.ID) error {
	return directory.Refuse(directory.NotFound, "%s is no member of the domain", id)
}

// expel takes a member out, as the leader. A leader that is to go hands over
// first, and who leads then does it.
func (s *Store) expel(id spiffeid.ID) error {
	if err := s.mayGo(id); err != nil {
		return err
	}
	if id == s.cfg.Node {
		if err := s.handOver(spiffeid.ID{}); err != nil {
			return err
		}
		return errNotLeader
	}
	if err := proposed(s.raft.RemoveServer(raft.ServerID(id.String()), 0, enqueueTimeout).Error()); err != nil {
		return err
	}
	s.log.Info("a member was removed", "node", id)
	s.tidy(s.closing)
	return nil
}

// mayGo says why the domain cannot do without a member: of those that vote, a
// majority must be left that was heard a moment ago.
func (s *Store) mayGo(id spiffeid.ID) error {
	all := s.servers()
	i := slices.IndexFunc(all, func(m server) bool { return m.ID == id })
	if i < 0 {
		return unknownMember(id)
	}
	if !all[i].voter {
		return nil
	}
	voters, heard := 0, 0
	for _, m := range all {
		if !m.voter || m.ID == id {
			continue
		}
		voters++
		if m.ID == s.cfg.Node || time.Since(s.presence.lastHeard(m.ID)) <= s.presence.fresh {
			heard++
		}
	}
	switch {
	case voters == 0:
		return directory.Refuse(directory.Conflict, "%s is the domain's last voter: the domain would end with it", id)
	case heard < voters/2+1:
		return directory.Refuse(directory.Conflict, "of the %d voters that would be left only %d answer, and %d must: start the others first, or remove them", voters, heard, voters/2+1)
	}
	return nil
}

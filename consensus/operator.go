package consensus

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An operator changes the group's members and its leader, as the leader.
type operator struct {
	*member

	over   context.Context // the term
	orders *orderDesk
}

// admit makes or withdraws an admission, of one node or of those that match a pattern.
func (o *operator) admit(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	ordered, admission := req.Order, &state.Admission{Pattern: req.Order.Pattern}

	standing := ordered.Pattern != ""
	if !standing {
		admission.ID = ordered.ID
	}

	var known bool

	full := ask(o.replica, func(s *state.State) (err error) {
		known, err = s.Members().CheckAdmission(admission)
		return err
	})

	_, is := o.group.server(admission.ID)
	withdraws := ordered.Verb == message.WithdrawAdmission || standing && ordered.Max == 0

	switch {
	case !standing && (ordered.ID.TrustDomain() != o.cfg.Domain || ordered.ID.Path() == ""):
		return directory.Outcome{}, directory.Refuse(directory.BadRequest, "%q is no node of %s", ordered.ID,
			o.cfg.Domain.Name())
	case withdraws && !known && standing:
		return directory.Outcome{}, directory.Refuse(directory.NotFound, "%s has no standing admission",
			ordered.Pattern)
	case withdraws && !known:
		return directory.Outcome{}, directory.Refuse(directory.NotFound, "%s is not admitted", ordered.ID)
	case withdraws:
		// An admission that ends at 0, or of no members, is a withdrawal.
	case is:
		return directory.Outcome{}, directory.Refuse(directory.Conflict, "%s is a member already", ordered.ID)
	case full != nil:
		return directory.Outcome{}, full
	case standing:
		admission.Max = ordered.Max
	default:
		admission.Until = o.cfg.Clock.Now().Add(admittedFor).Unix()
	}

	return o.orders.propose(ctx, req, &state.Command{Admit: admission})
}

// expel removes a member, as the leader. A leader that is to be removed hands over first,
// and its successor removes it. No other change of members comes between the check and the removal.
func (o *operator) expel(ctx context.Context, id spiffeid.ID) error {
	release, err := o.seats.hold(ctx)
	if err != nil {
		return err
	}
	defer release()

	if err := o.mayRemove(ctx, id); err != nil {
		return err
	}

	if id == o.cfg.Node {
		if err := o.transferTo(ctx, spiffeid.ID{}); err != nil {
			return err
		}

		return message.ErrNotLeader
	}

	err = proposed(o.group.raft.RemoveServer(raft.ServerID(id.String()), 0, enqueueTimeout).Error())
	if directory.ProblemOf(err) == directory.OutcomeUnknown {
		return removalUnknown(id, err)
	}

	if err != nil {
		return err
	}

	o.log.Info("removed a member", "node", id)

	// At once, so that the key document no longer lists the keys of the member.
	o.removeStale(o.over)

	return nil
}

// expelFor removes a member by an operator's order. A leader that is to be removed hands over
// first, and its successor takes the order into the log.
func (o *operator) expelFor(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	id, action := req.Order.ID, cmp.Or(req.Order.Action, directory.ActionRemoveMember)

	from := req.From
	if from.IsZero() {
		from = o.cfg.Node
	}

	// The proof is checked for the action, so the member that brings it must not choose another.
	if action != directory.ActionRemoveMember && (action != directory.ActionLeave || id != from) {
		return directory.Outcome{}, directory.Refuse(directory.Forbidden,
			"%.40q is no order to remove %s; nothing was changed", action, id)
	}

	// Before the order is in the log: a refused one would use up its proof.
	if err := o.mayRemove(ctx, id); err != nil {
		return directory.Outcome{}, err
	}

	if id == o.cfg.Node {
		// The order is only judged here. The successor writes it, with the proof that works once.
		command := &state.Command{Order: &state.Order{Action: action, Target: id.String()}}
		if err := o.orders.sign(ctx, req, command); err != nil {
			return directory.Outcome{}, err
		}

		return directory.Outcome{}, o.expel(ctx, id)
	}

	out, err := o.orders.precede(ctx, req, action, id.String())
	if err != nil {
		return out, err
	}

	err = o.expel(ctx, id)

	// The order is in the log, so its proof is used up, and no other leader can repeat it.
	if errors.Is(err, message.ErrNotLeader) {
		err = directory.Refuse(directory.Unavailable, "the leader changed meanwhile; nothing was changed: try again")
	}

	return out, err
}

func idText(id spiffeid.ID) string {
	if id.IsZero() {
		return ""
	}

	return id.String()
}

// transferTo transfers the leadership to a member, or to the best one if to is zero. A member that
// does not answer now would cost the domain its leader until the next election.
func (o *operator) transferTo(ctx context.Context, to spiffeid.ID) error {
	server, is := o.group.server(to)

	var transfer func() raft.Future
	switch {
	case to == o.cfg.Node:
		return directory.Refuse(directory.Conflict, "%s leads already", to)
	case !o.group.hasOtherVoter():
		return directory.Refuse(directory.Conflict,
			"no other member has a vote, so the leadership cannot be transferred")
	case to.IsZero():
		others, _ := o.group.voters()

		there := o.ask(ctx, others, len(others))
		if len(there) == 0 {
			return directory.Refuse(directory.Conflict, "none of the %d other voters answers now, so the leadership "+
				"cannot be transferred; start one of them first", len(others))
		}

		// Raft chooses the member with most of the log. It may be a dead one, so it chooses only if all answer.
		transfer = o.group.raft.LeadershipTransfer
		if len(there) < len(others) {
			transfer = o.transferToMember(there[0])
		}
	case !is:
		return unknownMember(to)
	case !server.voter:
		return directory.Refuse(directory.Conflict, "%s has no vote, so it cannot lead", to)
	case len(o.ask(ctx, []Member{server.Member}, 1)) == 0:
		return directory.Refuse(directory.Conflict, "%s does not answer now, so it cannot lead; start it first, or "+
			"transfer the leadership to another voter", to)
	default:
		transfer = o.transferToMember(server.Member)
	}

	return o.transferRepeatedly(transfer)
}

// transferRepeatedly transfers the leadership, and tries again for a few election timeouts.
// Raft gives the successor one, which is short for a busy machine.
func (o *operator) transferRepeatedly(transfer func() raft.Future) error {
	for until := time.Now().Add(transferElections * o.cfg.Timing.Election); ; {
		err := o.transferBetweenEntries(transfer)
		switch {
		case err == nil:
			return nil
		case !o.group.isLeader():
			return message.ErrNotLeader // another member was elected meanwhile
		case time.Now().After(until):
			return directory.Refuse(directory.Unavailable,
				"leadership transfer failed; check that the member is reachable and retry: %w", err)
		}

		select {
		case <-time.After(retryPause): // waiting writes go into the log
		case <-o.life.closing.Done():
			return message.ErrNotLeader
		}
	}
}

// handle executes an operator's command, as the leader. A change of the Raft group is
// preceded by the order in the log.
func (o *operator) handle(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	ordered := req.Order
	switch ordered.Verb {
	case message.TransferLeadership:
		out, err := o.orders.precede(ctx, req, directory.ActionTransferLead, idText(ordered.ID))
		if err == nil {
			err = o.transferTo(ctx, ordered.ID)
		}

		return out, err
	case message.RemoveMember:
		return o.expelFor(ctx, req)
	case message.AdmitNode, message.WithdrawAdmission:
		return o.admit(ctx, req)
	case message.ConfirmClock:
		return o.confirmClock(ctx, req)
	case message.NoteOrder:
		if ordered.Action == directory.ActionMove {
			// The leader notes a move by itself, and no operator orders one.
			break
		}

		return o.orders.precede(ctx, req, ordered.Action, ordered.Target)
	}

	return directory.Outcome{}, directory.Refuse(directory.BadRequest,
		"unknown operator command %.40q", ordered.Verb)
}

// confirmClock confirms the step of this leader's clock by an operator's order, which has the exact
// step: by it the members know the time at which the operator's proof must hold.
func (o *operator) confirmClock(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	said, err := directory.ParseClockStep(req.Order.Target)
	if err != nil {
		return directory.Outcome{}, err
	}

	step, err := o.orders.proposer.clocks.mayConfirm(said)
	if err != nil {
		return directory.Outcome{}, err
	}

	out, err := o.orders.precede(ctx, req, directory.ActionConfirmClock, step.String())
	if err == nil {
		o.orders.proposer.clocks.order(step)
	}

	return out, err
}

// mayRemove refuses to remove a voter without which the domain could not write: a majority of the
// remaining voters must answer now. Their earlier contacts with this leader do not count.
func (o *operator) mayRemove(ctx context.Context, id spiffeid.ID) error {
	all := o.group.servers()

	i := slices.IndexFunc(all, func(m server) bool { return m.ID == id })
	if i < 0 {
		return unknownMember(id)
	}

	if !all[i].voter {
		return nil
	}

	var left []Member
	for _, m := range all {
		if m.voter && m.ID != id {
			left = append(left, m.Member)
		}
	}

	if len(left) == 0 {
		return directory.Refuse(directory.Conflict, "%s is the domain's last voter: the domain would end with it", id)
	}

	majority := len(left)/2 + 1

	there := o.ask(ctx, left, majority)
	if len(there) >= majority {
		return nil
	}

	var missing []string
	for _, m := range left {
		if !slices.Contains(there, m) {
			missing = append(missing, m.ID.String())
		}
	}

	return directory.Refuse(directory.Conflict, "of the %d voters that would be left only %d answer now, and %d must: "+
		"start or remove those that do not, %s, first; nothing was changed", len(left), len(there), majority,
		strings.Join(missing, ", "))
}

// mayPromote refuses a vote to a member that would cost the domain its majority, because too many
// voters do not answer now.
func (o *operator) mayPromote(ctx context.Context, m Member) error {
	voters, _ := o.group.voters()
	voters = append(voters, o.group.self(), m)
	majority := len(voters)/2 + 1

	if there := o.ask(ctx, voters, majority); len(there) < majority {
		return directory.Refuse(directory.Unavailable,
			"%s gets no vote yet: of the then %d voters only %d answer now, "+
				"and %d must", m.ID, len(voters), len(there), majority)
	}

	return nil
}

// ask asks these voters at once whether they can acknowledge entries, and returns those that say so,
// as soon as there are enough. It asks again until answerWait is over: a member may be just about to
// connect.
func (o *operator) ask(ctx context.Context, voters []Member, enough int) (there []Member) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()

	answers := askEach(o.member, voters, func(m Member) Member {
		if m.ID == o.cfg.Node || o.answers(ctx, m) {
			return m
		}

		return Member{}
	})

	for len(there) < enough {
		select {
		case m := <-answers:
			if m != (Member{}) {
				there = append(there, m)
			}
		case <-ctx.Done():
			return there
		}
	}

	return there
}

// answers asks a member, until ctx ends, whether it can acknowledge entries.
func (o *operator) answers(ctx context.Context, m Member) bool {
	for ctx.Err() == nil {
		if answer, err := o.askOnce(ctx, m); err == nil && !answer.Unable {
			return true
		}

		select {
		case <-time.After(askPause):
		case <-ctx.Done():
		case <-o.life.closing.Done():
			return false
		}
	}

	return false
}

// askOnce asks a member for its term, and waits for a heartbeat timeout at most.
func (o *operator) askOnce(ctx context.Context, m Member) (answer message.TermAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Timing.Heartbeat)
	defer cancel()

	err = o.messenger.post(ctx, m, termPath, &message.TermRequest{Term: o.group.raft.CurrentTerm()}, &answer)

	return answer, err
}

// Bounds of a question to the voters before a change of members: for how long they are asked, and the
// pause before a member that did not answer is asked again.
const (
	answerWait = 2 * time.Second
	askPause   = 100 * time.Millisecond
)

// removeUnanswered removes a voter that has not answered since this leader gave it its vote.
func (o *operator) removeUnanswered() {
	id, err := spiffeid.FromString(string(o.contacts.unanswered()))
	if err != nil {
		return // there is none
	}

	if member, is := o.group.server(id); !is || !member.voter {
		return
	}

	o.log.Warn("removing a voter that has never answered; its key may be stolen", "node", id,
		"voter_for_s", answerAfter.Seconds())

	if err := o.expel(o.over, id); err != nil {
		o.log.Warn("cannot remove the voter", "node", id, "err", err)
	}
}

// removeDead removes one member that has been silent for too long, counted from the begin
// of this leader's term at the earliest. It never removes one without which the domain
// could not write.
func (o *operator) removeDead(led time.Time) {
	if o.cfg.RemoveDead <= 0 {
		return
	}

	for _, server := range o.group.servers() {
		heard := o.contacts.last(server.ID)
		if heard.Before(led) {
			heard = led
		}

		// mayRemove asks the other voters, which takes time, so it comes last.
		if server.ID == o.cfg.Node || time.Since(heard) < o.cfg.RemoveDead ||
			o.mayRemove(o.over, server.ID) != nil {
			continue
		}

		o.log.Warn("removing a silent member", "node", server.ID, "silent_ms", time.Since(heard).Milliseconds())

		if err := o.expel(o.over, server.ID); err != nil {
			o.log.Warn("cannot remove the member; retrying", "node", server.ID, "err", err)
		}

		// One member in each round: the next one is judged by the group without this one.
		return
	}
}

// removeStale removes former members from the state.
func (o *operator) removeStale(ctx context.Context) {
	ids := map[spiffeid.ID]bool{}

	o.replica.view(func(s *state.State) {
		for _, m := range s.Members().List() {
			ids[m.ID] = true
		}

		for _, id := range s.Keys().Nodes() {
			ids[id] = true
		}
	})

	for _, m := range o.group.servers() {
		delete(ids, m.ID)
	}

	for _, id := range slices.SortedFunc(maps.Keys(ids), func(a, b spiffeid.ID) int {
		return strings.Compare(a.String(), b.String())
	}) {
		ctx, cancel := context.WithTimeout(ctx, o.cfg.Timing.Write)
		o.orders.proposer.tryPropose(ctx, &state.Command{Member: &state.Member{ID: id, Gone: true}})
		cancel()
	}
}

// transferBetweenEntries transfers the leadership while no entry is under way, because
// Raft would not report the outcome of one. New writes wait and go to the next leader. If
// the log does not come to rest soon, it transfers all the same.
func (o *operator) transferBetweenEntries(transfer func() raft.Future) error {
	ctx, cancel := context.WithTimeout(o.life.closing, o.cfg.Timing.Heartbeat)
	defer cancel()

	if release, err := o.orders.proposer.pause(ctx); err == nil {
		defer release()
	}

	return transfer().Error()
}

// transferElections is the number of election timeouts in which a transfer of the leadership
// is tried again.
const transferElections = 5

// admittedFor is how long a node has to join once it is admitted.
const admittedFor = 24 * time.Hour

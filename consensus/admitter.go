package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"

	httpproblem "github.com/roster-mesh/roster/directory/problem"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An admitter answers nodes that ask to be members.
type admitter struct {
	*member

	terms *terms
	found *candidates
}

// answerJoin answers a join request: as the leader with its outcome, otherwise with the leader's
// address, if this member knows that the node is a member or admitted.
func (a *admitter) answerJoin(ctx context.Context, from spiffeid.ID, request *message.JoinRequest) *message.JoinAnswer {
	if len(a.group.servers()) == 0 {
		// The node asks again at once, because the two may begin a domain together.
		a.found.hear(from, request)
		return &message.JoinAnswer{Empty: a.ownRequest()}
	}

	// The request of an empty node has the name that it would give a history, not one that it is in.
	if !request.Empty {
		claim := transport.Claim{History: transport.HistoryOf(request.History)}
		if err := a.histories.judge(from, claim); err != nil {
			return refuseJoin(directory.Refuse(directory.Conflict, "%w", err))
		}
	}

	leads := a.terms.leader()
	if leads == nil {
		if err := a.known(from); err != nil {
			return refuseJoin(err)
		}

		// A leader that isn't ready yet doesn't name itself. The node asks again.
		if leader, ok := a.group.leader(); ok && leader.ID != a.cfg.Node {
			return &message.JoinAnswer{Leader: &leader}
		}

		return &message.JoinAnswer{}
	}

	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.Write)
	defer cancel()

	err := leads.addMember(ctx, from, request)
	switch {
	case err == nil:
		return &message.JoinAnswer{Done: true}
	case errors.Is(err, message.ErrNotLeader):
		return &message.JoinAnswer{}
	}

	answer := refuseJoin(err)
	answer.Duplicate = errors.Is(err, errDuplicate)

	return answer
}

func refuseJoin(err error) *message.JoinAnswer {
	reply := message.ReplyOf(directory.Outcome{}, err)

	return &message.JoinAnswer{Problem: reply.Problem, Detail: reply.Detail}
}

// known refuses a node that is neither a member nor admitted. It learns nothing of the group,
// neither versions nor addresses.
func (m *member) known(from spiffeid.ID) error {
	members := m.group.servers()
	if isMember(members, from) {
		return nil
	}

	return m.checkAdmission(from, members)
}

func isMember(members []server, id spiffeid.ID) bool {
	return slices.ContainsFunc(members, func(m server) bool { return m.ID == id })
}

// checkListeners refuses listeners that no node of this release declares.
func checkListeners(listeners []string) error {
	if len(listeners) > MaxListeners || !slices.IsSorted(listeners) {
		return fmt.Errorf("%d listeners; at most %d are declared, in ascending order", len(listeners), MaxListeners)
	}

	for _, one := range listeners {
		if at, err := netip.ParseAddrPort(one); err != nil || len(one) > maxListener || at.String() != one {
			return fmt.Errorf("listener %.64q must be ADDRESS:PORT", one)
		}
	}

	return nil
}

// maxAddress bounds an address that a member declares, in bytes.
const maxAddress = 300

// isBaseURL reports whether text is https://HOST[:PORT]. Other members name it to clients, in
// a list that commas separate. Entries of the log are not checked by it: earlier releases
// took any text.
func isBaseURL(text string) bool {
	isForeign := func(r rune) bool { return r <= ' ' || r == ',' || r >= 0x7f }
	u, err := url.Parse(text)

	return err == nil && len(text) <= maxAddress && u.Hostname() != "" && text == "https://"+u.Host &&
		!strings.ContainsFunc(text, isForeign)
}

// checkAdmission refuses a node of another domain, and one that neither an admission by name nor a
// standing one admits.
func (m *member) checkAdmission(from spiffeid.ID, members []server) error {
	if from.TrustDomain() != m.cfg.Domain {
		return directory.Refuse(directory.Forbidden, "%s is no node of %s", from, m.cfg.Domain.Name())
	}

	ids := make([]spiffeid.ID, len(members))
	for i, one := range members {
		ids[i] = one.ID
	}

	return ask(m.replica, func(s *state.State) error {
		until := s.Members().Admitted(from)
		if _, standing := s.Members().AdmittedByPattern(from, ids); standing || until > s.History().Now()/1000 {
			return nil
		}

		return directory.Refuse(directory.Forbidden,
			"%s is not admitted: an operator admits it with: roster raft admit %s", from, from)
	})
}

// ownRequest returns this node's own join request.
func (a *admitter) ownRequest() *message.JoinRequest {
	at := a.replica.Position()

	name := a.storage.history()
	if !a.storage.hasEntered() {
		name = a.found.proposal
	}

	request := &message.JoinRequest{
		Address: a.group.self().Address, API: a.cfg.API, Reader: a.cfg.Reader,
		Epoch: at.Epoch, Revision: at.Revision, Expect: a.cfg.expected(), Found: a.found.get(),
		Reads: a.cfg.reads, Listeners: a.cfg.Listeners, Empty: !a.storage.hasEntered(),
		Fresh: a.storage.fresh.Load(), Process: a.group.process,
	}
	if !name.IsZero() {
		request.History = name[:]
	}

	return request
}

// handler serves join requests of every node of the domain's authority.
func (a *admitter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+joinPath, func(w http.ResponseWriter, r *http.Request) {
		var request message.JoinRequest

		from, ok := transport.PeerID(r.TLS)
		if !ok || !a.messenger.receive(w, r, true, &request) {
			return
		}

		request.Host, _, _ = net.SplitHostPort(r.RemoteAddr)
		answer := a.answerJoin(r.Context(), from, &request)

		// An answer with a refusal has the claim, too: the node compares the histories before all else.
		claim := a.histories.claim()
		if !claim.History.IsZero() {
			answer.History, answer.Voter = claim.History[:], claim.Voter
		}

		a.messenger.answer(w, answer)
	})

	return httpproblem.Routes(mux, a.cfg.API)
}

// addMember executes a node's request as the leader. An admitted node becomes a member, first
// without a vote. A member moves, gets its vote, or declares its address and versions.
func (l *Leader) addMember(ctx context.Context, from spiffeid.ID, request *message.JoinRequest) error {
	// Checks and changes are one step. Two joins at once could both take the last place, or one address.
	release, err := l.seats.hold(ctx)
	if err != nil {
		return err
	}
	defer release()

	if err := l.checkJoin(from, request); err != nil {
		return err
	}

	// Before any change of the seat: a second process must neither empty nor move it.
	answers, err := l.checkDuplicate(ctx, from, request)
	if err != nil {
		return err
	}

	// Each step reads the group anew, so seat adds the node again that the step before has removed.
	if err := l.removeEmptied(ctx, from, request); err != nil {
		return err
	}

	if err := l.vacateFormerAddress(ctx, from, request, answers); err != nil {
		return err
	}

	if err := l.seat(ctx, from, request); err != nil {
		return err
	}

	// Behind the seat: a node that has declared itself and has no seat is removed as a former member.
	return l.declare(ctx, from, request)
}

// checkDuplicate refuses a process whose identity another process has, which answers at the member's
// address: the seat stays with that one. Otherwise the two would take it from each other, and might vote
// twice in one term. answers is whether the process that asks is the one that answers this leader as the
// member, so that the leader has found it already.
func (l *Leader) checkDuplicate(ctx context.Context, from spiffeid.ID, request *message.JoinRequest) (answers bool,
	err error) {
	current, joined := l.group.server(from)
	if !joined {
		return false, nil
	}

	holder := l.group.process

	if from != l.cfg.Node {
		answer, err := l.operator.askOnce(ctx, current.Member)
		if state, _ := l.contacts.state(from); err != nil && state == ContactAlive && ctx.Err() == nil {
			// A member that answers Raft may fail once here, because its connection has ended.
			answer, err = l.operator.askOnce(ctx, current.Member)
		}

		if err != nil {
			// A holder that doesn't answer can't keep the seat. A wish to move is judged by awaitSilence.
			return false, nil
		}

		holder = answer.Process
	}

	// A process of an earlier release gives no number, so its address stands for it.
	if holder == 0 || holder == request.Process || request.Process == 0 && current.Address == request.Address {
		l.contacts.clearDuplicate(from)
		return holder != 0 && holder == request.Process, nil
	}

	// A clone with the same configuration declares the member's own address.
	second := request.Address
	if second == current.Address {
		second = request.Host + " (declares the same address)"
	}

	l.contacts.noteDuplicate(from, current.Address, second)

	return false, fmt.Errorf("%w: %w", errDuplicate, directory.Refuse(directory.Forbidden,
		"two processes use the identity %s: %s, %s; stop the one that should not, and give a cloned machine an "+
			"identity and an empty disk of its own", from, current.Address, second))
}

// errDuplicate says that another process has the identity of the one that asks.
var errDuplicate = errors.New("a second process with this identity")

// removeEmptied removes a voter that has lost its disk, so that seat adds it without a vote until
// it has caught up. It has forgotten its votes and the entries that it had acknowledged, so it
// needs an admission as a newcomer does: a standing one, or an operator removes it and admits it.
func (l *Leader) removeEmptied(ctx context.Context, from spiffeid.ID, request *message.JoinRequest) error {
	current, joined := l.group.server(from)
	if !request.Empty || !joined || !current.voter {
		return nil
	}

	others := slices.DeleteFunc(slices.Clone(l.group.servers()), func(m server) bool { return m.ID == from })
	if l.checkAdmission(from, others) != nil {
		return directory.Refuse(directory.Forbidden, "%s has lost its disk and no standing admission lets it return: "+
			"an operator lets it with: roster raft remove %s && roster raft admit %s", from, from, from)
	}

	if err := l.mayLeaveSeat(ctx, from); err != nil {
		return err
	}

	l.log.Warn("a member has lost its disk; it joins anew by a standing admission", "node", from)

	return proposed(l.group.raft.RemoveServer(raft.ServerID(from.String()), 0, enqueueTimeout).Error())
}

// vacateFormerAddress removes a member that requests another address, so that seat adds it
// with that one. Raft can move a member too, but not while it sends to it. The leader doesn't send to
// itself, and would not lead after its removal.
//
// A process that the leader has not found yet gets the member's seat once the former address is silent.
func (l *Leader) vacateFormerAddress(ctx context.Context, from spiffeid.ID, request *message.JoinRequest,
	answers bool) error {
	current, joined := l.group.server(from)
	if !joined || current.Address == request.Address {
		return nil
	}

	id := raft.ServerID(from.String())
	if from == l.cfg.Node {
		l.log.Info("this leader has moved", "from", current.Address, "to", request.Address)

		return proposed(l.group.raft.AddVoter(id, raft.ServerAddress(request.Address), 0, enqueueTimeout).Error())
	}

	if !answers {
		if err := l.awaitSilence(ctx, from, current.Address, request.Address); err != nil {
			return err
		}
	}

	if err := l.mayLeaveSeat(ctx, from); err != nil {
		return err
	}

	// The wish is fulfilled. Another one waits for silence again.
	delete(l.moves, from)

	return proposed(l.group.raft.RemoveServer(id, 0, enqueueTimeout).Error())
}

// A move is a member's wish to be at another address.
type move struct {
	address string
	since   time.Time
}

// awaitSilence refuses to move a member until its former address has been silent for moveAfter since it
// asked, as this leader sees it: a thief of its key would otherwise get the whole log. The log names the
// time; an operator shortens it by removing and admitting the member. The seats are held.
func (l *Leader) awaitSilence(ctx context.Context, from spiffeid.ID, former, next string) error {
	wish := l.moves[from]
	if wish.address != next {
		// Each wish is a log entry, so a member that alternates between addresses is slowed.
		if !l.seats.mayReplace(from, l.group.servers()) {
			return directory.Refuse(directory.RateLimited,
				"%s asks too often for another address; it retries later", from)
		}

		wish = move{next, time.Now()}
		l.moves[from] = wish

		l.log.Warn("a member asks for another address; it moves once its former one is silent", "node", from,
			"address", former, "next_address", next, "after_s", moveAfter.Seconds())

		// The log has the wish before the member moves, so audit logs show a theft while there is time to act.
		command := &state.Command{Order: &state.Order{Action: directory.ActionMove,
			Target: fmt.Sprintf("%s from %s to %s after %s", from, former, next, moveAfter)}}
		if _, err := l.proposer.propose(ctx, command); err != nil {
			// A wish that isn't in the log doesn't begin the wait.
			delete(l.moves, from)
			return err
		}
	}

	silent := wish.since
	if heard := l.contacts.matched(from).at; heard.After(silent) {
		silent = heard
	}

	if rest := moveAfter - time.Since(silent); rest > 0 {
		return directory.Refuse(directory.Unavailable, "%s moves from %s to %s once its former address is silent for "+
			"%s, %s from now at the earliest; an operator moves it at once with: roster raft remove %s && roster raft "+
			"admit %s", from, former, next, moveAfter, rest.Round(time.Second), from, from)
	}

	return nil
}

// moveAfter is how long a member's former address must be silent before the member moves.
const moveAfter = 20 * time.Second

// mayLeaveSeat refuses to remove a member that would join anew: if the domain needs it, or if it has
// moved too often. Each move is two changes of the group.
func (l *Leader) mayLeaveSeat(ctx context.Context, from spiffeid.ID) error {
	if err := l.operator.mayRemove(ctx, from); err != nil {
		return err
	}

	if !l.seats.mayReplace(from, l.group.servers()) {
		return directory.Refuse(directory.RateLimited,
			"%s has moved or lost its disk too often; it retries later", from)
	}

	return nil
}

// seat makes a node a member, or gives a member its vote once it has caught up and while
// there are fewer than maxVoters.
func (l *Leader) seat(ctx context.Context, from spiffeid.ID, request *message.JoinRequest) error {
	id := raft.ServerID(from.String())
	address := raft.ServerAddress(request.Address)
	current, joined := l.group.server(from)

	voters := 0
	for _, m := range l.group.servers() {
		if m.voter {
			voters++
		}
	}

	var change raft.IndexFuture
	switch {
	case !joined:
		// Without a vote at first: the vote of a member without the log would delay every write.
		change = l.group.raft.AddNonvoter(id, address, 0, enqueueTimeout)
		l.contacts.add(id)
	case !current.voter && !request.Reader && voters < maxVoters && l.caughtUpEnough(from):
		if err := l.operator.mayPromote(ctx, current.Member); err != nil {
			return err
		}

		change = l.group.raft.AddVoter(id, address, 0, enqueueTimeout)

		// Before the outcome of the change, because the new voter's first answer may come ahead of it.
		l.contacts.promote(id)
	default:
		return nil
	}

	if err := proposed(change.Error()); err != nil {
		return err
	}

	l.log.Info("changed a member of the domain", "node", from, "address", request.Address, "voter", joined)

	return nil
}

// declare puts a member's API address, the versions that it reads and its listeners into the
// domain's state, unless they are there.
func (l *Leader) declare(ctx context.Context, from spiffeid.ID, request *message.JoinRequest) error {
	declared, known := l.replica.member(from)

	word := state.Member{ID: from, API: request.API, Reads: request.Reads, Listeners: request.Listeners}

	if known && declared.SameWord(word) {
		return nil
	}

	if known && !l.seats.mayReplace(from, l.group.servers()) {
		return directory.Refuse(directory.RateLimited,
			"%s has changed its declared address or versions too often; it retries later", from)
	}

	_, err := l.proposer.propose(ctx,
		&state.Command{Member: &word})

	return err
}

// checkJoin refuses a join request that may not be granted.
func (l *Leader) checkJoin(from spiffeid.ID, request *message.JoinRequest) error {
	all := l.group.servers()

	if request.Address == "" || len(request.Address) > maxAddress {
		return directory.Refuse(directory.BadRequest, "%s gives no usable address", from)
	}

	if request.API != "" && !isBaseURL(request.API) {
		return directory.Refuse(directory.BadRequest,
			"%s declares the API address %.100q; it must be https://HOST[:PORT]", from, request.API)
	}

	if err := request.Reads.Check(); err != nil {
		return directory.Refuse(directory.BadRequest, "%s does not declare the versions that it reads: %w", from, err)
	}

	if err := checkListeners(request.Listeners); err != nil {
		return directory.Refuse(directory.BadRequest, "%s declares: %w", from, err)
	}

	// Refusals above tell of the request alone. Those below tell of the group, to nodes that it knows.
	if err := l.known(from); err != nil {
		return err
	}

	if err := request.Reads.Lacks(l.replica.Written()); err != nil {
		return state.RefuseMember(from, err)
	}

	// Raft refuses a configuration with two members at one address. This refusal names the other one.
	for _, m := range all {
		if m.Address == request.Address && m.ID != from {
			return directory.Refuse(directory.Conflict, "%s has the address %s already", m.ID, m.Address)
		}
	}

	if !isMember(all, from) && len(all) >= maxMembers {
		return directory.Refuse(directory.Conflict, "the domain has %d members already", len(all))
	}

	return nil
}

// caughtUpEnough reports whether a member has enough of the log that its vote delays no write: by its
// answers to this leader, because its own word would make a voter of a key without a process.
func (l *Leader) caughtUpEnough(from spiffeid.ID) bool {
	match := l.contacts.matched(from)

	return match.term == l.term && time.Since(match.at) <= silentAfter &&
		match.index+nearEnough >= l.group.raft.LastIndex()
}

const joinPath = "/v1/join"

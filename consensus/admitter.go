package consensus

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"

	httpproblem "github.com/roster-mesh/roster/directory/problem"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An admitter makes nodes members that ask for it, as the leader.
type admitter struct {
	cfg        *Config
	log        *slog.Logger
	group      *group
	replica    *Replica
	messenger  *messenger
	proposer   *proposer
	operator   *operator
	negotiator *negotiator
	own        func() *message.JoinRequest // this node's own request, for a node that begins a domain
}

// addMember does, as the leader, what a node asks for: an admitted node becomes a member,
// first without a vote; a member moves, gets its vote, or declares its address and
// versions.
func (a *admitter) addMember(ctx context.Context, from spiffeid.ID, word *message.JoinRequest) error {
	release, err := a.negotiator.holdSeats(ctx)
	if err != nil {
		return err
	}
	defer release()

	if err := a.check(from, word); err != nil {
		return err
	}

	id := raft.ServerID(from.String())
	address := raft.ServerAddress(word.Address)
	me, is := a.group.server(from)

	voters := 0
	for _, m := range a.group.servers() {
		if m.voter {
			voters++
		}
	}

	if is && me.Address != word.Address {
		// Raft can move a member too, but not while it sends to it.
		if err := a.operator.mayRemove(from); err != nil {
			return err
		}

		if err := proposed(a.group.raft.RemoveServer(id, 0, enqueueTimeout).Error()); err != nil {
			return err
		}

		is = false
	}

	var change raft.IndexFuture
	switch {
	case !is:
		change = a.group.raft.AddNonvoter(id, address, 0, enqueueTimeout)
	case !me.voter && !word.Reader && voters < maxVoters && a.caughtUpEnough(word):
		change = a.group.raft.AddVoter(id, address, 0, enqueueTimeout)
	}

	if change != nil {
		if err := proposed(change.Error()); err != nil {
			return err
		}

		a.log.Info("changed a member of the domain", "node", from, "address", word.Address, "voter", is)
	}

	a.replica.mu.RLock()
	said, told := a.replica.state.Members().Get(from)
	a.replica.mu.RUnlock()

	if told && said.API == word.API && said.Reads.Equal(word.Reads) {
		return nil
	}

	if told && !a.negotiator.pace.mayReplace(from, a.group.servers()) {
		return directory.Refuse(directory.RateLimited,
			"%s has changed its declared address or versions too often; it retries later", from)
	}

	_, err = a.proposer.propose(ctx, &state.Command{Member: &state.Member{ID: from, API: word.API, Reads: word.Reads}})

	return err
}

// answerJoin answers a join request: as the leader with its outcome, otherwise with the
// leader's address.
func (a *admitter) answerJoin(ctx context.Context, from spiffeid.ID, word *message.JoinRequest) *message.JoinAnswer {
	if len(a.group.servers()) == 0 {
		return &message.JoinAnswer{Empty: a.own()}
	}

	if !a.group.leading.Load() {
		if leader, ok := a.group.leader(); ok && leader.ID != a.cfg.Node {
			return &message.JoinAnswer{Leader: &leader}
		}

		return &message.JoinAnswer{}
	}

	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.Write)
	defer cancel()

	err := a.addMember(ctx, from, word)
	switch {
	case err == nil:
		return &message.JoinAnswer{Done: true}
	case errors.Is(err, message.ErrNotLeader):
		return &message.JoinAnswer{}
	}

	r := message.ReplyOf(directory.Outcome{}, err)

	return &message.JoinAnswer{Problem: r.Problem, Detail: r.Detail}
}

// check refuses a join request that may not be granted.
func (a *admitter) check(from spiffeid.ID, word *message.JoinRequest) error {
	all := a.group.servers()

	if word.Address == "" || len(word.Address) > 300 || len(word.API) > 300 {
		return directory.Refuse(directory.BadRequest, "%s gives no usable address", from)
	}

	if err := word.Reads.Check(); err != nil {
		return directory.Refuse(directory.BadRequest, "%s does not declare the versions that it reads: %w", from, err)
	}

	if err := word.Reads.Lacks(a.replica.Written()); err != nil {
		return state.RefuseMember(from, err)
	}

	for _, m := range all {
		if m.Address == word.Address && m.ID != from {
			return directory.Refuse(directory.Conflict, "%s has the address %s already", m.ID, m.Address)
		}
	}

	if slices.ContainsFunc(all, func(m server) bool { return m.ID == from }) {
		return nil
	}

	a.replica.mu.RLock()
	until, _ := a.replica.state.Members().Admitted(from)
	now := a.replica.state.History().Now() / 1000
	a.replica.mu.RUnlock()

	switch {
	case from.TrustDomain() != a.cfg.Domain:
		return directory.Refuse(directory.Forbidden, "%s is no node of %s", from, a.cfg.Domain.Name())
	case until <= now:
		return directory.Refuse(directory.Forbidden,
			"%s is not admitted: an operator admits it with: roster raft admit %s", from, from)
	case len(all) >= maxMembers:
		return directory.Refuse(directory.Conflict, "the domain has %d members already", len(all))
	}

	return nil
}

// handler serves join requests of every node of the domain's authority.
func (a *admitter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+joinPath, func(w http.ResponseWriter, r *http.Request) {
		var word message.JoinRequest

		from, ok := transport.PeerID(r.TLS)
		if !ok || !a.messenger.receive(w, r, true, &word) {
			return
		}

		a.messenger.answer(w, a.answerJoin(r.Context(), from, &word))
	})

	return httpproblem.Routes(mux, a.cfg.API)
}

// caughtUpEnough reports whether a node has enough of the history that its vote delays no
// write.
func (a *admitter) caughtUpEnough(word *message.JoinRequest) bool {
	at := a.replica.Position()
	return word.Epoch == at.Epoch && word.Revision+nearEnough >= at.Revision
}

const joinPath = "/v1/join"

package consensus

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// peers is this member's knowledge of the other members.
type peers struct {
	*member

	terms *terms
}

// AskLeader asks the leader for an answer of its Config.Aside. Question and answer have less than
// message.MaxBody bytes. It fails with Unavailable if no other member leads and answers.
func (p *peers) AskLeader(ctx context.Context, question []byte) ([]byte, error) {
	leader, ok := p.group.leader()
	if !ok || leader.ID == p.cfg.Node {
		return nil, directory.Refuse(directory.Unavailable, "no other member leads")
	}

	var answer message.Aside
	if err := p.messenger.post(ctx, leader, asidePath, &message.Aside{Text: question}, &answer); err != nil {
		return nil, directory.Refuse(directory.Unavailable, "the leader does not answer: %w", err)
	}

	return answer.Text, nil
}

// Contacts is RaftPeers with the leader's last contacts, if it answers within a heartbeat
// timeout.
func (p *peers) Contacts() []RaftPeer {
	peers := p.RaftPeers()

	leader, ok := p.group.leader()
	if !ok || leader.ID == p.cfg.Node {
		return peers
	}

	ctx, cancel := context.WithTimeout(p.life.closing, p.cfg.Timing.Heartbeat)
	defer cancel()

	var answer message.ContactsAnswer
	if err := p.messenger.post(ctx, leader, contactsPath, &message.ContactsRequest{}, &answer); err != nil {
		return peers
	}

	for i := range peers {
		known := &peers[i]
		known.Duplicate = answer.Duplicates[known.ID]

		if known.ID == p.cfg.Node || known.Leader {
			continue
		}

		// The leader gives a duration, because clocks differ.
		if ms, heard := answer.Silent[known.ID]; heard {
			known.LastContact = time.Now().Add(-time.Duration(ms) * time.Millisecond)
		}

		if state := ContactState(answer.States[known.ID]); state == ContactAlive || state == ContactSilent {
			known.State = state
		}
	}

	return peers
}

// RaftPeers returns the domain's members. The leader knows its last contact with each,
// also after it has lost the leadership; a follower only the leader's.
func (p *peers) RaftPeers() []RaftPeer {
	leader, led := p.group.leader()
	leads := p.terms.leader() != nil
	said := p.declared()

	var peers []RaftPeer
	for _, server := range p.group.servers() {
		declared := said[server.ID]
		known := RaftPeer{ID: server.ID, Address: server.Address, API: declared.API, Reads: declared.Reads,
			Listeners: declared.Listeners, Voter: server.voter, Leader: server.ID == leader.ID, State: ContactUnknown}

		// The leader alone judges join requests, so only it knows of duplicates.
		if leads {
			known.Duplicate = p.contacts.duplicate(server.ID)
		}

		switch {
		case server.ID == p.cfg.Node:
			known.LastContact, known.State = time.Now(), ContactAlive
		case leads, !led, known.Leader:
			// A follower that knows its leader receives nothing of the others, so their state stays unknown.
			known.State, known.LastContact = p.contacts.state(server.ID)
		}

		peers = append(peers, known)
	}

	return peers
}

// Siblings returns the base URLs of the other members' directories, as far as
// they have said.
func (p *peers) Siblings() []string {
	said := p.declared()

	var all []string
	for _, m := range p.group.servers() {
		if api := said[m.ID].API; api != "" && m.ID != p.cfg.Node {
			all = append(all, api)
		}
	}

	return all
}

// MustVote returns directory.NotVoter with the voters' URLs if this member has no vote, and nil otherwise.
func (p *peers) MustVote() error {
	me, is := p.group.server(p.cfg.Node)
	if !is || me.voter {
		return nil
	}

	said := p.declared()

	var voters []string
	for _, m := range p.group.servers() {
		if api := said[m.ID].API; m.voter && api != "" {
			voters = append(voters, api)
		}
	}

	return directory.Refuse(directory.NotVoter, "%s has no vote, so it takes no changes; nothing was changed. Ask a "+
		"voter: %s", p.cfg.Node, strings.Join(voters, " "))
}

// answerContacts answers a follower, by this leader's own count of time, because clocks differ.
func (p *peers) answerContacts(*message.ContactsRequest) *message.ContactsAnswer {
	answer := &message.ContactsAnswer{Silent: map[spiffeid.ID]int64{}, States: map[spiffeid.ID]string{},
		Duplicates: map[spiffeid.ID]string{}}
	for _, m := range p.group.servers() {
		state, last := p.contacts.state(m.ID)
		if !last.IsZero() {
			answer.Silent[m.ID] = time.Since(last).Milliseconds()
		}

		answer.States[m.ID] = string(state)

		if second := p.contacts.duplicate(m.ID); second != "" {
			answer.Duplicates[m.ID] = second
		}
	}

	return answer
}

// declared returns the addresses and versions that the members have declared.
func (p *peers) declared() map[spiffeid.ID]state.Member {
	return ask(p.replica, func(s *state.State) map[spiffeid.ID]state.Member { return s.Members().All() })
}

// confirmed asks the other voters, but for the one that something came from, whether one of them has applied
// it, which the thief of a single key cannot bring about. A member that was away for long takes the sender's
// word if no other voter answers: authorities that signed its proofs are replaced meanwhile, and the domain
// may have no majority without it.
func (p *peers) confirmed(from spiffeid.ID, ask *message.DecisionRequest,
	holds func(*message.DecisionAnswer) bool) bool {
	ctx, cancel := context.WithTimeout(p.life.closing, transport.HandshakeTimeout/2)
	defer cancel()

	voters, _ := p.group.voters()
	others := slices.DeleteFunc(voters, func(m Member) bool { return m.ID == from })
	answers := askEach(p.member, others, func(m Member) *message.DecisionAnswer {
		answer := &message.DecisionAnswer{}
		if p.messenger.post(ctx, m, decisionPath, ask, answer) != nil {
			return nil
		}

		return answer
	})

	silent := true

	for range others {
		answer := <-answers
		if answer != nil && holds(answer) {
			return true
		}

		// A voter that answers otherwise outweighs the time for which this member was away.
		silent = silent && answer == nil
	}

	return silent && p.replica.away.Load()
}

// vouched asks the known voters whether id is a voter, too. One that says so is enough:
// it is a voter, and could lead this one anywhere.
func (p *peers) vouched(ctx context.Context, id spiffeid.ID) bool {
	ctx, cancel := context.WithTimeout(ctx, transport.HandshakeTimeout/2)
	defer cancel()

	others, _ := p.group.voters()
	answers := askEach(p.member, others, func(m Member) bool {
		var answer message.VouchAnswer

		return p.messenger.post(ctx, m, vouchPath, &message.VouchRequest{ID: id}, &answer) == nil && answer.Member
	})

	for range others {
		if <-answers {
			return true
		}
	}

	return false
}

// A RaftPeer is a member of the domain as another knows it.
type RaftPeer struct {
	ID            spiffeid.ID
	Address       string
	API           string // base URL of its directory; empty if it has not said
	Voter, Leader bool
	Reads         Versions  // zero if it has not said
	Listeners     []string  // at which it listens, as state.Member has them
	LastContact   time.Time // zero if this member does not know
	State         ContactState
	Duplicate     string // address of a second process with this identity; empty if the leader knows of none
}

package consensus

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A server is a member as Raft's configuration has it, which alone decides who is
// one: Config.Members only begins it.
type server struct {
	Member
	voter bool
}

// servers returns the domain's members; none where this node is in no domain yet.
func (s *Store) servers() []server {
	r := s.running.Load()
	if r == nil {
		return nil
	}
	configured := r.GetConfiguration().Configuration().Servers
	all := make([]server, 0, len(configured))
	for _, c := range configured {
		if id, err := spiffeid.FromString(string(c.ID)); err == nil {
			all = append(all, server{Member{id, string(c.Address)}, c.Suffrage == raft.Voter})
		}
	}
	return all
}

// known returns the members, and the leader also where this one has not heard yet
// that it became a member.
func (s *Store) known() []Member {
	var all []Member
	for _, m := range s.servers() {
		all = append(all, m.Member)
	}
	if s.running.Load() == nil {
		return all
	}
	if leader, ok := s.leader(); ok && !slices.ContainsFunc(all, func(m Member) bool { return m.ID == leader.ID }) {
		all = append(all, leader)
	}
	return all
}

// server returns one member.
func (s *Store) server(id spiffeid.ID) (server, bool) {
	all := s.servers()
	i := slices.IndexFunc(all, func(m server) bool { return m.ID == id })
	if i < 0 {
		return server{}, false
	}
	return all[i], true
}

// self is this member as its own configuration has it.
func (s *Store) self() Member {
	i := slices.IndexFunc(s.cfg.Members, func(m Member) bool { return m.ID == s.cfg.Node })
	return s.cfg.Members[i]
}

// alone reports whether the domain has no other member.
func (s *Store) alone() bool {
	r := s.running.Load()
	return r != nil && len(r.GetConfiguration().Configuration().Servers) == 1
}

// hasHeir reports whether another member can take the leadership over.
func (s *Store) hasHeir() bool {
	others, _ := s.voters()
	return len(others) > 0
}

// handOn gives the leadership to whoever is fit. Raft gives it to one of those that
// have most of the log, and of a domain in which little is written a member that is
// dead has as much as any: so where some were not heard lately, it is told to whom.
func (s *Store) handOn() raft.Future {
	others, _ := s.voters()
	var last Member
	var at time.Time
	silent := false
	for _, m := range others {
		heard := s.presence.lastHeard(m.ID)
		silent = silent || s.cfg.clock().Sub(heard) > 2*s.cfg.Timing.Presence
		if heard.After(at) {
			last, at = m, heard
		}
	}
	if !silent || at.IsZero() {
		return s.raft.LeadershipTransfer()
	}
	return s.raft.LeadershipTransferToServer(raft.ServerID(last.ID.String()), raft.ServerAddress(last.Address))
}

// vouchWord asks a member whether it knows of another.
type vouchWord struct {
	ID spiffeid.ID `cbor:"1,keyasint"`
}

type vouchAnswer struct {
	Member bool `cbor:"1,keyasint"`
}

const vouchPath = "/v1/vouch"

// vouched asks the members that this one knows whether id is one of them too. One
// that says so is enough: it is a member, and could lead us anywhere.
func (s *Store) vouched(ctx context.Context, id spiffeid.ID) bool {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout/2)
	defer cancel()
	var others []server
	for _, m := range s.servers() {
		if m.ID != s.cfg.Node {
			others = append(others, m)
		}
	}
	answers := make(chan bool, len(others))
	for _, m := range others {
		s.loops.Go(func() {
			var a vouchAnswer
			answers <- s.post(ctx, m.Member, vouchPath, &vouchWord{id}, &a) == nil && a.Member
		})
	}
	for range others {
		if <-answers {
			return true
		}
	}
	return false
}

// candidacy makes the only voter of a domain stand for election at once: it has
// nobody to wait for.
func (s *Store) candidacy(transport *raft.NetworkTransport) {
	others, _ := s.voters()
	me, ok := s.server(s.cfg.Node)
	if !ok || !me.voter || len(others) > 0 {
		return
	}
	id, address := raft.ServerID(me.ID.String()), raft.ServerAddress(me.Address)
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: transport.EncodePeer(id, address),
	}}
	if err := transport.TimeoutNow(id, address, req, &raft.TimeoutNowResponse{}); err != nil {
		s.log.Debug("stands for election after a while", "error", err)
	}
	transport.CloseStreams() // the one to itself, which nobody needs any more
}

// A RaftPeer is a member of the domain as another knows it.
type RaftPeer struct {
	ID            spiffeid.ID
	Address       string
	API           string // base URL of its directory; empty where it has not said
	Voter, Leader bool
	Reads         Versions  // zero if it has not said
	LastContact   time.Time // zero where this member does not know
	Unheard       bool      // of Contacts: who leads has not heard it since it leads
}

// RaftPeers returns the domain's members. The leader knows when it last heard
// each, also when it has lost them and leads no more; a follower only when it heard
// the leader.
func (s *Store) RaftPeers() []RaftPeer {
	leader, led := s.leader()
	said := s.said()
	var peers []RaftPeer
	for _, m := range s.servers() {
		p := RaftPeer{ID: m.ID, Address: m.Address, API: said[m.ID].API, Reads: said[m.ID].Reads, Voter: m.voter, Leader: m.ID == leader.ID}
		switch {
		case m.ID == s.cfg.Node:
			p.LastContact = time.Now()
		case s.leading.Load(), !led:
			p.LastContact = s.presence.lastHeard(m.ID)
		case p.Leader:
			p.LastContact = s.raft.LastContact()
		}
		peers = append(peers, p)
	}
	return peers
}

// Siblings returns the base URLs of the other members' directories, as far as
// they have said.
func (s *Store) Siblings() []string {
	said := s.said()
	var all []string
	for _, m := range s.servers() {
		if api := said[m.ID].API; api != "" && m.ID != s.cfg.Node {
			all = append(all, api)
		}
	}
	return all
}

// said returns what the members have said of themselves.
func (s *Store) said() map[spiffeid.ID]state.Member {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.Members().All()
}

package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	httpproblem "github.com/roster-mesh/roster/directory/problem"
)

// A node becomes a member by asking: it knocks at members' doors until Raft's
// configuration has it as its own configuration wants it. The same knock moves a
// member to another address, promotes a newcomer that has caught up, tells where
// its directory is, and finds those with whom a domain is begun.

// A joinWord says what a node wants to be.
type joinWord struct {
	Address  string   `cbor:"1,keyasint"` // of its cluster listener
	API      string   `cbor:"2,keyasint,omitempty"`
	Reader   bool     `cbor:"3,keyasint,omitempty"` // without a vote
	Epoch    uint64   `cbor:"4,keyasint,omitempty"` // how far it is
	Revision uint64   `cbor:"5,keyasint,omitempty"`
	Expect   int      `cbor:"6,keyasint,omitempty"` // with how many it would begin a domain
	Found    []Member `cbor:"7,keyasint,omitempty"` // whom it has found for that, itself too, by id
	Reads    Versions `cbor:"8,keyasint"`           // what its release reads
}

// A joinAnswer says that the door is the leader's and what came of it; or who
// leads; or that there is no domain here either.
type joinAnswer struct {
	Done    bool              `cbor:"1,keyasint,omitempty"` // the leader has seen to it, as far as it can yet
	Leader  *Member           `cbor:"2,keyasint,omitempty"`
	Empty   *joinWord         `cbor:"3,keyasint,omitempty"`
	Problem directory.Problem `cbor:"4,keyasint,omitempty"`
	Detail  string            `cbor:"5,keyasint,omitempty"`
}

// candidates are the nodes with which this one would begin a domain.
type candidates struct {
	mu    sync.Mutex
	found []Member
}

func (c *candidates) get() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

func (c *candidates) set(found []Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = found
}

const joinPath = "/v1/join"

// Bounds of a domain: members that vote, all members, and by how many changes a
// newcomer may be behind when it gets its vote.
const (
	maxVoters  = 5
	maxMembers = 32
	nearEnough = 1000
)

// knockPause is between two knocks of a node that is not yet what it wants to be; while
// nobody lets it in, ever more of it, up to knockLongest: each costs both a handshake.
const (
	knockPause   = 500 * time.Millisecond
	knockLongest = 5 * time.Second
)

// quietStart is for how long a node that starts does not complain.
const quietStart = 3 * time.Second

// joinLoop knocks while this node is not what its configuration says.
func (s *Store) joinLoop() {
	said, knocking := "", knockPause
	for {
		pause, why := s.cfg.Timing.Presence, ""
		if s.seated() {
			knocking = knockPause
			s.outside.Store(nil)
		} else {
			pause, knocking = knocking, min(knocking*5/4, knockLongest)
			if err := s.knock(s.closing); err != nil {
				why = s.stand(err)
			}
		}
		if why == "" || time.Since(s.opened) < quietStart {
			said = ""
		} else if why != said && s.closing.Err() == nil {
			said = why
			s.log.Info("this node is not yet what its configuration says", "reason", why)
		}
		select {
		case <-time.After(pause):
		case <-s.closing.Done():
			return
		}
	}
}

// stand notes why this node is no member, where it is none: by what it knows
// itself, or by the leader's word.
func (s *Store) stand(err error) string {
	why := err.Error()
	if _, is := s.server(s.cfg.Node); !is || directory.ProblemOf(err) == directory.Forbidden {
		s.outside.Store(&why)
	} else {
		s.outside.Store(nil)
	}
	return why
}

// seated reports whether this node is what its configuration says. One that hears
// no leader asks whether it still is.
func (s *Store) seated() bool {
	me, is := s.server(s.cfg.Node)
	s.mu.RLock()
	said, told := s.state.Members().Get(s.cfg.Node)
	s.mu.RUnlock()
	return is && told && said.API == s.cfg.API && said.Reads.Equal(s.cfg.reads) && me.Address == s.self().Address && (me.voter || s.cfg.Reader) &&
		s.Heard() < 10*s.cfg.Timing.Heartbeat
}

func (s *Store) wish() *joinWord {
	at := s.Position()
	return &joinWord{
		Address: s.self().Address, API: s.cfg.API, Reader: s.cfg.Reader,
		Epoch: at.Epoch, Revision: at.Revision, Expect: s.cfg.Expect, Found: s.found.get(),
		Reads: s.cfg.reads,
	}
}

// knock asks whoever can be reached. nil means that a leader has done what it can
// do by now.
func (s *Store) knock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timing.Write)
	defer cancel()
	word := s.wish()
	if s.leading.Load() {
		return s.seat(ctx, s.cfg.Node, word)
	}
	var doors []string
	if leader, ok := s.leader(); ok && leader.ID != s.cfg.Node {
		doors = append(doors, leader.Address)
	}
	doors = append(doors, s.cfg.Join...)
	for _, m := range s.servers() {
		doors = append(doors, m.Address)
	}
	err := errors.New("no node of the domain is in reach")
	empty := map[spiffeid.ID]*joinWord{}
	asked := map[string]bool{word.Address: true}
	for len(doors) > 0 && ctx.Err() == nil {
		address := doors[0]
		doors = doors[1:]
		if asked[address] {
			continue
		}
		asked[address] = true
		id, a, e := s.ask(ctx, address, word)
		switch {
		case e != nil:
			err = e
		case id == s.cfg.Node: // at another of its own addresses
		case a.Done:
			return nil
		case a.Problem != "":
			return directory.Refuse(a.Problem, "%s", a.Detail)
		case a.Leader != nil:
			doors = append([]string{a.Leader.Address}, doors...)
			err = fmt.Errorf("the leader, %s, does not answer at %s", a.Leader.ID, a.Leader.Address)
		case a.Empty != nil:
			empty[id] = a.Empty
		default:
			err = errNoLeader
		}
	}
	if s.cfg.Expect > 0 && len(s.servers()) == 0 {
		return s.gatherDomain(empty)
	}
	return err
}

// ask knocks at one door and returns who answered.
func (s *Store) ask(ctx context.Context, address string, word *joinWord) (id spiffeid.ID, a joinAnswer, err error) {
	body, err := s.writeMessage(word)
	if err != nil {
		return id, a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+joinPath, bytes.NewReader(body))
	if err != nil {
		return id, a, err
	}
	req.Header.Set("Content-Type", typeCBOR)
	resp, err := s.cluster.guest.Do(req)
	if err != nil {
		return id, a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return id, a, fmt.Errorf("%s answered %s", address, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil {
		err = readMessage(data, &a)
	}
	id, _ = peerID(resp.TLS)
	return id, a, err
}

// gatherDomain begins a domain once all of as many nodes as are expected have
// found exactly each other, with the same addresses. The one whose id is the
// lowest begins it: nobody else may, so that no two domains begin.
func (s *Store) gatherDomain(others map[spiffeid.ID]*joinWord) error {
	found := []Member{s.self()}
	for id, word := range others {
		if word.Reader || word.Expect == 0 {
			continue
		}
		if word.Expect != s.cfg.Expect {
			return fmt.Errorf("%s expects %d nodes to begin the domain with and this one %d: make bootstrap_expect the same on all", id, word.Expect, s.cfg.Expect)
		}
		found = append(found, Member{id, word.Address})
	}
	sortMembers(found)
	s.found.set(found)
	switch {
	case len(found) > s.cfg.Expect:
		return fmt.Errorf("there are %d nodes to begin the domain with and bootstrap_expect is %d: raise it, or start the others later", len(found), s.cfg.Expect)
	case len(found) < s.cfg.Expect:
		return fmt.Errorf("%d of the %d nodes that begin the domain are in reach", len(found), s.cfg.Expect)
	}
	for _, m := range found {
		if word := others[m.ID]; word != nil && !slices.Equal(word.Found, found) {
			return fmt.Errorf("waiting until %s has found the same nodes", m.ID)
		}
	}
	if found[0].ID != s.cfg.Node {
		return fmt.Errorf("waiting for %s to begin the domain", found[0].ID)
	}
	s.log.Info("beginning the domain", "members", len(found))
	if err := s.raft.BootstrapCluster(configurationOf(found)).Error(); err != nil {
		return fmt.Errorf("begin the domain: %w", err)
	}
	return nil
}

func sortMembers(ms []Member) {
	slices.SortFunc(ms, func(a, b Member) int { return strings.Compare(a.ID.String(), b.ID.String()) })
}

// configurationOf is Raft's configuration of voters.
func configurationOf(ms []Member) (c raft.Configuration) {
	ms = slices.Clone(ms)
	sortMembers(ms)
	for _, m := range ms {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(m.ID.String()), Address: raft.ServerAddress(m.Address)})
	}
	return c
}

// doorway answers those that want to be members, whoever of the domain's nodes
// they are.
func (s *Store) doorway() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+joinPath, func(w http.ResponseWriter, r *http.Request) {
		var word joinWord
		from, ok := peerID(r.TLS)
		if !ok || !s.receive(w, r, true, &word) {
			return
		}
		s.answer(w, s.open(r.Context(), from, &word))
	})
	return httpproblem.Routes(mux, s.cfg.API)
}

func (s *Store) open(ctx context.Context, from spiffeid.ID, word *joinWord) *joinAnswer {
	if len(s.servers()) == 0 {
		return &joinAnswer{Empty: s.wish()}
	}
	if !s.leading.Load() {
		if leader, ok := s.leader(); ok && leader.ID != s.cfg.Node {
			return &joinAnswer{Leader: &leader}
		}
		return &joinAnswer{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timing.Write)
	defer cancel()
	err := s.seat(ctx, from, word)
	switch {
	case err == nil:
		return &joinAnswer{Done: true}
	case errors.Is(err, errNotLeader):
		return &joinAnswer{}
	}
	r := replyOf(directory.Outcome{}, err)
	return &joinAnswer{Problem: r.Problem, Detail: r.Detail}
}

// seat does, as the leader, what a node asks for: it becomes a member where an
// operator has admitted it, without a vote first.
func (s *Store) seat(ctx context.Context, from spiffeid.ID, word *joinWord) error {
	release, err := s.holdSeats(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.judge(from, word); err != nil {
		return err
	}
	id, address := raft.ServerID(from.String()), raft.ServerAddress(word.Address)
	me, is := s.server(from)
	voters := 0
	for _, m := range s.servers() {
		if m.voter {
			voters++
		}
	}
	if is && me.Address != word.Address {
		// Raft can move a member too, but not while it sends to it.
		if err := s.mayGo(from); err != nil {
			return err
		}
		if err := proposed(s.raft.RemoveServer(id, 0, enqueueTimeout).Error()); err != nil {
			return err
		}
		is = false
	}
	var change raft.IndexFuture
	switch {
	case !is:
		change = s.raft.AddNonvoter(id, address, 0, enqueueTimeout)
	case !me.voter && !word.Reader && voters < maxVoters && s.near(word):
		change = s.raft.AddVoter(id, address, 0, enqueueTimeout)
	}
	if change != nil {
		if err := proposed(change.Error()); err != nil {
			return err
		}
		s.log.Info("the domain's members change", "node", from, "address", word.Address, "voter", is)
	}
	s.mu.RLock()
	said, told := s.state.Members().Get(from)
	s.mu.RUnlock()
	if told && said.API == word.API && said.Reads.Equal(word.Reads) {
		return nil
	}
	if told && !s.pace.mayReplace(from, s.servers()) {
		return directory.Refuse(directory.RateLimited, "%s has changed what it says of itself too often; it asks again later", from)
	}
	_, err = s.propose(ctx, &state.Command{Member: &state.Member{ID: from, API: word.API, Reads: word.Reads}})
	return err
}

// near reports whether a node has so much of the history that its vote holds
// nobody up.
func (s *Store) near(word *joinWord) bool {
	at := s.Position()
	return word.Epoch == at.Epoch && word.Revision+nearEnough >= at.Revision
}

// judge says why a node may not have what it asks for.
func (s *Store) judge(from spiffeid.ID, word *joinWord) error {
	all := s.servers()
	if word.Address == "" || len(word.Address) > 300 || len(word.API) > 300 {
		return directory.Refuse(directory.BadRequest, "%s gives no usable address", from)
	}
	if err := word.Reads.Check(); err != nil {
		return directory.Refuse(directory.BadRequest, "%s does not say what it reads: %w", from, err)
	}
	if err := word.Reads.Lacks(s.Written()); err != nil {
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
	s.mu.RLock()
	until, _ := s.state.Members().Admitted(from)
	now := s.state.History().Now() / 1000
	s.mu.RUnlock()
	switch {
	case from.TrustDomain() != s.cfg.Domain:
		return directory.Refuse(directory.Forbidden, "%s is no node of %s", from, s.cfg.Domain.Name())
	case until <= now:
		return directory.Refuse(directory.Forbidden, "%s is not admitted: an operator admits it with: roster raft admit %s", from, from)
	case len(all) >= maxMembers:
		return directory.Refuse(directory.Conflict, "the domain has %d members already", len(all))
	}
	return nil
}

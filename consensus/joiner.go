package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A joiner makes this node the member that its configuration says: it asks members until
// Raft's configuration has it so. The same request moves a member to another address,
// promotes a newcomer that has caught up, says where its directory is, and finds the
// nodes with which a domain begins.
type joiner struct {
	cfg       *Config
	log       *slog.Logger
	life      *lifecycle
	group     *group
	replica   *Replica
	messenger *messenger
	diskWatch *diskWatch
	joins     *admitter
	storage   *storage
	found     candidates
}

// ask sends a join request to an address and returns the node that answered.
func (j *joiner) ask(ctx context.Context, address string, word *message.JoinRequest) (id spiffeid.ID,
	answer message.JoinAnswer, err error) {
	body, err := j.messenger.encode(word)
	if err != nil {
		return id, answer, err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+joinPath, bytes.NewReader(body))
	if err != nil {
		return id, answer, err
	}

	req.Header.Set("Content-Type", message.TypeCBOR)

	resp, err := j.messenger.cluster.Guest().Do(req)
	if err != nil {
		return id, answer, err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return id, answer, fmt.Errorf("%s answered %s", address, resp.Status)
	}

	data, err := io.ReadAll(io.LimitReader(resp.Body, message.MaxBody))
	if err == nil {
		err = message.Unmarshal(data, &answer)
	}

	id, _ = transport.PeerID(resp.TLS)

	return id, answer, err
}

// gatherDomain begins a domain once exactly the expected number of nodes have found
// exactly each other, with the same addresses. Only the one with the lowest id begins it,
// so that no two domains begin.
func (j *joiner) gatherDomain(others map[spiffeid.ID]*message.JoinRequest) error {
	found := []Member{j.group.self()}
	for id, word := range others {
		if word.Reader || word.Expect == 0 {
			continue
		}

		if word.Expect != j.cfg.Expect {
			return fmt.Errorf("%s expects %d nodes to begin the domain with and this one %d: make "+
				"bootstrap_expect the same on all", id, word.Expect, j.cfg.Expect)
		}

		found = append(found, Member{ID: id, Address: word.Address})
	}

	sortMembers(found)
	j.found.set(found)

	switch {
	case len(found) > j.cfg.Expect:
		return fmt.Errorf("there are %d nodes to begin the domain with and bootstrap_expect is %d: raise it, or "+
			"start the others later", len(found), j.cfg.Expect)
	case len(found) < j.cfg.Expect:
		return fmt.Errorf("%d of the %d nodes that begin the domain are in reach", len(found), j.cfg.Expect)
	}

	// All of them have an empty disk. The one that begins the domain needs the others' votes, and
	// waits until they have come this far.
	if err := j.storage.enter(); err != nil {
		return err
	}

	for _, m := range found {
		if word := others[m.ID]; word != nil && !slices.Equal(word.Found, found) {
			return fmt.Errorf("waiting until %s has found the same nodes", m.ID)
		}
	}

	if found[0].ID != j.cfg.Node {
		return fmt.Errorf("waiting for %s to begin the domain", found[0].ID)
	}

	j.log.Info("beginning the domain", "members", len(found))

	if err := j.group.raft.BootstrapCluster(configurationOf(found)).Error(); err != nil {
		return fmt.Errorf("begin the domain: %w", err)
	}

	return nil
}

// isSeated reports whether this node is the member that its configuration says. A node
// without contact to a leader asks again.
func (j *joiner) isSeated() bool {
	me, is := j.group.server(j.cfg.Node)
	j.replica.mu.RLock()
	said, told := j.replica.state.Members().Get(j.cfg.Node)
	j.replica.mu.RUnlock()

	word := state.Member{API: j.cfg.API, Reads: j.cfg.reads}
	if j.replica.Written().Log >= state.ListenersVersion {
		word.Listeners = j.cfg.Listeners
	}

	return is && told && said.SameWord(word) &&
		me.Address == j.group.self().Address && (me.voter || j.cfg.Reader) &&
		j.diskWatch.Heard() < 10*j.cfg.Timing.Heartbeat
}

// request returns this node's join request.
func (j *joiner) request() *message.JoinRequest {
	at := j.replica.Position()

	return &message.JoinRequest{
		Address: j.group.self().Address, API: j.cfg.API, Reader: j.cfg.Reader,
		Epoch: at.Epoch, Revision: at.Revision, Expect: j.cfg.Expect, Found: j.found.get(),
		Reads: j.cfg.reads, Listeners: j.cfg.Listeners, Empty: !j.storage.hasEntered(),
		Process: j.group.process,
	}
}

// maxJoinAddresses bounds the addresses to which names in Join resolve.
const maxJoinAddresses = 64

// joinAddresses returns the addresses of Join. A host name with several addresses, such as
// that of a headless service, is replaced by them: each is another node.
func (j *joiner) joinAddresses(ctx context.Context) []string {
	if j.cfg.Resolve == nil {
		return j.cfg.Join
	}

	var addresses []string
	for _, address := range j.cfg.Join {
		host, port, _ := net.SplitHostPort(address)

		found, err := j.cfg.Resolve(ctx, host)
		if err != nil || len(found) < 2 {
			found = []string{host} // the connection says what is wrong
		}

		for _, each := range found {
			addresses = append(addresses, net.JoinHostPort(each, port))
		}
	}

	return addresses[:min(len(addresses), maxJoinAddresses)]
}

// requestJoin asks every reachable member. nil means that the leader has done all that it
// can do by now.
func (j *joiner) requestJoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Timing.Write)
	defer cancel()

	word := j.request()
	if j.group.leading.Load() {
		return j.joins.addMember(ctx, j.cfg.Node, word)
	}

	var doors []string
	if leader, ok := j.group.leader(); ok && leader.ID != j.cfg.Node {
		doors = append(doors, leader.Address)
	}

	doors = append(doors, j.joinAddresses(ctx)...)
	for _, m := range j.group.servers() {
		doors = append(doors, m.Address)
	}

	err := errors.New("no node of the domain is in reach")

	var refused error // by a member whose knowledge may be old

	empty := map[spiffeid.ID]*message.JoinRequest{}

	asked := map[string]bool{word.Address: true}
	for len(doors) > 0 && ctx.Err() == nil {
		address := doors[0]
		doors = doors[1:]

		if asked[address] {
			continue
		}

		asked[address] = true

		id, answer, e := j.ask(ctx, address, word)
		switch {
		case e != nil:
			err = e
		case answer.Duplicate:
			j.group.duplicate.Store(true)

			return directory.Refuse(answer.Problem, "%s", answer.Detail)
		case id == j.cfg.Node: // at another of its own addresses
		case answer.Done:
			j.group.duplicate.Store(false)
			j.group.wasSeated.Store(true)

			return j.storage.enter()
		case answer.Problem != "":
			refused = directory.Refuse(answer.Problem, "%s", answer.Detail)
		case answer.Leader != nil:
			doors = append([]string{answer.Leader.Address}, doors...)
			err = fmt.Errorf("the leader, %s, does not answer at %s", answer.Leader.ID, answer.Leader.Address)
		case answer.Empty != nil:
			empty[id] = answer.Empty
		default:
			err = errNoLeader
		}
	}

	if refused != nil {
		return refused
	}

	if j.cfg.Expect > 0 && len(j.group.servers()) == 0 {
		return j.gatherDomain(empty)
	}

	return err
}

// run sends join requests while this node is not the member that its configuration says.
func (j *joiner) run() {
	said, knocking := "", joinPause
	for {
		pause, why := j.cfg.Timing.Presence, ""
		if j.isSeated() {
			knocking = joinPause
			j.group.outside.Store(nil)
			j.group.wasSeated.Store(true)
		} else {
			pause, knocking = knocking, min(knocking*5/4, joinPauseLongest)

			if err := j.requestJoin(j.life.closing); err != nil {
				why = j.noteOutside(err)
			}
		}

		if why == "" || time.Since(j.group.opened) < quietStart {
			said = ""
		} else if why != said && j.life.closing.Err() == nil {
			said = why
			level, message := j.waiting()
			j.log.Log(j.life.closing, level, message, "reason", why)
		}

		select {
		case <-time.After(pause):
		case <-j.life.closing.Done():
			return
		}
	}
}

// waiting says for what this node waits, which is no member as its configuration says. An operator has to
// act on a warning.
func (j *joiner) waiting() (slog.Level, string) {
	_, is := j.group.server(j.cfg.Node)
	_, led := j.group.leader()
	outside := j.group.outside.Load() != nil

	switch {
	case j.group.duplicate.Load():
		return slog.LevelWarn, "another process has this node's identity and its seat; this one takes no part in the domain"
	case outside && j.group.wasSeated.Load():
		return slog.LevelInfo, "this node was removed from its domain; stop it, or admit it again"
	case outside && is:
		return slog.LevelWarn, "waiting to be let back into the domain"
	case outside:
		return slog.LevelInfo, "waiting to be admitted to the domain"
	case !led:
		return slog.LevelInfo, "waiting for a leader: a majority of the domain's nodes must run"
	}

	return slog.LevelInfo, "waiting for the leader to take over this member's address, versions or listeners"
}

// noteOutside notes why this node is no member, if so: by its own knowledge or the leader's
// answer.
func (j *joiner) noteOutside(err error) string {
	why := err.Error()
	if _, is := j.group.server(j.cfg.Node); !is || directory.ProblemOf(err) == directory.Forbidden {
		j.group.outside.Store(&why)
	} else {
		j.group.outside.Store(nil)
	}

	return why
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

// joinPause is the time between two join requests of a node. While they fail, it grows up to
// joinPauseLongest, because each costs both sides a handshake.
const (
	joinPause        = 500 * time.Millisecond
	joinPauseLongest = 5 * time.Second
)

// quietStart is for how long a node that starts does not complain.
const quietStart = 3 * time.Second

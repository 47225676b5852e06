package consensus

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A group is this member's view of its Raft group: the members, the leader, and whether this
// member leads. Raft's configuration alone determines the members.
type group struct {
	cfg     *Config
	log     *slog.Logger
	life    *lifecycle
	opened  time.Time
	raft    *raft.Raft
	running atomic.Pointer[raft.Raft] // raft, for callbacks of Raft itself before raft is set
	outside atomic.Pointer[string]    // why this node is no member yet; nil if it is
	stuck   atomic.Pointer[string]    // why the domain can have no leader, as far as this member knows
	term    leaderTerm
	process uint64 // random: tells this process from another one with the same identity
	// duplicate says that another process with this node's identity has its seat.
	duplicate atomic.Bool
	stopping  atomic.Bool // its process stops: the others may, too
	wasSeated atomic.Bool // the domain had this node as a member since it was opened
}

func newGroup(cfg *Config, log *slog.Logger, life *lifecycle) *group {
	return &group{cfg: cfg, log: log, life: life, opened: time.Now(), process: rand.Uint64()}
}

// Leader returns the node that is known to lead the domain.
func (g *group) Leader() (spiffeid.ID, bool) {
	m, ok := g.leader()
	return m.ID, ok
}

func (g *group) address() raft.ServerAddress { return raft.ServerAddress(g.self().Address) }

// alone reports whether the domain has no other member.
func (g *group) alone() bool {
	r := g.running.Load()
	return r != nil && len(r.GetConfiguration().Configuration().Servers) == 1
}

// standForElection makes the only voter of a domain stand for election at once.
func (g *group) standForElection(transport transport.RaftTransport) {
	others, _ := g.voters()

	me, ok := g.server(g.cfg.Node)
	if !ok || !me.voter || len(others) > 0 {
		return
	}

	id, address := raft.ServerID(me.ID.String()), raft.ServerAddress(me.Address)

	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: transport.EncodePeer(id, address),
	}}
	if err := transport.TimeoutNow(id, address, req, &raft.TimeoutNowResponse{}); err != nil {
		g.log.Debug("cannot stand for election at once", "err", err)
	}

	// The stream to this member itself is needed no longer.
	transport.CloseStreams()
}

// elections returns a channel that holds one signal after the known leader has changed,
// and a function that ends that.
func (g *group) elections() (elected <-chan raft.Observation, deaf func()) {
	c := make(chan raft.Observation, 1)
	observer := raft.NewObserver(c, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	g.raft.RegisterObserver(observer)

	return c, func() { g.raft.DeregisterObserver(observer) }
}

// follow returns the leader, and a context that ends once this member follows another
// one. Requests that only the leader can answer are made within it.
func (g *group) follow() (leader Member, term context.Context, ok bool) {
	return g.term.follow(g.leader, g.life.closing)
}

// hasOtherVoter reports whether another member can take the leadership over.
func (g *group) hasOtherVoter() bool {
	others, _ := g.voters()
	return len(others) > 0
}

// others returns the other members.
func (g *group) others() (others []Member) {
	for _, m := range g.servers() {
		if m.ID != g.cfg.Node {
			others = append(others, m.Member)
		}
	}

	return others
}

// isLeader is whether Raft says so; no before it runs.
func (g *group) isLeader() bool {
	r := g.running.Load()
	return r != nil && r.State() == raft.Leader
}

// known returns the members, and the leader too if this member has not learnt yet that it
// is one.
func (g *group) known() []Member {
	var all []Member
	for _, m := range g.servers() {
		all = append(all, m.Member)
	}

	if g.running.Load() == nil {
		return all
	}

	// The leader may be at another address than the one that the group has.
	if leader, ok := g.leader(); ok && !slices.Contains(all, leader) {
		all = append(all, leader)
	}

	return all
}

// leader returns the member that is known to lead.
func (g *group) leader() (Member, bool) {
	address, name := g.running.Load().LeaderWithID()

	id, err := spiffeid.FromString(string(name))
	if err != nil {
		return Member{}, false
	}

	return Member{ID: id, Address: string(address)}, true
}

// self returns this member as its own configuration has it.
func (g *group) self() Member {
	i := slices.IndexFunc(g.cfg.Members, func(m Member) bool { return m.ID == g.cfg.Node })
	return g.cfg.Members[i]
}

// server returns one member.
func (g *group) server(id spiffeid.ID) (server, bool) {
	all := g.servers()

	i := slices.IndexFunc(all, func(m server) bool { return m.ID == id })
	if i < 0 {
		return server{}, false
	}

	return all[i], true
}

// servers returns the domain's members; none while this node is in no domain.
func (g *group) servers() []server {
	r := g.running.Load()
	if r == nil {
		return nil
	}

	configured := r.GetConfiguration().Configuration().Servers

	all := make([]server, 0, len(configured))
	for _, c := range configured {
		if id, err := spiffeid.FromString(string(c.ID)); err == nil {
			all = append(all, server{Member{ID: id, Address: string(c.Address)}, c.Suffrage == raft.Voter})
		}
	}

	return all
}

// votes reports whether a node is a voter or leads, as far as this member knows.
func (g *group) votes(id spiffeid.ID) bool {
	if member, is := g.server(id); is && member.voter {
		return true
	}

	if g.running.Load() == nil {
		return false
	}

	leader, ok := g.leader()

	return ok && leader.ID == id
}

// voters returns the other voting members, and how many of them make a majority
// together with this one.
func (g *group) voters() (others []Member, majority int) {
	all := 0
	for _, m := range g.servers() {
		if !m.voter {
			continue
		}

		all++

		if m.ID != g.cfg.Node {
			others = append(others, m.Member)
		}
	}

	return others, all/2 + 1 - (all - len(others))
}

// A server is a member in Raft's configuration.
type server struct {
	Member
	voter bool
}

func sortMembers(ms []Member) {
	slices.SortFunc(ms, func(a, b Member) int { return strings.Compare(a.ID.String(), b.ID.String()) })
}

// configurationOf is Raft's configuration of voters.
func configurationOf(ms []Member) (configuration raft.Configuration) {
	ms = slices.Clone(ms)
	sortMembers(ms)

	for _, m := range ms {
		configuration.Servers = append(configuration.Servers,
			raft.Server{ID: raft.ServerID(m.ID.String()), Address: raft.ServerAddress(m.Address)})
	}

	return configuration
}

// A leaderTerm is the time for which this member follows one leader.
type leaderTerm struct {
	mu     sync.Mutex
	leader spiffeid.ID
	over   context.Context // ends with it
	end    context.CancelFunc
}

func (t *leaderTerm) follow(known func() (Member, bool), closing context.Context) (leader Member,
	over context.Context, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	leader, ok = known()

	// Without a known leader the last term goes on, because its leader may lead again.
	if ok && (t.over == nil || t.leader != leader.ID) {
		if t.end != nil {
			t.end()
		}

		t.leader = leader.ID
		t.over, t.end = context.WithCancel(closing)
	}

	return leader, t.over, ok
}

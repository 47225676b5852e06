package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
	httpproblem "github.com/roster-mesh/roster/directory/problem"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/raftlog"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
)

// A member is this process's membership of its domain: the Raft group, the connections to the other
// members, the disk, and the copy of the state. The other parts of a Store are built on it.
type member struct {
	cfg     *Config
	log     *slog.Logger
	life    *lifecycle
	replica *Replica
	group   *group

	messenger messenger
	contacts  contacts
	storage   storage
	histories histories
	transport transport.RaftTransport

	rules    atomic.Pointer[Rules] // of this member
	newRules chan struct{}         // holds one request of a leader to propose them
	seats    seats
	keys     keyPace
	caughtUp atomic.Bool // has applied the recent position of the leader that it follows
}

func newMember(cfg *Config) *member {
	log := cfg.Logger
	life := newLifecycle(log)
	m := &member{
		cfg: cfg, log: log, life: life, replica: newReplica(cfg, life), group: newGroup(cfg, log, life),
		messenger: messenger{cfg: cfg, log: log},
		newRules:  make(chan struct{}, 1), seats: newSeats(),
	}
	m.contacts = contacts{
		cfg: cfg, log: log, life: life, group: m.group,
		heard: map[raft.ServerID]time.Time{}, added: map[raft.ServerID]time.Time{},
		matches: map[raft.ServerID]logMatch{}, promoted: map[raft.ServerID]time.Time{},
		logged: map[raft.ServerID]bool{}, duplicates: map[spiffeid.ID]duplicate{},
	}
	m.storage = storage{
		cfg: cfg, log: log, life: life, group: m.group, growth: logGrowth{due: make(chan struct{}, 1)},
		entered: make(chan struct{}),
	}
	m.histories = histories{
		cfg: cfg, log: log, life: life, group: m.group, own: m.storage.history,
		others: map[spiffeid.ID]transport.Claim{},
	}
	m.rules.Store(&cfg.Rules)

	return m
}

// setRules replaces the rules of this member. If it leads, it proposes them to the domain.
func (m *member) setRules(rules *Rules) {
	m.rules.Store(rules)
	signal(m.newRules)
}

// evictLoop ends the connections of former members.
func (m *member) evictLoop() {
	ticker := time.NewTicker(m.cfg.Timing.Sweep)
	defer ticker.Stop()

	for {
		changed := m.replica.Agreed()

		m.messenger.cluster.Evict()

		select {
		case <-ticker.C:
		case <-changed: // members may have left
		case <-m.life.closing.Done():
			return
		}
	}
}

// transferToBest transfers the leadership to a fit member. Raft chooses among those with
// most of the log, which in a quiet domain may be a dead one: if some missed their last
// heartbeats, the member that was in contact last is chosen.
func (m *member) transferToBest() raft.Future {
	others, _ := m.group.voters()

	var (
		last Member
		at   time.Time
	)

	missing := false
	for _, member := range others {
		heard := m.contacts.last(member.ID)

		missing = missing || time.Since(heard) > 2*m.cfg.Timing.Heartbeat
		if heard.After(at) {
			last, at = member, heard
		}
	}

	if !missing || at.IsZero() {
		return m.group.raft.LeadershipTransfer()
	}

	return m.transferToMember(last)()
}

func (m *member) transferToMember(to Member) func() raft.Future {
	return func() raft.Future {
		return m.group.raft.LeadershipTransferToServer(raft.ServerID(to.ID.String()), raft.ServerAddress(to.Address))
	}
}

// start starts the parts of a member in order; shutdown stops them in the opposite one.
func (s *Store) start() (err error) {
	// A failed start is undone by the same shutdown.
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	log := raftlog.New(s.log, s.group.stopping.Load)

	s.messenger.cluster = transport.New(transport.Options{
		Listener: s.cfg.Listener, Dial: s.cfg.Dial, ServerTLS: s.cfg.ServerTLS, ClientTLS: s.cfg.ClientTLS,
		Log: s.log, Known: s.group.known, Votes: s.group.votes, Vouched: s.peers.vouched,
		Claim: s.histories.claim, Judge: s.histories.judge, Others: s.joiner.places,
	})
	if err := s.storage.open(log, s.inspector.beginSnapshot); err != nil {
		return err
	}

	if err := s.Replica.history.Open(); err != nil {
		return err
	}

	dropSpools(s.cfg.Dir)

	if err := s.storage.bootstrap(); err != nil {
		return fmt.Errorf("begin with the configured members: %w", err)
	}

	if err := s.startRaft(log); err != nil {
		return err
	}

	// The handlers of the cluster use the running group, so it is there first.
	s.group.running.Store(s.group.raft)
	s.messenger.cluster.Serve(s.handler(), s.joins.handler())
	s.startLoops()

	return nil
}

// startRaft starts Raft with its transport on the opened directory.
func (s *Store) startRaft(log hclog.Logger) error {
	config := raftConfig(s.cfg, log)
	s.transport = transport.NewRaftTransport(transport.RaftOptions{
		Cluster: s.messenger.cluster, Address: s.group.address(), Timeout: 10 * s.cfg.Timing.Heartbeat,
		Log: log.Named("transport"), Withhold: s.storage.disk.Ahead.Withhold, Entered: s.storage.entered,
		Received: s.contacts.note, Matched: s.contacts.match, Judge: s.inspector.judge,
		Installing: s.inspector.installing,
	})
	s.life.loops.Go(func() { s.transport.Run(s.life.closing.Done()) })

	err := disk.Guard(func() (err error) {
		// Entries that the log has before Raft runs were sent by earlier processes, whose marks this one can't check.
		if s.Replica.Commands.logged, err = s.storage.disk.Logs.LastIndex(); err != nil {
			return err
		}

		logs, votes, running := s.storage.disk.ForRaft()
		s.group.raft, err = raft.NewRaft(config, machine{s.member, s.terms},
			logs, votes, s.storage.disk.Snapshots, s.transport)

		running.Begin()

		if err != nil {
			return err
		}

		_, newest, err := newestCommands(s.storage.disk)
		s.Replica.noteAbsence(time.UnixMilli(newest.Time))

		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", s.storage.raftFailure(err)), s.transport.Close())
	}

	return nil
}

// startLoops starts the loops of all parts, which end with the member's life.
func (s *Store) startLoops() {
	s.life.loops.Go(func() { s.group.standForElection(s.transport) })

	for range maxMessages {
		s.life.loops.Go(s.forwarder.forwardLoop)
	}

	s.life.loops.Go(s.writes.acceptLoop)
	s.life.loops.Go(s.terms.run)
	s.life.loops.Go(s.sweeper.run)
	s.life.loops.Go(s.storage.snapshotLoop)
	s.life.loops.Go(s.Logs.run)
	s.life.loops.Go(s.statements.run)
	s.life.loops.Go(s.comparer.run)
	s.life.loops.Go(func() { s.reader.asked.answer(s.life.closing, s.reader.askLeader) })
	s.life.loops.Go(func() { s.reader.confirmed.answer(s.life.closing, s.reader.confirm) })
	s.life.loops.Go(s.follower.run)
	s.life.loops.Go(s.forwarder.successionLoop)
	s.life.loops.Go(s.joiner.run)
	s.life.loops.Go(s.evictLoop)
	s.life.loops.Go(func() { s.contacts.run(s.IsLeader) })

	if s.cfg.Timing.SlowDisk > 0 {
		s.life.loops.Go(s.diskWatch.run)
	}
}

// shutdown is safe after a start that failed halfway.
func (s *Store) shutdown() error {
	s.Stopping()

	var errs []error

	if s.group.raft != nil && s.life.failure() == nil && s.group.isLeader() && s.group.hasOtherVoter() {
		transfer := func() error { return s.transferToBest().Error() }
		if leader := s.terms.elected(); leader != nil {
			transfer = func() error { return leader.operator.transferBetweenEntries(s.transferToBest) }
		}

		if err := transfer(); err != nil {
			s.log.Info("leadership transfer failed", "err", err)
		}

		s.writes.drain(s.cfg.Timing.Heartbeat)
	}

	leader := s.terms.elected()

	s.life.stop()

	if leader != nil {
		// Raft never answers a committed entry that its state machine has not begun by now.
		ending, cancel := context.WithTimeout(context.Background(), s.cfg.Timing.Heartbeat)
		_, _ = leader.proposer.pause(ending)

		cancel()
	}

	// Raft waits for its calls to members. The end of the cluster ends those to members that don't answer.
	var down raft.Future
	if s.group.raft != nil {
		down = s.group.raft.Shutdown()
	}

	// The cluster closes the listener. Without one it is still open.
	if s.messenger.cluster != nil {
		errs = append(errs, s.messenger.cluster.Close())
	} else {
		errs = append(errs, s.cfg.Listener.Close())
	}

	if down != nil {
		errs = append(errs, down.Error())
	}

	s.life.loops.Wait()

	// All loops have ended, so no more is written.
	if s.storage.disk != nil {
		errs = append(errs, s.storage.disk.Close())
	}

	errs = append(errs, s.Replica.ledger.Close(), s.Replica.history.Close())

	return errors.Join(errs...)
}

func raftConfig(cfg *Config, log hclog.Logger) *raft.Config {
	t := cfg.Timing
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(cfg.Node.String())
	c.HeartbeatTimeout = t.Heartbeat
	c.ElectionTimeout = t.Election
	c.LeaderLeaseTimeout = t.Lease
	c.CommitTimeout = t.Commit
	c.SnapshotThreshold = t.SnapshotEvery
	c.TrailingLogs = t.SnapshotEvery // at most: see limitTrailingLogs
	c.NoLegacyTelemetry = true
	c.ShutdownOnRemove = false // it is said, and its process ends when its operator ends it
	c.Logger = log

	return c
}

// handler serves messages of members. A node that is a member no more gets no further
// answer over its open connections.
func (s *Store) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+presencePath, func(w http.ResponseWriter, r *http.Request) {
		var request message.PresenceRequest

		// A leader takes clocks before it is ready, because it stamps nothing before it knows a majority's.
		if !s.messenger.receive(w, r, s.terms.elected() != nil, &request) {
			return
		}

		from, _ := transport.PeerID(r.TLS)
		s.clocks.hear(from, &request)
		s.contacts.note(raft.ServerID(from.String()))

		// A leader that is not ready to lead does not know the domain's position.
		var answer message.PresenceAnswer
		if s.IsLeader() {
			at := s.Replica.Position()

			answer = message.PresenceAnswer{Epoch: at.Epoch, Revision: at.Revision}
			if wall, now, err := s.clocks.read(); err == nil {
				answer.Time, answer.Kept = wall.UnixMilli(), now.UnixMilli()
			}

			if s.Replica.Written().Wire > state.FirstVersion {
				answer.PresenceNext = state.NextPresence()
			}
		}

		s.messenger.answer(w, &answer)
	})
	mux.HandleFunc("POST "+readPath, func(w http.ResponseWriter, r *http.Request) {
		leader := s.terms.leader()
		if !s.messenger.receive(w, r, leader != nil, &message.ReadRequest{}) {
			return
		}

		at, err := s.reader.confirmed.join(r.Context())
		if err != nil {
			s.messenger.refuse(w, errMisdirected)
			return
		}

		// The reader waits for its member to apply the position, so the followers get the commit index at once.
		signal(leader.proposer.commits.awaited)
		s.messenger.answer(w, &message.PresenceAnswer{Epoch: at.Epoch, Revision: at.Revision})
	})
	mux.HandleFunc("POST "+restorePath, s.restorer.takeBackup)
	route(&s.messenger, mux, contactsPath, s.IsLeader, s.peers.answerContacts)
	route(&s.messenger, mux, asidePath, func() bool { return s.IsLeader() && s.cfg.Aside != nil },
		func(question *message.Aside) *message.Aside { return &message.Aside{Text: s.cfg.Aside(question.Text)} })

	always := func() bool { return true }
	route(&s.messenger, mux, decisionPath, always, s.inspector.answerDecision)
	route(&s.messenger, mux, commandPath, always, s.inspector.answerCommand)
	route(&s.messenger, mux, entriesPath, always, s.Logs.answer)
	route(&s.messenger, mux, rootPath, always, s.comparer.answer)
	route(&s.messenger, mux, statementsPath, always, s.statements.answer)
	route(&s.messenger, mux, vouchPath, always, func(request *message.VouchRequest) *message.VouchAnswer {
		member, _ := s.group.server(request.ID)
		return &message.VouchAnswer{Member: member.voter}
	})
	route(&s.messenger, mux, termPath, always, func(*message.TermRequest) *message.TermAnswer {
		return &message.TermAnswer{Term: s.group.raft.CurrentTerm(),
			Unable: s.life.failure() != nil || s.diskWatch.hanging() > 0, Process: s.group.process}
	})

	routes := httpproblem.Routes(mux, s.cfg.API)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := transport.PeerID(r.TLS); !ok || !s.messenger.cluster.IsMember(id) {
			s.messenger.refuse(w, directory.Refuse(directory.Forbidden, "%w", transport.ErrNotMember))
			return
		}

		routes.ServeHTTP(w, r)
	})
}

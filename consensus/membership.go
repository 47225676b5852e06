package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func newStore(cfg Config) (*Store, error) {
	cfg.Timing = cfg.Timing.withDefaults()
	if cfg.MaxLifetime == 0 {
		cfg.MaxLifetime = directory.MaxLifetime
	}
	if cfg.clock == nil {
		cfg.clock = time.Now
	}
	if cfg.reads.Log == 0 {
		cfg.reads = state.ReadableVersions()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.check(); err != nil {
		return nil, err // which names the member
	}
	s := &Store{
		cfg: cfg, log: cfg.Logger, opened: time.Now(),
		batches: newBatcher(), growth: growth{due: make(chan struct{}, 1)}, courier: newCourier(), lines: newSwitchboard(), regrants: make(chan struct{}, 1), seating: make(chan struct{}, 1),
		pace:    newNegotiationPace(),
		failing: make(chan struct{}), state: state.New(cfg.Domain, cfg.Index), changed: make(chan struct{}), agreed: make(chan struct{}),
	}
	s.shown.Store(&glimpse{written: state.FirstNumbers()})
	s.gates = map[spiffeid.ID]chan struct{}{}
	s.telling = map[raft.ServerID]chan struct{}{}
	s.presence.seen = map[spiffeid.ID]sighting{}
	s.presence.fresh = 10 * cfg.Timing.Presence
	s.presence.voters = s.voters
	s.closing, s.stop = context.WithCancel(context.Background())
	for _, q := range []*shared{&s.asked, &s.confirmed} {
		q.closing, q.kick = s.closing.Done(), make(chan struct{}, 1)
	}
	s.closed = sync.OnceValue(s.shutdown)
	return s, nil
}

// start starts everything, one thing after the other; shutdown stops it
// backwards.
func (s *Store) start() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	log := raftLogger(s.log)
	s.cluster = newCluster(&s.cfg, s.log, s.known, s.vouched)
	if err := disk.CheckOwner(s.cfg.Dir, s.cfg.Node); err != nil {
		return err
	}
	s.disk, err = disk.Open(disk.Options{
		Dir:          s.cfg.Dir,
		Log:          log,
		Failed:       s.fail,
		Slow:         s.cfg.Timing.SlowDisk,
		Trailing:     s.cfg.Timing.SnapshotEvery,
		LargestEntry: maxBatchBytes,
		Leads:        s.isLeader,
		Wrap:         s.cfg.faulty,
	})
	if err != nil {
		return err
	}
	if err := s.disk.Claim(s.cfg.Dir, s.cfg.Node); err != nil {
		return fmt.Errorf("note whose data this is: %w", err)
	}
	if err := readableBy(s.disk, s.cfg.reads, s.cfg.Dir); err != nil {
		return fmt.Errorf("read %s: %w", s.cfg.Dir, err)
	}
	dropSpools(s.cfg.Dir)
	if err := s.bootstrap(); err != nil {
		return fmt.Errorf("begin with the configured members: %w", err)
	}
	config := s.raftConfig(log)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: streams{s.cluster.raft, s.cluster}, MaxPool: 3, Timeout: 10 * s.cfg.Timing.Heartbeat, Logger: log.Named("transport"),
	})
	s.transport = memberTransport{transport, s.address(), s.disk.Ahead.Withhold, make(chan raft.RPC)}
	s.loops.Go(func() { s.transport.run(s.closing.Done()) })
	err = disk.Guard(func() (err error) {
		s.raft, err = raft.NewRaft(config, machine{s}, s.disk.Logs, s.disk.Votes, s.disk.Snapshots, s.transport)
		return err
	})
	if err != nil {
		switch why, unread := s.failure(), s.unread.Load(); { // which the library told in its own words
		case errors.Is(why, state.ErrNewer):
			err = why
		case why != nil:
			err = disk.AsDamage(why)
		case unread != nil: // Raft's own checksum of it is right
			err = *unread
		default:
			err = disk.AsDamage(err)
		}
		return errors.Join(fmt.Errorf("start raft: %w", err), transport.Close())
	}
	s.running.Store(s.raft)
	s.cluster.serve(s.handler(), s.doorway())
	s.loops.Go(func() { s.candidacy(transport) })
	s.loops.Go(s.batchLoop)
	for range maxMessages {
		s.loops.Go(s.carryLoop)
	}
	s.loops.Go(s.lineLoop)
	s.loops.Go(s.tellLoop)
	s.loops.Go(s.leadershipLoop)
	s.loops.Go(s.sweepLoop)
	s.loops.Go(s.snapshotLoop)
	s.loops.Go(func() { s.asked.answer(s.closing, s.askLeader) })
	s.loops.Go(func() { s.confirmed.answer(s.closing, s.confirm) })
	s.loops.Go(s.presenceLoop)
	s.loops.Go(s.successionLoop)
	s.loops.Go(s.joinLoop)
	s.loops.Go(s.tendLoop)
	if s.cfg.Timing.SlowDisk > 0 {
		s.loops.Go(s.diskLoop)
	}
	return nil
}

// isLeader is whether Raft says so; no before it runs.
func (s *Store) isLeader() bool {
	r := s.running.Load()
	return r != nil && r.State() == raft.Leader
}

func (s *Store) address() raft.ServerAddress { return raft.ServerAddress(s.self().Address) }

// shutdown is safe after a start that failed halfway.
func (s *Store) shutdown() error {
	var errs []error
	if s.raft != nil && s.raft.State() == raft.Leader && s.hasHeir() {
		if err := s.yield(s.handOn); err != nil {
			s.log.Info("nobody took the leadership over", "error", err)
		}
		s.drain(s.cfg.Timing.Heartbeat)
	}
	s.stop()
	var down raft.Future
	if s.raft != nil {
		down = s.raft.Shutdown()
	}
	if s.cluster != nil { // what Raft waits for at a member that does not answer ends with it
		errs = append(errs, s.cluster.close())
	} else {
		errs = append(errs, s.cfg.Listener.Close())
	}
	if down != nil {
		errs = append(errs, down.Error())
	}
	s.loops.Wait()
	if s.disk != nil {
		errs = append(errs, s.disk.Close())
	}
	return errors.Join(errs...)
}

// bootstrap gives a member without any state the log's first entry, unless it
// joins others. It is the
// same on every member, in index, term and contents, so that it does not matter
// which of them do this and when. (raft.BootstrapCluster refuses a member that
// died between writing its term and this entry.)
func (s *Store) bootstrap() error {
	empty, err := s.disk.Empty()
	if err != nil || !empty || len(s.cfg.Join) > 0 {
		return err
	}
	term, err := s.disk.Votes.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		return err
	}
	if term == 0 {
		if err := s.disk.Votes.SetUint64([]byte("CurrentTerm"), 1); err != nil {
			return err
		}
	}
	data := raft.EncodeConfiguration(configurationOf(s.cfg.Members))
	return s.disk.StoreFirst(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: data})
}

func (s *Store) raftConfig(log hclog.Logger) *raft.Config {
	t := s.cfg.Timing
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(s.cfg.Node.String())
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = t.Heartbeat, t.Election, t.Lease
	c.CommitTimeout = t.Commit
	c.SnapshotThreshold = t.SnapshotEvery
	c.TrailingLogs = t.SnapshotEvery // at most: see shorten
	c.NoLegacyTelemetry = true
	c.ShutdownOnRemove = false // it is said, and its process ends when its operator ends it
	c.Logger = log
	return c
}

// leader returns the member that is known to lead.
func (s *Store) leader() (Member, bool) {
	address, name := s.running.Load().LeaderWithID()
	id, err := spiffeid.FromString(string(name))
	if err != nil {
		return Member{}, false
	}
	return Member{id, string(address)}, true
}

// Leader returns the node that is known to lead the domain.
func (s *Store) Leader() (spiffeid.ID, bool) {
	m, ok := s.leader()
	return m.ID, ok
}

// IsLeader reports whether this member leads and is ready to.
func (s *Store) IsLeader() bool { return s.leading.Load() }

// Heard returns how long ago the leader was heard; 0 on the leader itself, unless
// its disk hangs: then the others have another by now.
func (s *Store) Heard() time.Duration {
	if s.raft.State() == raft.Leader {
		return s.diskHangs()
	}
	last := s.raft.LastContact()
	if last.IsZero() {
		last = s.opened
	}
	return time.Since(last)
}

var (
	errNoLeader = errors.New("the domain has no leader in reach")
	errBehind   = errors.New("this member is behind the leader")
	errNotYet   = errors.New("this member leads and is not ready to yet")
)

// Ready returns nil when this member knows a leader and has what the leader had
// a moment ago, and otherwise why it is not fit to serve.
func (s *Store) Ready() error {
	leader, ok := s.leader()
	switch {
	case s.failure() != nil:
		return s.failure()
	case s.closing.Err() != nil:
		return errors.New("this member is stopping")
	case s.diskHangs() > 0:
		return errDiskHangs
	case s.isSealed() && (ok || s.leading.Load()): // without a leader nobody knows how the log goes on
		return errSealed
	case s.leading.Load():
		return nil
	case s.outside.Load() != nil:
		return fmt.Errorf("this node is no member of its domain: %s", *s.outside.Load())
	case !ok:
		return errNoLeader
	case leader.ID == s.cfg.Node:
		return errNotYet
	case !s.caughtUp.Load():
		return errBehind
	}
	if off := time.Duration(s.clockOff.Load()); off != 0 { // what lives would be shown as ended, or the other way round
		return fmt.Errorf("this member's clock is %v from its leader's: have it set right", off.Round(time.Second))
	}
	return nil
}

// fail latches the first failure after which this member must not be believed
// any more: Ready tells it, writes are refused, and Failed says that the process
// should end.
func (s *Store) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("this member has stopped applying and writing; it needs an operator", "error", err)
		close(s.failing)
	}
}

// Failed returns a channel that is closed once this member cannot go on: its log
// could not be written, or has an entry that this release does not know. Ready
// tells which. What was acknowledged before is safe, and nothing is acknowledged
// after; only a new start from the disk puts it right.
func (s *Store) Failed() <-chan struct{} { return s.failing }

func (s *Store) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

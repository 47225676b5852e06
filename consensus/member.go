package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/state"
)

// start starts everything, one thing after the other; shutdown stops it
// backwards.
func (s *Store) start() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	log := raftLogger(s.log)
	s.messenger.cluster = newCluster(s.cfg, s.log, s.group.known, s.peers.vouched)
	if err := disk.CheckOwner(s.cfg.Dir, s.cfg.Node); err != nil {
		return err
	}
	s.storage.disk, err = disk.Open(disk.Options{
		Dir:          s.cfg.Dir,
		Log:          log,
		Failed:       s.life.fail,
		Slow:         s.cfg.Timing.SlowDisk,
		Trailing:     s.cfg.Timing.SnapshotEvery,
		LargestEntry: maxBatchBytes,
		Leads:        s.group.isLeader,
		Wrap:         s.cfg.faulty,
	})
	if err != nil {
		return err
	}
	if err := s.storage.disk.Claim(s.cfg.Dir, s.cfg.Node); err != nil {
		return fmt.Errorf("note whose data this is: %w", err)
	}
	if err := readableBy(s.storage.disk, s.cfg.reads, s.cfg.Dir); err != nil {
		return fmt.Errorf("read %s: %w", s.cfg.Dir, err)
	}
	dropSpools(s.cfg.Dir)
	if err := s.bootstrap(); err != nil {
		return fmt.Errorf("begin with the configured members: %w", err)
	}
	config := s.raftConfig(log)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: streams{s.messenger.cluster.raft, s.messenger.cluster}, MaxPool: 3, Timeout: 10 * s.cfg.Timing.Heartbeat, Logger: log.Named("transport"),
	})
	s.commits.transport = memberTransport{transport, s.group.address(), s.storage.disk.Ahead.Withhold, make(chan raft.RPC)}
	s.life.loops.Go(func() { s.commits.transport.run(s.life.closing.Done()) })
	err = disk.Guard(func() (err error) {
		s.group.raft, err = raft.NewRaft(config, machine{s.cfg, s.life, s.Replica, s.storage, s.proposer}, s.storage.disk.Logs, s.storage.disk.Votes, s.storage.disk.Snapshots, s.commits.transport)
		return err
	})
	if err != nil {
		switch why, unread := s.life.failure(), s.storage.unread.Load(); { // which the library told in its own words
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
	s.group.running.Store(s.group.raft)
	s.messenger.cluster.serve(s.handler(), s.joins.handler())
	s.life.loops.Go(func() { s.group.candidacy(transport) })
	s.life.loops.Go(s.proposer.batchLoop)
	for range maxMessages {
		s.life.loops.Go(s.forwarder.carryLoop)
	}
	s.life.loops.Go(s.writes.lineLoop)
	s.life.loops.Go(s.commits.run)
	s.life.loops.Go(s.leadership.run)
	s.life.loops.Go(s.sweeper.sweepLoop)
	s.life.loops.Go(s.storage.snapshotLoop)
	s.life.loops.Go(func() { s.reader.asked.answer(s.life.closing, s.reader.askLeader) })
	s.life.loops.Go(func() { s.reader.confirmed.answer(s.life.closing, s.reader.confirm) })
	s.life.loops.Go(s.follower.presenceLoop)
	s.life.loops.Go(s.forwarder.successionLoop)
	s.life.loops.Go(s.joiner.run)
	s.life.loops.Go(s.operator.tendLoop)
	if s.cfg.Timing.SlowDisk > 0 {
		s.life.loops.Go(s.diskWatch.run)
	}
	return nil
}

// shutdown is safe after a start that failed halfway.
func (s *Store) shutdown() error {
	var errs []error
	if s.group.raft != nil && s.group.raft.State() == raft.Leader && s.group.hasHeir() {
		if err := s.operator.yield(s.operator.handOn); err != nil {
			s.log.Info("nobody took the leadership over", "error", err)
		}
		s.writes.drain(s.cfg.Timing.Heartbeat)
	}
	s.life.stop()
	var down raft.Future
	if s.group.raft != nil {
		down = s.group.raft.Shutdown()
	}
	if s.messenger.cluster != nil { // what Raft waits for at a member that does not answer ends with it
		errs = append(errs, s.messenger.cluster.close())
	} else {
		errs = append(errs, s.cfg.Listener.Close())
	}
	if down != nil {
		errs = append(errs, down.Error())
	}
	s.life.loops.Wait()
	if s.storage.disk != nil {
		errs = append(errs, s.storage.disk.Close())
	}
	return errors.Join(errs...)
}

// bootstrap gives a member without any state the log's first entry, unless it
// joins others. It is the
// same on every member, in index, term and contents, so that it does not matter
// which of them do this and when. (raft.BootstrapCluster refuses a member that
// died between writing its term and this entry.)
func (s *Store) bootstrap() error {
	empty, err := s.storage.disk.Empty()
	if err != nil || !empty || len(s.cfg.Join) > 0 {
		return err
	}
	term, err := s.storage.disk.Votes.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		return err
	}
	if term == 0 {
		if err := s.storage.disk.Votes.SetUint64([]byte("CurrentTerm"), 1); err != nil {
			return err
		}
	}
	data := raft.EncodeConfiguration(configurationOf(s.cfg.Members))
	return s.storage.disk.StoreFirst(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: data})
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

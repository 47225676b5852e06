package consensus

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

func compareText[T ~string](a, b T) int { return cmp.Compare(a, b) }

// leadershipLoop does what a leader must do before and while it leads.
func (s *Store) leadershipLoop() {
	abdicate := func() {}
	defer func() { abdicate() }()
	for {
		select {
		case leads := <-s.raft.LeaderCh():
			abdicate()
			abdicate = func() {}
			if leads {
				abdicate = s.enthrone()
			}
		case <-s.closing.Done():
			return
		}
	}
}

// enthrone begins a reign; what it returns ends it and waits for that.
func (s *Store) enthrone() (abdicate func()) {
	ctx, cancel := context.WithCancel(s.closing)
	var term sync.WaitGroup
	term.Go(func() { s.reign(ctx) })
	return func() {
		cancel()
		term.Wait()
		s.leading.Store(false)
		s.caughtUp.Store(false)
	}
}

// reign makes this member ready to lead: all of the earlier terms is applied, and
// the domain's history has begun. Then it keeps the grants as policy wants them.
func (s *Store) reign(ctx context.Context) {
	for {
		err := s.raft.Barrier(enqueueTimeout).Error()
		if err == nil {
			err = s.beginHistory(ctx)
		}
		if err == nil {
			break
		}
		s.log.Debug("not ready to lead yet", "error", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}
		if s.raft.State() != raft.Leader {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.presence.forget()
	s.leading.Store(true)
	s.askRegrants()
	for {
		select {
		case <-s.regrants:
			s.regrantAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// beginHistory proposes the log's first command where there is none.
func (s *Store) beginHistory(ctx context.Context) error {
	if s.Position().Epoch != 0 {
		return nil
	}
	_, err := s.propose(ctx, &command{Epoch: &epoch{uint64(time.Now().Unix()), "bootstrap"}})
	return err
}

func (s *Store) askRegrants() {
	select {
	case s.regrants <- struct{}{}:
	default:
	}
}

// regrantAll asks policy about every registration again and proposes what has
// changed, in bounded commands. What is interrupted is begun anew by whoever
// leads next.
func (s *Store) regrantAll(ctx context.Context) {
	if s.cfg.Grants == nil {
		return
	}
	s.mu.RLock()
	rids := make([]directory.RID, 0, len(s.state.regs))
	for rid := range s.state.regs {
		rids = append(rids, rid)
	}
	s.mu.RUnlock()
	slices.SortFunc(rids, directory.RID.Compare)
	for part := range slices.Chunk(rids, maxSwept) {
		c := &regrant{Items: s.decideAnew(part)}
		if len(c.Items) == 0 {
			continue
		}
		if _, err := s.propose(ctx, &command{Regrant: c}); err != nil {
			s.log.Info("grants are not all decided anew", "error", err)
			if ctx.Err() == nil && !errors.Is(err, errNotLeader) {
				s.askRegrants()
			}
			return
		}
	}
}

// decideAnew returns new answers of policy where they differ from the old ones.
func (s *Store) decideAnew(rids []directory.RID) []regrantItem {
	var items []regrantItem
	for _, rid := range rids {
		s.mu.RLock()
		reg := s.state.regs[rid]
		s.mu.RUnlock()
		if reg == nil {
			continue
		}
		e := reg.entry
		g, err := s.decide(Subject{rid, e.Agent, e.Owner, e.Document, nil, e.Visibility})
		if err != nil { // a document that an earlier release took: it keeps what it has
			s.log.Warn("grants cannot be decided anew", "rid", rid, "error", err)
			continue
		}
		if !equalGrants(g.grants(), reg.grants) {
			items = append(items, regrantItem{rid, e.Statement, g})
		}
	}
	return items
}

// reissueAfter is how long before the key document's end the leader issues the
// next one.
const reissueAfter = directory.KeyDocumentLifetime / 2

// sweepLoop looks at the agenda on every member, and on the leader proposes what
// has come due.
func (s *Store) sweepLoop() {
	ticker := time.NewTicker(s.cfg.Timing.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.sweep()
		case <-s.closing.Done():
			return
		}
	}
}

func (s *Store) sweep() {
	if s.failure() != nil && s.raft.State() == raft.Leader {
		s.raft.LeadershipTransfer() // somebody who can write shall lead
		return
	}
	now := time.Now().Unix()
	s.mu.Lock()
	expired, renewed := s.state.due(now)
	doc := s.state.issued
	s.mu.Unlock()
	if !s.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Write)
	defer cancel()
	for part := range slices.Chunk(expired, maxSwept) {
		s.sweepWith(ctx, &command{Expire: &sweep{directory.StatementFormat, part}})
	}
	for part := range slices.Chunk(renewed, maxSwept) {
		s.sweepWith(ctx, &command{Announce: &sweep{directory.StatementFormat, part}})
	}
	if doc != nil && doc.Expires-now < reissueAfter {
		s.sweepWith(ctx, &command{Issue: &issue{doc.Seq}})
	}
}

func (s *Store) sweepWith(ctx context.Context, c *command) {
	if _, err := s.propose(ctx, c); err != nil {
		s.log.Debug("the sweep will try again", "error", err)
	}
}

// stamp returns the time for a log entry, in Unix milliseconds.
func (s *Store) stamp() (int64, error) { return time.Now().UnixMilli(), nil }

// A presenceWord is what a follower tells its leader now and then, and a
// presenceAnswer is how far the leader is: so the follower knows whether it has
// caught up, which Raft does not tell it.
type presenceWord struct {
	Time int64 `cbor:"1,keyasint"` // Unix milliseconds, by its clock
}

type presenceAnswer struct {
	Epoch    uint64 `cbor:"1,keyasint"`
	Revision uint64 `cbor:"2,keyasint"`
}

// catchUpPause is between a follower's words until it has caught up.
const catchUpPause = 50 * time.Millisecond

func (s *Store) presenceLoop() {
	for {
		pause := s.cfg.Timing.Presence
		if !s.leading.Load() {
			s.caughtUp.Store(s.announcePresence())
			if !s.caughtUp.Load() {
				pause = catchUpPause
			}
		}
		select {
		case <-time.After(pause):
		case <-s.closing.Done():
			return
		}
	}
}

// announcePresence asks how far the leader is and waits a little for this member
// to get there.
func (s *Store) announcePresence() bool {
	leader, ok := s.leader()
	if !ok || leader.ID == s.cfg.Node {
		return false
	}
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Presence)
	defer cancel()
	var a presenceAnswer
	if err := s.post(ctx, leader, presencePath, &presenceWord{time.Now().UnixMilli()}, &a); err != nil {
		return false
	}
	at := directory.Position{Epoch: a.Epoch, Revision: a.Revision}
	s.await(ctx, at)
	return !s.Position().Before(at)
}

// presence is what a leader knows of its followers.
type presence struct {
	mu   sync.Mutex
	seen map[spiffeid.ID]sighting
}

type sighting struct {
	at     time.Time
	offset time.Duration // its clock less ours
}

func (p *presence) note(id spiffeid.ID, clock time.Time) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[id] = sighting{now, clock.Sub(now)}
}

func (p *presence) last(id spiffeid.ID) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[id].at
}

// forget forgets what an earlier term knew.
func (p *presence) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.seen)
}

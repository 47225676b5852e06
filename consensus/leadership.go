package consensus

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A leadership does what a leader must do before and while it leads.
type leadership struct {
	cfg        *Config
	log        *slog.Logger
	life       *lifecycle
	group      *group
	replica    *Replica
	clocks     *clocks
	proposer   *proposer
	reader     *reader
	regranter  *regranter
	negotiator *negotiator
	follower   *follower
}

// enthrone begins a reign; what it returns ends it and waits for that.
func (l *leadership) begin() (abdicate func()) {
	ctx, cancel := context.WithCancel(l.life.closing)

	var term sync.WaitGroup
	term.Go(func() { l.lead(ctx) })

	return func() {
		cancel()
		term.Wait()
		l.group.leading.Store(false)
		l.follower.caughtUp.Store(false)
	}
}

// beginHistory proposes the log's first command where there is none, and the
// first of a restored history.
func (l *leadership) beginHistory(ctx context.Context) error {
	epoch, err := l.beginning()
	if epoch == nil || err != nil {
		return err
	}

	_, err = l.proposer.propose(ctx, &state.Command{Epoch: epoch})

	return err
}

// beginning is the epoch with which the domain's history begins, or goes on after
// a restore; nil where it has begun.
func (l *leadership) beginning() (*state.Epoch, error) {
	l.replica.mu.RLock()
	known := l.replica.state.History().Position().Epoch
	sealed := l.replica.state.History().Sealed()
	l.replica.mu.RUnlock()

	now := l.cfg.clock()
	switch {
	case known == 0:
		return &state.Epoch{Epoch: uint64(now.Unix()), Reason: "bootstrap"}, nil
	case sealed == "":
		return nil, nil
	}

	next := max(uint64(now.Unix()), known+1)
	if next > uint64(now.Add(directory.Skew).Unix()) {
		return nil, directory.Refuse(directory.Unavailable, "epoch %d lies ahead of this node's clock", known)
	}

	return &state.Epoch{Epoch: next, Reason: sealed}, nil
}

// reign makes this member ready to lead: all of the earlier terms is applied, and
// the domain's history has begun, with this member's rules. Then it keeps the grants as policy wants them.
func (l *leadership) lead(ctx context.Context) {
	l.clocks.presence.forget()

	for {
		err := l.reader.barrier()
		if err == nil {
			err = l.beginHistory(ctx)
		}

		if err == nil {
			err = l.proposeRules(ctx)
		}

		if err == nil {
			err = l.withdrawVerdict(ctx)
		}

		if err == nil {
			break
		}

		l.log.Debug("not ready to lead yet", "error", err)

		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}

		if l.group.raft.State() != raft.Leader {
			return
		}
	}

	if ctx.Err() != nil {
		return
	}

	l.group.leading.Store(true)
	l.replica.settle()
	l.negotiator.proposeNext(ctx)
	l.regranter.ask()

	for {
		select {
		case <-l.regranter.regrants:
			l.regranter.regrantAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// decree puts this leader's rules in the place of the domain's.
func (l *leadership) proposeRules(ctx context.Context) error {
	l.replica.mu.RLock()
	current := l.replica.state.Owners().Rules()
	l.replica.mu.RUnlock()

	if current.Equal(&l.cfg.Rules) {
		return nil
	}

	rules := l.cfg.Rules
	_, err := l.proposer.propose(ctx, &state.Command{Rules: &rules})

	return err
}

// leadershipLoop does what a leader must do before and while it leads.
func (l *leadership) run() {
	abdicate := func() {}
	defer func() { abdicate() }()

	for {
		select {
		case leads := <-l.group.raft.LeaderCh():
			abdicate()

			abdicate = func() {}
			if leads {
				abdicate = l.begin()
			}
		case <-l.life.closing.Done():
			return
		}
	}
}

// recant takes back what a leader has concluded that decides by something else than this
// one, before this one decides anything: what both have decided is no whole.
func (l *leadership) withdrawVerdict(ctx context.Context) error {
	l.replica.mu.RLock()
	v := l.replica.state.Policy().Verdict()
	l.replica.mu.RUnlock()

	if l.cfg.Grants == nil || v == nil || v.Basis == l.cfg.Basis {
		return nil
	}

	_, err := l.proposer.propose(ctx, &state.Command{Decide: &state.Decide{}})

	return err
}

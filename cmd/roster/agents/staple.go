package agents

import (
	"context"
	"sync"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/trust"
)

const (
	// stapleInterval is the age at which a staple is written anew. Two attempts in a row may
	// fail before a reader finds it old.
	stapleInterval = trust.StapleLifetime / 3
	// stapleRetry is the pause after a failed attempt.
	stapleRetry = 30 * time.Second
)

// A stapler keeps the file of a registration's staple fresh.
type stapler struct {
	session *connect.Session
	client  *apiclient.Client
	agent   string
	file    string

	rids chan string // the newest rid, after a change
	end  context.CancelFunc
	done sync.WaitGroup
}

// startStapler writes the staple of the registration now, and keeps it fresh until stop. Without
// a file it does nothing.
func (r *registrant) startStapler(ctx context.Context) *stapler {
	s := &stapler{session: r.session, client: r.keeper.Client, agent: r.keeper.Agent, file: r.staple,
		rids: make(chan string, 1)}
	ctx, s.end = context.WithCancel(ctx)

	if s.file != "" {
		s.renew(r.keeper.RID())
		s.done.Go(func() { s.run(ctx) })
	}

	return s
}

func (s *stapler) stop() {
	s.end()
	s.done.Wait()
}

// renew has the staple written now. One goroutine calls it.
func (s *stapler) renew(rid string) {
	// An older rid that was not taken is replaced, so that a slow directory never blocks the keeper.
	select {
	case <-s.rids:
	default:
	}

	s.rids <- rid
}

func (s *stapler) run(ctx context.Context) {
	timer := time.NewTimer(stapleInterval)
	defer timer.Stop()

	var (
		rid     string
		failing error
	)

	for {
		select {
		case <-ctx.Done():
			return
		case rid = <-s.rids:
		case <-timer.C:
		}

		err := s.write(ctx, rid)

		// An error after the end of ctx is an effect of that, and is not noted.
		if ctx.Err() != nil {
			return
		}

		s.note(failing, err)
		failing = err

		pause := stapleInterval
		if err != nil {
			pause = stapleRetry
		}

		timer.Reset(pause)
	}
}

// note notes that the file can't be written, for the first time or for another cause, or that it
// is again.
func (s *stapler) note(before, now error) {
	switch {
	case now == nil && before != nil:
		s.session.Note("wrote the staple of %s to %s again", s.agent, s.file)
	case now != nil && (before == nil || before.Error() != now.Error()):
		s.session.Note("cannot write the staple of %s to %s: %s; retrying", s.agent, s.file, cli.FailureOf(now).Message)
	}
}

// write replaces the file in one step, because others read it at any time.
func (s *stapler) write(ctx context.Context, rid string) error {
	reply, err := s.client.Staple(ctx, rid)
	if err != nil {
		return err
	}

	return durable.WriteFile(s.file, reply.Body, 0o644)
}

package consensus

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A sweeper ends registrations past their deadlines and announces deadlines, as the
// leader.
type sweeper struct {
	*member

	terms  *terms
	clocks *clocks
	step   time.Duration // of this machine's clock at the last round
}

func (s *sweeper) sweep() {
	if _, led := s.group.leader(); led && s.group.raft.State() == raft.Follower {
		s.clocks.presence.forget() // contacts of a former leader term are outdated
	}

	now := s.cfg.clock()
	if s.group.raft.State() == raft.Leader && s.group.hasOtherVoter() &&
		(s.life.failure() != nil || s.clocks.presence.off(now)) {
		s.log.Warn("handing the leadership over: this member cannot write, or its clock is off its members'")
		s.transferToBest() // its outcome is seen by the next round

		return
	}

	s.reviewStep(now)
	s.sweepAt(s.cfg.Clock.Now())
}

// reviewStep logs a step of this machine's clock, and lets a leader confirm it.
func (s *sweeper) reviewStep(wall time.Time) {
	step := s.clocks.step()
	if step != 0 && s.step == 0 {
		s.log.Warn("this machine's clock has made a step that nothing has confirmed; leases run on without it",
			"step_ms", step.Milliseconds(), "confirmed_after_ms", agreeFor.Milliseconds())
	}

	switch confirmed := s.group.raft.State() == raft.Leader && s.clocks.review(wall); {
	case confirmed:
		s.log.Warn("the step of this machine's clock is confirmed; leases run by it", "step_ms", step.Milliseconds())
		s.enterTime()
	case step == 0 && s.step != 0:
		s.log.Info("this machine's clock has the domain's time again")
	}

	s.step = s.clocks.step()
}

// enterTime puts the time into the log, by an entry that changes nothing else.
func (s *sweeper) enterTime() {
	leader := s.terms.elected()
	if leader == nil {
		return
	}

	ctx, cancel := context.WithTimeout(leader.over, s.cfg.Timing.Write)
	defer cancel()

	leader.proposer.tryPropose(ctx, &state.Command{Announce: &state.Sweep{Format: s.replica.statementFormat()}})
}

func (s *sweeper) sweepAt(clock time.Time) {
	now := clock.Unix()

	var expired, renewed []directory.RID
	for range state.MaxLooks / state.LooksAtOnce {
		s.replica.use(func(st *state.State) {
			e, r := st.Registrations().Due(now)
			expired, renewed = append(expired, e...), append(renewed, r...)
		})
	}

	// Followers look as well, so that a new leader knows of a jump before its term.
	hasty := s.clocks.mustConfirmJump(clock, len(expired))

	switch leader := s.terms.leader(); {
	case leader == nil:
	case hasty:
		s.log.Warn("time has jumped and many registrations would end; the clocks are asked again first",
			"registrations", len(expired)) // all of it is looked at again in a second
	default:
		leader.sweep(clock, expired, renewed)
	}
}

// sweep ends registrations past their deadlines, announces deadlines, and issues a key document
// that is due.
func (l *Leader) sweep(clock time.Time, expired, renewed []directory.RID) {
	var (
		doc     *signed.KeyDocument
		rotated bool
	)

	l.replica.view(func(s *state.State) {
		doc, rotated = s.Keys().Document(), s.Keys().OverlapEnded(clock.UnixMilli())
	})

	ctx, cancel := context.WithTimeout(l.over, l.cfg.Timing.Write)
	defer cancel()

	for part := range slices.Chunk(expired, state.MaxSwept) {
		l.proposer.tryPropose(ctx,
			&state.Command{Expire: &state.Sweep{Format: l.replica.statementFormat(), RIDs: part}})
	}

	for part := range slices.Chunk(renewed, state.MaxSwept) {
		l.proposer.tryPropose(ctx,
			&state.Command{Announce: &state.Sweep{Format: l.replica.statementFormat(), RIDs: part}})
	}

	// The command names the document that it follows, so two of them issue one only.
	if doc != nil && (rotated || doc.Expires-clock.Unix() < reissueAfter) {
		l.proposer.tryPropose(ctx, &state.Command{Issue: &state.Issue{After: doc.Seq}})
	}

	l.pinAuthorities(ctx)
}

// pinAuthorities puts the authorities of the domain into the ledger, if they are not those that it has. Only the
// leader does so, because members learn of a change one after another.
func (l *Leader) pinAuthorities(ctx context.Context) {
	if l.cfg.Authorities == nil {
		return
	}

	pin := &state.Pin{Bundle: l.cfg.Authorities()}
	due := ask(l.replica, func(s *state.State) bool { return s.Pins().Check(pin) == nil })

	// A bundle that is too large is not proposed either: each round would write it into the log.
	if due {
		l.proposer.tryPropose(ctx, &state.Command{Pin: pin})
	}
}

// run checks the expiry queue on every member, and as the leader proposes the changes that are
// due.
func (s *sweeper) run() {
	every(s.life.closing, s.cfg.Timing.Sweep, s.sweep)
}

// reissueAfter is how long before the key document's end the leader issues the
// next one.
const reissueAfter = signed.KeyDocumentLifetime / 2

package consensus

import (
	"cmp"

	"github.com/roster-mesh/roster/directory"
)

// An appointment says when to look at a registration next: whether it is past
// its deadline, or its announced deadline is near and a later one stands behind
// it. The agenda is derived from the state, and each member keeps its own.
type appointment struct {
	at  int64 // Unix seconds
	rid directory.RID
}

func (a appointment) Compare(b appointment) int {
	return cmp.Or(cmp.Compare(a.at, b.at), a.rid.Compare(b.rid))
}

// plan sees to it that reg is looked at in time. An appointment that is too
// early costs one look, so that a refresh usually costs nothing.
func (s *state) plan(reg *registration) {
	at := reg.entry.ExpiresAt / 1000
	if x, in := s.announced(reg.entry.RID); in {
		at = min(at, x-directory.AnnounceBefore(reg.entry.Lifetime))
	}
	if at = max(at, s.now/1000); reg.look == 0 || at < reg.look {
		s.appoint(reg, at)
	}
}

func (s *state) appoint(reg *registration, at int64) {
	reg.look = at
	s.agenda.Push(appointment{at, reg.entry.RID})
}

// maxSwept bounds how many registrations one command of the sweep names, which
// others' writes wait for; maxLooks how many one round looks at, and looksAtOnce
// how many it does while it holds the state.
const (
	maxSwept    = 128
	maxLooks    = 20_000
	looksAtOnce = 250
)

// due returns what the leader is to end and to announce at now (Unix seconds),
// as far as it sees by so many looks.
// What it returns is looked at again a second later, so that nothing depends on
// whether the command is ever committed.
func (s *state) due(now int64) (expired, renewed []directory.RID) {
	for looks := 0; looks < looksAtOnce && s.agenda.Len() > 0 && s.agenda.First().at <= now; looks++ {
		a := s.agenda.Pop()
		reg := s.regs.get(a.rid)
		if reg == nil || reg.look != a.at {
			continue
		}
		deadline := reg.entry.ExpiresAt / 1000
		x, in := s.announced(a.rid)
		near := x - directory.AnnounceBefore(reg.entry.Lifetime)
		switch {
		case deadline <= now:
			expired = append(expired, a.rid)
			s.appoint(reg, now+1)
		case in && x < deadline && near <= now:
			renewed = append(renewed, a.rid)
			s.appoint(reg, now+1)
		case in && near > now:
			s.appoint(reg, min(near, deadline))
		default:
			s.appoint(reg, deadline)
		}
	}
	return expired, renewed
}

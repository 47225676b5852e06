package state

import (
	"cmp"

	"github.com/roster-mesh/roster/directory"
)

// An appointment says when to look at a registration next: whether it is past
// its deadline, or its announced deadline is near and a later one stands behind
// it. The agenda is derived from the state, and each member keeps its own.
type expiryCheck struct {
	at  int64 // Unix seconds
	rid directory.RID
}

func (a expiryCheck) Compare(b expiryCheck) int {
	return cmp.Or(cmp.Compare(a.at, b.at), a.rid.Compare(b.rid))
}

// plan sees to it that reg is looked at in time. An appointment that is too
// early costs one look, so that a refresh usually costs nothing.
func (r *Registrations) schedule(reg *Registration) {
	at := reg.entry.ExpiresAt / 1000
	if x, in := r.streams.announced(reg.entry.RID); in {
		at = min(at, x-directory.AnnounceBefore(reg.entry.Lifetime))
	}
	if at = max(at, r.history.now/1000); reg.look == 0 || at < reg.look {
		r.scheduleAt(reg, at)
	}
}

func (r *Registrations) scheduleAt(reg *Registration, at int64) {
	reg.look = at
	r.expiries.Push(expiryCheck{at, reg.entry.RID})
}

// maxSwept bounds how many registrations one command of the sweep names, which
// others' writes wait for; maxLooks how many one round looks at, and looksAtOnce
// how many it does while it holds the state.
const (
	MaxSwept    = 128
	MaxLooks    = 20_000
	LooksAtOnce = 250
)

// due returns what the leader is to end and to announce at now (Unix seconds),
// as far as it sees by so many looks.
// What it returns is looked at again a second later, so that nothing depends on
// whether the command is ever committed.
func (r *Registrations) Due(now int64) (expired, renewed []directory.RID) {
	for looks := 0; looks < LooksAtOnce && r.expiries.Len() > 0 && r.expiries.First().at <= now; looks++ {
		a := r.expiries.Pop()
		reg := r.regs.get(a.rid)
		if reg == nil || reg.look != a.at {
			continue
		}
		deadline := reg.entry.ExpiresAt / 1000
		x, in := r.streams.announced(a.rid)
		near := x - directory.AnnounceBefore(reg.entry.Lifetime)
		switch {
		case deadline <= now:
			expired = append(expired, a.rid)
			r.scheduleAt(reg, now+1)
		case in && x < deadline && near <= now:
			renewed = append(renewed, a.rid)
			r.scheduleAt(reg, now+1)
		case in && near > now:
			r.scheduleAt(reg, min(near, deadline))
		default:
			r.scheduleAt(reg, deadline)
		}
	}
	return expired, renewed
}

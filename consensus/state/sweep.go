package state

import (
	"cmp"
	"crypto/sha256"

	"github.com/roster-mesh/roster/directory"
)

// expireDue ends a registration if it is past its deadline.
func (r *Registrations) expireDue(rid directory.RID, format int) error {
	if format != r.members.statementFormat() {
		// The leader names it again.
		return nil
	}

	if reg := r.regs.get(rid); reg != nil && r.ended(reg) {
		return r.expire(reg, format)
	}

	return nil
}

// announceDeadline adds the deadline of a registration to the streams, if they have an earlier one.
func (r *Registrations) announceDeadline(rid directory.RID) {
	reg := r.regs.get(rid)
	if reg == nil || r.ended(reg) {
		return
	}

	deadline := reg.entry.ExpiresAt / 1000
	if x, in := r.streams.announced(rid); !in || x >= deadline {
		return
	}

	next := *reg
	next.entry.Revision = r.history.next()
	r.replace(reg, &next)
	r.streams.renew(&next, next.entry.Revision, func(x int64) bool { return x < deadline })
	r.schedule(&next)
}

// regrant replaces the old answers of policy about a registration with the new ones. Policy was
// asked about later contents when they were registered.
func (r *Registrations) regrant(item *RegrantItem) {
	reg := r.regs.get(item.RID)
	if reg == nil || reg.entry.Unconfirmed || reg.entry.Statement != item.Statement ||
		r.policy.basis != item.Granted.Policy {
		return
	}

	grants := item.Granted.List()
	if EqualGrants(grants, reg.grants) {
		return
	}

	next := *reg
	next.grants, next.entry.Revision = grants, r.history.next()
	r.replace(reg, &next)

	made := &Made{Shown: item.Shown}
	if len(made.Shown) != len(grants)*sha256.Size {
		made.Shown = shownTo(next.change(r.history.domain), grants)
	}

	r.streams.publish(&next, made, next.entry.Revision, false)
	r.schedule(&next)
}

// An expiryCheck says when to check a registration next: it may have expired, or its
// announced deadline is near although a later one was granted. The queue of checks is
// derived from the state, and each member keeps its own.
type expiryCheck struct {
	at  int64 // Unix seconds
	rid directory.RID
}

func (a expiryCheck) Compare(b expiryCheck) int {
	return cmp.Or(cmp.Compare(a.at, b.at), a.rid.Compare(b.rid))
}

// schedule makes sure that reg is checked in time. A check that comes too early is
// repeated, so that a refresh usually needs no new one.
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

// Due returns the registrations to end and to announce at now (Unix seconds), within
// LooksAtOnce looks. They are looked at again a second later, so that nothing depends on
// whether the command is ever committed.
func (r *Registrations) Due(now int64) (expired, renewed []directory.RID) {
	for looks := 0; looks < LooksAtOnce && r.expiries.Len() > 0 && r.expiries.First().at <= now; looks++ {
		check := r.expiries.Pop()

		reg := r.regs.get(check.rid)

		// A later check has taken the place of this one.
		if reg == nil || reg.look != check.at {
			continue
		}

		deadline := reg.entry.ExpiresAt / 1000
		x, in := r.streams.announced(check.rid)

		near := x - directory.AnnounceBefore(reg.entry.Lifetime)
		switch {
		case deadline <= now:
			expired = append(expired, check.rid)
			r.scheduleAt(reg, now+1)
		case in && x < deadline && near <= now:
			renewed = append(renewed, check.rid)
			r.scheduleAt(reg, now+1)
		case in && near > now:
			r.scheduleAt(reg, min(near, deadline))
		default:
			r.scheduleAt(reg, deadline)
		}
	}

	return expired, renewed
}

// Bounds of the sweep: how many registrations one of its commands names, for which other
// writes wait; how many it looks at in one round; and how many of these while it holds
// the state.
const (
	MaxSwept    = 128
	MaxLooks    = 20_000
	LooksAtOnce = 250
)

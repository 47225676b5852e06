package state

import (
	"crypto/sha256"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// expireAll ends those of the named that are past their deadline, each by a
// change of its own.
func (r *Registrations) expireAll(c *Sweep) error {
	if c.Format != r.members.statementFormat() {
		return nil // the leader names them again
	}
	for _, rid := range c.RIDs {
		r.step()
		if reg := r.regs.get(rid); reg != nil && r.ended(reg) {
			if err := r.expire(reg, c.Format); err != nil {
				return err
			}
		}
	}
	return nil
}

// announceAll tells the streams the deadlines of those of the named that have a
// later one than was announced, each by a change of its own.
func (r *Registrations) announceAll(c *Sweep) {
	for _, rid := range c.RIDs {
		r.step()
		reg := r.regs.get(rid)
		if reg == nil || r.ended(reg) {
			continue
		}
		deadline := reg.entry.ExpiresAt / 1000
		if x, in := r.streams.announced(rid); !in || x >= deadline {
			continue
		}
		next := *reg
		next.entry.Revision = r.history.next()
		r.replace(reg, &next)
		r.streams.renew(&next, next.entry.Revision, func(x int64) bool { return x < deadline })
		r.schedule(&next)
	}
}

// announced returns the lowest deadline by which rid is in a stream.
func (t *Streams) announced(rid directory.RID) (x int64, in bool) {
	for _, st := range t.byAudience {
		if a, ok := st.live(rid); ok && (!in || a.deadline < x) {
			x, in = a.deadline, true
		}
	}
	return x, in
}

// regrant puts policy's new answers in the place of the old ones, each change
// with a revision of its own. What has other contents by now was asked about
// when it got them.
func (r *Registrations) regrant(c *Regrant) {
	for _, item := range c.Items {
		r.step()
		reg := r.regs.get(item.RID)
		if reg == nil || reg.entry.Unconfirmed || reg.entry.Statement != item.Statement || r.policy.basis != item.Granted.Policy {
			continue
		}
		grants := item.Granted.List()
		if EqualGrants(grants, reg.grants) {
			continue
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
}

func EqualGrants(a, b []directory.Grant) bool {
	return slices.EqualFunc(a, b, func(x, y directory.Grant) bool {
		return x.Audience == y.Audience && x.All == y.All && slices.Equal(x.Reg, y.Reg) && slices.Equal(x.Doc, y.Doc)
	})
}

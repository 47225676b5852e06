package consensus

import (
	"crypto/sha256"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// expireAll ends those of the named that are past their deadline, each by a
// change of its own.
func (s *state) expireAll(c *sweep) error {
	if c.Format != s.statementFormat() {
		return nil // the leader names them again
	}
	for _, rid := range c.RIDs {
		s.step()
		if reg := s.regs.get(rid); reg != nil && s.ended(reg) {
			if err := s.expire(reg, c.Format); err != nil {
				return err
			}
		}
	}
	return nil
}

// announceAll tells the streams the deadlines of those of the named that have a
// later one than was announced, each by a change of its own.
func (s *state) announceAll(c *sweep) {
	for _, rid := range c.RIDs {
		s.step()
		reg := s.regs.get(rid)
		if reg == nil || s.ended(reg) {
			continue
		}
		deadline := reg.entry.ExpiresAt / 1000
		if x, in := s.announced(rid); !in || x >= deadline {
			continue
		}
		next := *reg
		next.entry.Revision = s.next()
		s.replace(reg, &next)
		s.renew(&next, next.entry.Revision, func(x int64) bool { return x < deadline })
		s.plan(&next)
	}
}

// announced returns the lowest deadline by which rid is in a stream.
func (s *state) announced(rid directory.RID) (x int64, in bool) {
	for _, st := range s.streams {
		if a, ok := st.live(rid); ok && (!in || a.deadline < x) {
			x, in = a.deadline, true
		}
	}
	return x, in
}

// regrant puts policy's new answers in the place of the old ones, each change
// with a revision of its own. What has other contents by now was asked about
// when it got them.
func (s *state) regrant(c *regrant) {
	for _, item := range c.Items {
		s.step()
		reg := s.regs.get(item.RID)
		if reg == nil || reg.entry.Unconfirmed || reg.entry.Statement != item.Statement || s.policy != item.Granted.Policy {
			continue
		}
		grants := item.Granted.grants()
		if equalGrants(grants, reg.grants) {
			continue
		}
		next := *reg
		next.grants, next.entry.Revision = grants, s.next()
		s.replace(reg, &next)
		made := &made{Shown: item.Shown}
		if len(made.Shown) != len(grants)*sha256.Size {
			made.Shown = shownTo(next.change(s.domain), grants)
		}
		s.publish(&next, made, next.entry.Revision, false)
		s.plan(&next)
	}
}

func equalGrants(a, b []directory.Grant) bool {
	return slices.EqualFunc(a, b, func(x, y directory.Grant) bool {
		return x.Audience == y.Audience && x.All == y.All && slices.Equal(x.Reg, y.Reg) && slices.Equal(x.Doc, y.Doc)
	})
}

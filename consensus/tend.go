package consensus

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// tendLoop keeps what goes with membership: connections, what the state says of
// members, and, where it is wanted, the domain without its dead.
func (s *Store) tendLoop() {
	ticker := time.NewTicker(s.cfg.Timing.Sweep)
	defer ticker.Stop()
	var led time.Time // since when this member has led without a break; zero while it does not
	for {
		select {
		case <-ticker.C:
		case <-s.closing.Done():
			return
		}
		s.cluster.evict()
		switch {
		case !s.leading.Load():
			led = time.Time{}
			continue
		case led.IsZero():
			led = time.Now()
		}
		s.tidy(s.closing)
		s.bury(led)
		s.negotiate(s.closing)
	}
}

// tidy takes what the state has of those who are members no more out of it.
func (s *Store) tidy(ctx context.Context) {
	s.mu.RLock()
	ids := map[spiffeid.ID]bool{}
	for _, m := range s.state.Members().List() {
		ids[m.ID] = true
	}
	for _, id := range s.state.Keys().Nodes() {
		ids[id] = true
	}
	s.mu.RUnlock()
	for _, m := range s.servers() {
		delete(ids, m.ID)
	}
	for _, id := range slices.SortedFunc(maps.Keys(ids), func(a, b spiffeid.ID) int { return strings.Compare(a.String(), b.String()) }) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Timing.Write)
		s.sweepWith(ctx, &state.Command{Member: &state.Member{ID: id, Gone: true}})
		cancel()
	}
}

// bury removes one member that was not heard for so long that it is taken for
// dead, since this member leads at least. It never removes one without which the
// domain could not write.
func (s *Store) bury(led time.Time) {
	if s.cfg.RemoveDead <= 0 {
		return
	}
	for _, m := range s.servers() {
		heard := s.presence.lastHeard(m.ID)
		if heard.Before(led) {
			heard = led
		}
		if m.ID == s.cfg.Node || time.Since(heard) < s.cfg.RemoveDead || s.mayGo(m.ID) != nil {
			continue
		}
		s.log.Warn("removing a member that has not been heard for long", "node", m.ID, "for", time.Since(heard).Round(time.Second))
		if err := s.expel(m.ID); err != nil {
			s.log.Warn("the member is not removed yet", "node", m.ID, "error", err)
		}
		return
	}
}

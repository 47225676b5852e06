package consensus

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Who follows hears the leader alone. A contactsWord asks that for how long it has not
// heard the others.
type (
	contactsWord   struct{}
	contactsAnswer struct {
		Silent map[spiffeid.ID]int64 `cbor:"1,keyasint"` // milliseconds
	}
)

// contacts is what a leader answers, by its own count of time: clocks differ.
func (s *Store) contacts() *contactsAnswer {
	a := &contactsAnswer{Silent: map[spiffeid.ID]int64{}}
	for _, m := range s.servers() {
		if at := s.presence.lastHeard(m.ID); !at.IsZero() {
			a.Silent[m.ID] = max(0, s.cfg.clock().Sub(at).Milliseconds())
		}
	}
	return a
}

// Contacts is RaftPeers for an operator: a member that follows asks its leader when that
// heard the others, for as long as a heartbeat may take. Where the leader doesn't tell,
// or none is known, it has what RaftPeers has.
func (s *Store) Contacts() []RaftPeer {
	peers := s.RaftPeers()
	leader, ok := s.leader()
	switch {
	case !ok:
		return peers
	case leader.ID == s.cfg.Node:
		for i := range peers {
			peers[i].Unheard = s.leading.Load() && peers[i].LastContact.IsZero()
		}
		return peers
	}
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Heartbeat)
	defer cancel()
	var a contactsAnswer
	if err := s.post(ctx, leader, contactsPath, &contactsWord{}, &a); err != nil {
		return peers
	}
	for i := range peers {
		p := &peers[i]
		if p.ID == s.cfg.Node || p.Leader {
			continue
		}
		ms, heard := a.Silent[p.ID]
		if heard {
			p.LastContact = time.Now().Add(-time.Duration(ms) * time.Millisecond)
		}
		p.Unheard = !heard
	}
	return peers
}

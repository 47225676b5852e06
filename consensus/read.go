package consensus

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// Position returns how far this member has applied the domain's history.
func (s *Store) Position() directory.Position { return s.shown.Load().position }

// Settled reports whether this member has led or caught up since it was opened.
// Until then it reads its log again: what it shows is of the past, and a part of
// the past only.
func (s *Store) Settled() bool { return s.settled.Load() }

// arrive settles, and tells those who wait for a change as well.
func (s *Store) arrive() {
	if s.settled.CompareAndSwap(false, true) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.moved()
		s.agree()
	}
}

// Changed returns a channel that is closed at the next change of state. Take it
// before looking at what it is about.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Agreed returns a channel that is closed at the next change of anything besides
// registrations: keys, peerings, policy, members, the history's beginning. Who looks at
// such alone is not woken by every log entry. Take it as Changed's.
func (s *Store) Agreed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.agreed
}

// Peerings returns what was agreed with other domains, sorted by name.
func (s *Store) Peerings() []directory.Peering {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.Peerings().List()
}

// KeyDocument returns the domain's newest key document, nil until a key was
// attested, and while a restored history has no epoch of its own: nothing is signed
// then (rule P1). It must not be modified.
func (s *Store) KeyDocument() *signed.KeyDocument {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state.History().Sealed() != "" {
		return nil
	}
	return s.state.Keys().Document()
}

// Ledger returns the size and root of the domain's Merkle log as applied here.
func (s *Store) Ledger() (size uint64, root directory.Hash) {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.History().Ledger()
}

// Digests returns a stream's digests with revisions in (since, to], ascending, at
// most limit; to is the last one's revision where they were cut off, otherwise
// at, the revision applied (rule G2).
func (s *Store) Digests(
	aud directory.Audience, since uint64, limit int,
) (digests []signed.Digest, to, at uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()

	digests, to = s.state.Streams().Scan(aud, since, limit)

	return digests, to, s.state.History().Revision()
}

// Tip returns the highest revision that was ever announced in a stream (rule G5).
func (s *Store) Tip(aud directory.Audience) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.Streams().Tip(aud)
}

// Current returns the digest by which a registration is in a stream now.
func (s *Store) Current(rid directory.RID, aud directory.Audience) (signed.Digest, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.Streams().Current(rid, aud)
}

// Record returns the record (h, m) of a stream, as long as it is the latest
// there of its registration: the statement's payload, and the disclosures meant
// for the audience.
func (s *Store) Record(aud directory.Audience, h, m directory.Hash) (payload []byte, disclosures []string, ok bool) {
	s.mu.RLock()
	reg, grant, ok := s.state.Registrations().Record(aud, h, m)
	s.mu.RUnlock()

	if !ok {
		return nil, nil, false
	}

	return reg.Statement(grant)
}

// Own returns the statement of a living registration with all its disclosures.
func (s *Store) Own(rid directory.RID) (payload []byte, disclosures []string, ok bool) {
	s.mu.RLock()
	reg := s.state.Registrations().Get(rid)
	s.mu.RUnlock()
	if reg == nil {
		return nil, nil, false
	}
	return reg.Statement(directory.Grant{All: true})
}

// Quotas returns how much of its quotas the domain uses, as applied here.
func (s *Store) Quotas() Quotas {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.state.Owners().Quotas()
}

// Written returns the versions and formats that the domain writes, as far as this
// member has applied its history.
func (s *Store) Written() Numbers { return s.shown.Load().written }

func (s *Store) statementFormat() int {
	return int(s.Written().Format(signed.StructureStatement))
}

// Format returns the format in which a structure is written.
func (s *Store) Format(structure signed.Structure) uint { return s.Written().Format(structure) }

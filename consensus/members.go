package consensus

import (
	"maps"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// member says where a member's directory is and what its release reads, or that it is
// a member no more: its signing key then speaks for the domain no longer. Who is a
// member is for Raft's configuration to say.
type member struct {
	ID    spiffeid.ID `cbor:"1,keyasint"`
	API   string      `cbor:"2,keyasint,omitempty"`
	Gone  bool        `cbor:"3,keyasint,omitempty"`
	Reads Versions    `cbor:"4,keyasint"`
}

// admission is an operator's leave for a node to become a member, once.
type admission struct {
	ID    spiffeid.ID `cbor:"1,keyasint"`
	Until int64       `cbor:"2,keyasint"` // Unix seconds of committed time; 0 takes it back
}

// maxAdmissions bounds how many nodes are expected at a time.
const maxAdmissions = 64

// member takes a member's word of itself. One whose release doesn't read what the
// domain writes is refused: it could not apply the log.
func (s *state) member(c *member) error {
	if c.Gone {
		s.farewell(c.ID)
		return nil
	}

	if err := c.Reads.lacks(s.written); err != nil {
		return tooOld(c.ID, err)
	}

	if old, known := s.members[c.ID]; known && old.API == c.API && old.Reads.equal(c.Reads) {
		return nil
	}

	c.Reads.Formats = c.Reads.Formats.Normal()
	s.members[c.ID] = *c
	delete(s.admitted, c.ID)

	if !s.issueFormats() {
		s.next()
	}

	return nil
}

// tooOld refuses a node whose release doesn't read what the domain writes.
func tooOld(node spiffeid.ID, why error) error {
	return directory.Refuse(directory.Forbidden, "%s cannot be a member: %w", node, why)
}

// farewell forgets a former member.
func (s *state) farewell(id spiffeid.ID) {
	_, known := s.members[id]
	_, signed := s.keys[id]
	delete(s.members, id)
	delete(s.keys, id)
	s.unlist(func(k rotatedKey) bool { return k.Node == id })
	switch {
	case signed:
		s.issue()
	case known && !s.issueFormats():
		s.next()
	}
}

func (s *state) admit(c *admission) {
	now := s.now / 1000
	maps.DeleteFunc(s.admitted, func(_ spiffeid.ID, until int64) bool { return until <= now })
	if c.Until > now {
		s.admitted[c.ID] = c.Until
	} else {
		delete(s.admitted, c.ID)
	}
	s.next()
}

// memberList returns the members in the order of their ids.
func (s *state) memberList() []member {
	var all []member
	for _, m := range s.members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all
}

func (s *state) admissions() []admission {
	var all []admission
	for id, until := range s.admitted {
		all = append(all, admission{id, until})
	}
	slices.SortFunc(all, func(a, b admission) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all
}

package state

import (
	"maps"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// maxAdmissions bounds how many admitted nodes may be waiting to join.
const maxAdmissions = 64

// Membership is the replicated knowledge of members: their addresses, the versions that
// they read, the nodes that may join, and the versions and formats that are in force.
type Membership struct {
	history *History
	keys    *Keyring

	byID     map[spiffeid.ID]Member
	admitted map[spiffeid.ID]int64 // until when, Unix seconds of committed time
	standing map[string]uint32     // by pattern: how many members may match
	written  Numbers
}

func newMembership() Membership {
	return Membership{
		byID:     map[spiffeid.ID]Member{},
		admitted: map[spiffeid.ID]int64{},
		standing: map[string]uint32{},
		written:  FirstNumbers(),
	}
}

// Get returns a member that has declared its versions.
func (m *Membership) Get(id spiffeid.ID) (Member, bool) {
	found, ok := m.byID[id]

	return found, ok
}

// All returns a copy of the members by their ids.
func (m *Membership) All() map[spiffeid.ID]Member { return maps.Clone(m.byID) }

// Admitted returns until when a node may join (Unix seconds of committed time); 0 without an admission.
func (m *Membership) Admitted(id spiffeid.ID) (until int64) { return m.admitted[id] }

// CheckAdmission reports whether an admission of the same node or pattern is recorded, in time or not, and refuses
// one for which there is no room.
func (m *Membership) CheckAdmission(admission *Admission) (known bool, err error) {
	if admission.Pattern != "" {
		if _, known = m.standing[admission.Pattern]; !known && len(m.standing) >= maxAdmissions {
			err = directory.Refuse(directory.Conflict, "there are %d standing admissions already", maxAdmissions)
		}

		return known, err
	}

	if _, known = m.admitted[admission.ID]; !known && len(m.admitted) >= maxAdmissions {
		err = directory.Refuse(directory.Conflict, "%d nodes are admitted and have not joined yet", maxAdmissions)
	}

	return known, err
}

// Written returns the versions and formats in force. Its Formats must not be modified.
func (m *Membership) Written() Numbers { return m.written }

// update records a member, or removes one. A member whose release doesn't read the versions in
// force is refused, because it could not apply the log.
func (m *Membership) update(member *Member) error {
	if member.Gone {
		m.remove(member.ID)

		return nil
	}

	if err := member.Reads.Lacks(m.written); err != nil {
		return RefuseMember(member.ID, err)
	}

	// A repetition takes no revision.
	if old, known := m.byID[member.ID]; known && old.SameWord(*member) {
		return nil
	}

	member.Reads.Formats = member.Reads.Formats.Normal()
	m.byID[member.ID] = *member

	// An admission works once.
	delete(m.admitted, member.ID)

	// A new key document has a revision of its own. Without one the change needs a revision, too.
	if !m.keys.issueFormats() {
		m.history.next()
	}

	return nil
}

// RefuseMember refuses a node whose release doesn't read the versions in force.
func RefuseMember(node spiffeid.ID, why error) error {
	return directory.Refuse(directory.Forbidden, "%s cannot be a member: %w", node, why)
}

// remove forgets a former member and its signing keys.
func (m *Membership) remove(id spiffeid.ID) {
	_, known := m.byID[id]
	delete(m.byID, id)

	switch signed := m.keys.drop(id); {
	case signed:
		m.keys.issue()
	case known && !m.keys.issueFormats():
		m.history.next()
	}
}

// admit records or withdraws an admission, and forgets those that have ended.
func (m *Membership) admit(admission *Admission) {
	if admission.Pattern != "" {
		m.admitStanding(admission)

		return
	}

	now := m.history.now / 1000
	maps.DeleteFunc(m.admitted, func(_ spiffeid.ID, until int64) bool { return until <= now })

	if admission.Until > now {
		m.admitted[admission.ID] = admission.Until
	} else {
		delete(m.admitted, admission.ID)
	}

	m.history.next()
}

// admitStanding replaces or withdraws a standing admission.
func (m *Membership) admitStanding(admission *Admission) {
	if admission.Max > 0 {
		m.standing[admission.Pattern] = admission.Max
	} else {
		delete(m.standing, admission.Pattern)
	}

	m.history.next()
}

// Standing returns the standing admissions in the order of their patterns.
func (m *Membership) Standing() []Admission {
	var all []Admission
	for _, pattern := range slices.Sorted(maps.Keys(m.standing)) {
		all = append(all, Admission{Pattern: pattern, Max: m.standing[pattern]})
	}

	return all
}

// AdmittedByPattern returns the standing admission that lets a node join beside these members.
func (m *Membership) AdmittedByPattern(id spiffeid.ID, members []spiffeid.ID) (pattern string, ok bool) {
	for _, one := range m.Standing() {
		count := uint32(0)
		for _, member := range members {
			if matchesPattern(one.Pattern, member) {
				count++
			}
		}

		if matchesPattern(one.Pattern, id) && count < one.Max {
			return one.Pattern, true
		}
	}

	return "", false
}

// matchesPattern reports whether a node's ID is that of a pattern, or begins with it up to its *.
func matchesPattern(pattern string, id spiffeid.ID) bool {
	prefix, open := strings.CutSuffix(pattern, "*")

	return id.String() == pattern || open && strings.HasPrefix(id.String(), prefix)
}

// List returns the members in the order of their ids.
func (m *Membership) List() []Member {
	return slices.SortedFunc(maps.Values(m.byID), func(a, b Member) int {
		return strings.Compare(a.ID.String(), b.ID.String())
	})
}

// Admissions returns the recorded admissions in the order of their ids.
func (m *Membership) Admissions() []Admission {
	var all []Admission
	for id, until := range m.admitted {
		all = append(all, Admission{ID: id, Until: until})
	}

	slices.SortFunc(all, func(a, b Admission) int { return strings.Compare(a.ID.String(), b.ID.String()) })

	return all
}

// statementFormat returns the format of the next statement.
func (m *Membership) statementFormat() int {
	return int(m.written.Format(signed.StructureStatement))
}

// feature puts versions and formats in force. The versions of the log, of snapshots and of the
// wire never fall, because the data written in them stays. Formats may fall when a peering
// begins. Nothing changes if a member doesn't read all of it.
func (m *Membership) feature(numbers *Numbers) error {
	now := m.written

	if numbers.Log < now.Log || numbers.Snapshot < now.Snapshot || numbers.Wire < now.Wire {
		return directory.Refuse(directory.Conflict, "the versions of the log, of snapshots and of the wire never fall")
	}

	for _, one := range m.List() {
		if err := one.Reads.Lacks(*numbers); err != nil {
			return directory.Refuse(directory.Conflict, "%s: %w", one.ID, err)
		}
	}

	if next := numbers.Normal(); !next.Equal(now) {
		m.written = next
		m.history.next()
	}

	return nil
}

// ReadByAll returns the versions and formats that all members and a node with these own
// ones read.
func (m *Membership) ReadByAll(own Versions) Versions {
	for _, one := range m.byID {
		own = own.common(one.Reads)
	}

	return own
}

// Readable returns the formats that every member of the domain reads.
func (m *Membership) Readable() signed.Formats {
	var all signed.Formats

	for i, one := range m.List() {
		if i == 0 {
			all = one.Reads.Formats.Normal()
		} else {
			all = all.Common(one.Reads.Formats)
		}
	}

	return all
}

package consensus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// The first version of the log, of snapshots and of the messages between members.
// A domain begins with it, and every release reads every version from it on.
const firstVersion = 1

// Versions are what one release reads: the newest version of the log, of snapshots
// and of the messages between members, each with all before it, and the formats of
// signed structures (federation.md, "Formats over time").
type Versions struct {
	Log      uint              `cbor:"1,keyasint"`
	Snapshot uint              `cbor:"2,keyasint"`
	Wire     uint              `cbor:"3,keyasint"`
	Formats  directory.Formats `cbor:"4,keyasint,omitempty"`
}

// ReadableVersions returns what this build reads.
func ReadableVersions() Versions {
	return Versions{
		Log: newestLogVersion, Snapshot: newestSnapshotVersion, Wire: newestWireVersion,
		Formats: directory.ReadableFormats(),
	}
}

// Numbers are what a domain writes: the version of its log, of its snapshots and of
// the messages between its members, and the format of each signed structure. They
// are replicated state, which a feature command changes.
type Numbers struct {
	Log      uint                         `cbor:"1,keyasint"`
	Snapshot uint                         `cbor:"2,keyasint"`
	Wire     uint                         `cbor:"3,keyasint"`
	Formats  map[directory.Structure]uint `cbor:"4,keyasint,omitempty"` // absent is 1
}

// firstNumbers are what a domain begins with.
func firstNumbers() Numbers {
	return Numbers{Log: firstVersion, Snapshot: firstVersion, Wire: firstVersion}
}

// Format returns the format in which a structure is written.
func (n Numbers) Format(structure directory.Structure) uint {
	return max(n.Formats[structure], 1)
}

// Equal reports whether n and other say the same.
func (n Numbers) Equal(other Numbers) bool {
	return n.Log == other.Log && n.Snapshot == other.Snapshot && n.Wire == other.Wire &&
		maps.Equal(n.normal().Formats, other.normal().Formats)
}

// normal returns n without the structures that are written in format 1: equal
// numbers have one encoding.
func (n Numbers) normal() Numbers {
	formats := map[directory.Structure]uint{}
	for structure, format := range n.Formats {
		if format > 1 {
			formats[structure] = format
		}
	}

	if n.Formats = formats; len(formats) == 0 {
		n.Formats = nil
	}

	return n
}

// raises reports whether n has a higher format of a structure than before.
func (n Numbers) raises(before Numbers) bool {
	for structure := range n.Formats {
		if n.Format(structure) > before.Format(structure) {
			return true
		}
	}

	return false
}

// errNewer says that a domain, or what a disk has of it, is written by a version or
// format that this release doesn't read.
var errNewer = errors.New("upgrade the node")

// lacks returns why a release that reads v cannot take part in a domain that writes
// n, with both numbers; nil if it can.
func (v Versions) lacks(n Numbers) error {
	for _, one := range []struct {
		name           string
		reads, written uint
	}{
		{"log", v.Log, n.Log}, {"snapshot", v.Snapshot, n.Snapshot}, {"wire", v.Wire, n.Wire},
	} {
		if one.written > one.reads {
			return fmt.Errorf("it reads %s versions up to %d and the domain writes version %d: %w",
				one.name, one.reads, one.written, errNewer)
		}
	}

	for _, structure := range slices.Sorted(maps.Keys(n.Formats)) {
		if format := n.Formats[structure]; !v.Formats.Reads(structure, format) {
			return fmt.Errorf("it reads %s formats %v and the domain writes format %d: %w",
				structure, v.Formats.Of(structure), format, errNewer)
		}
	}

	return nil
}

// lacksStatement returns why a release that reads v cannot take over the registrations
// of s: it has to build their statements again. Formats fall and what was written in a
// higher one stays, so the numbers in force don't tell.
func (v Versions) lacksStatement(s *state) error {
	reads := v.Formats.Of(directory.StructureStatement)

	for reg := range s.regs.each() {
		if !slices.Contains(reads, uint(reg.format)) {
			return fmt.Errorf("registration %s has a statement of format %d, and statement formats %v are read: %w",
				reg.entry.RID, reg.format, reads, errNewer)
		}
	}

	return nil
}

// check refuses what no release says of itself.
func (v Versions) check() error {
	if v.Log < firstVersion || v.Snapshot < firstVersion || v.Wire < firstVersion {
		return fmt.Errorf("log version %d, snapshot version %d and wire version %d must be %d or higher",
			v.Log, v.Snapshot, v.Wire, firstVersion)
	}

	return v.Formats.Validate()
}

func (v Versions) equal(other Versions) bool {
	return v.Log == other.Log && v.Snapshot == other.Snapshot && v.Wire == other.Wire && v.Formats.Equal(other.Formats)
}

// common returns what both v and other read.
func (v Versions) common(other Versions) Versions {
	return Versions{
		Log:      min(v.Log, other.Log),
		Snapshot: min(v.Snapshot, other.Snapshot),
		Wire:     min(v.Wire, other.Wire),
		Formats:  v.Formats.Common(other.Formats),
	}
}

// readsLog reports whether this build reads a version of the log.
func readsLog(version uint) bool { return version >= firstVersion && version <= newestLogVersion }

// readsSnapshot reports whether this build reads a version of snapshots.
func readsSnapshot(version uint) bool {
	return version >= firstVersion && version <= newestSnapshotVersion
}

func newerLog(version, newest uint) error {
	return fmt.Errorf("a log entry has version %d and this release reads versions up to %d: %w", version, newest, errNewer)
}

func newerSnapshot(version, newest uint) error {
	return fmt.Errorf("a snapshot has version %d and this release reads versions up to %d: %w", version, newest, errNewer)
}

// Written returns the versions and formats that the domain writes, as far as this
// member has applied its history.
func (s *Store) Written() Numbers { return s.shown.Load().written }

// statementFormat is the format of the next statement.
func (s *state) statementFormat() int {
	return int(s.written.Format(directory.StructureStatement))
}

func (s *Store) statementFormat() int {
	return int(s.Written().Format(directory.StructureStatement))
}

// Format returns the format in which a structure is written.
func (s *Store) Format(structure directory.Structure) uint { return s.Written().Format(structure) }

// feature puts numbers in force. Those of the log, of snapshots and of the wire
// never fall, since what was written in them stays; formats may, when a peering
// begins. Nothing changes if a member doesn't read all of it.
func (s *state) feature(n *Numbers) error {
	now := s.written

	if n.Log < now.Log || n.Snapshot < now.Snapshot || n.Wire < now.Wire {
		return directory.Refuse(directory.Conflict, "the versions of the log, of snapshots and of the wire never fall")
	}

	for _, m := range s.memberList() {
		if err := m.Reads.lacks(*n); err != nil {
			return directory.Refuse(directory.Conflict, "%s: %w", m.ID, err)
		}
	}

	if next := n.normal(); !next.Equal(now) {
		s.written = next
		s.next()
	}

	return nil
}

// readByMembers returns what all members read, and own.
func (s *state) readByMembers(own Versions) Versions {
	for _, m := range s.members {
		own = own.common(m.Reads)
	}

	return own
}

// readable returns which formats every member of the domain reads.
func (s *state) readable() directory.Formats {
	var all directory.Formats

	for i, m := range s.memberList() {
		if i == 0 {
			all = m.Reads.Formats.Normal()
		} else {
			all = all.Common(m.Reads.Formats)
		}
	}

	return all
}

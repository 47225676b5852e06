package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/roster-mesh/roster/directory/signed"
)

// Versions are the versions that one release reads: the newest version of the log, of snapshots
// and of the messages between members, each with all before it, and the formats of signed
// structures (federation.md, "Formats over time").
type Versions struct {
	Log      uint           `cbor:"1,keyasint"`
	Snapshot uint           `cbor:"2,keyasint"`
	Wire     uint           `cbor:"3,keyasint"`
	Formats  signed.Formats `cbor:"4,keyasint,omitempty"`
}

// ReadableVersions returns the versions that this build reads.
func ReadableVersions() Versions {
	return Versions{
		Log: NewestLogVersion, Snapshot: NewestSnapshotVersion, Wire: newestWireVersion,
		Formats: signed.ReadableFormats(),
	}
}

// ErrNewer says that a domain, or its state on a disk, is written in a version or format that
// this release doesn't read.
var ErrNewer = errors.New("upgrade the node")

// Lacks returns why a release that reads v cannot take part in a domain that writes
// n, with both numbers; nil if it can.
func (v Versions) Lacks(numbers Numbers) error {
	for _, one := range []struct {
		name           string
		reads, written uint
	}{
		{"log", v.Log, numbers.Log}, {"snapshot", v.Snapshot, numbers.Snapshot}, {"wire", v.Wire, numbers.Wire},
	} {
		if one.written > one.reads {
			return fmt.Errorf("it reads %s versions up to %d and the domain writes version %d: %w",
				one.name, one.reads, one.written, ErrNewer)
		}
	}

	for _, structure := range slices.Sorted(maps.Keys(numbers.Formats)) {
		if format := numbers.Formats[structure]; !v.Formats.Reads(structure, format) {
			return fmt.Errorf("it reads %s formats %v and the domain writes format %d: %w",
				structure, v.Formats.Of(structure), format, ErrNewer)
		}
	}

	return nil
}

// Check refuses versions that no release reads.
func (v Versions) Check() error {
	if v.Log < FirstVersion || v.Snapshot < FirstVersion || v.Wire < FirstVersion {
		return fmt.Errorf("log version %d, snapshot version %d and wire version %d must be %d or higher",
			v.Log, v.Snapshot, v.Wire, FirstVersion)
	}

	return v.Formats.Validate()
}

func (v Versions) Equal(other Versions) bool {
	return v.Log == other.Log && v.Snapshot == other.Snapshot && v.Wire == other.Wire && v.Formats.Equal(other.Formats)
}

// Covers reports whether a release that reads v reads all that one that reads other does.
func (v Versions) Covers(other Versions) bool {
	return v.Log >= other.Log && v.Snapshot >= other.Snapshot && v.Wire >= other.Wire && v.Formats.Covers(other.Formats)
}

// common returns the versions that both v and other read.
func (v Versions) common(other Versions) Versions {
	return Versions{
		Log:      min(v.Log, other.Log),
		Snapshot: min(v.Snapshot, other.Snapshot),
		Wire:     min(v.Wire, other.Wire),
		Formats:  v.Formats.Common(other.Formats),
	}
}

// readsLog reports whether this build reads a version of the log.
func readsLog(version uint) bool { return version >= FirstVersion && version <= NewestLogVersion }

// readsSnapshot reports whether this build reads a version of snapshots.
func readsSnapshot(version uint) bool {
	return version >= FirstVersion && version <= NewestSnapshotVersion
}

func NewerLog(version, newest uint) error {
	return fmt.Errorf("a log entry has version %d and this release reads versions up to %d: %w", version, newest,
		ErrNewer)
}

func NewerSnapshot(version, newest uint) error {
	return fmt.Errorf("a snapshot has version %d and this release reads versions up to %d: %w", version, newest,
		ErrNewer)
}

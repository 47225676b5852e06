package node

import (
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
)

// writtenOf returns the formats that a domain writes.
func writtenOf(numbers consensus.Numbers) wire.Written {
	written := wire.Written{Log: numbers.Log, Snapshot: numbers.Snapshot, Wire: numbers.Wire}

	for structure, format := range numbers.Formats {
		if written.Formats == nil {
			written.Formats = map[string]uint{}
		}

		written.Formats[string(structure)] = format
	}

	return written
}

// readsOf returns the formats that a node reads.
func readsOf(versions consensus.Versions) wire.Reads {
	reads := wire.Reads{Log: versions.Log, Snapshot: versions.Snapshot, Wire: versions.Wire}

	for structure, formats := range versions.Formats {
		if reads.Formats == nil {
			reads.Formats = map[string][]uint{}
		}

		reads.Formats[string(structure)] = formats
	}

	return reads
}

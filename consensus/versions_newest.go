//go:build !compatnext

package consensus

import "github.com/roster-mesh/roster/directory"

// The newest versions that this build reads, and writes once all members read them.
const (
	newestLogVersion      = 1
	newestSnapshotVersion = 1
	newestWireVersion     = 1
)

// What the version after these adds to a command, to a snapshot's header and to an
// answer between members. It is nothing in this build: versions_next.go has it.
type (
	commandNext  struct{}
	headerNext   struct{}
	presenceNext struct{}
)

func (s *state) applyNext(commandNext) (directory.Outcome, error) { return directory.Outcome{}, nil }

func nextHeader() (h headerNext) { return h }

func nextPresence() (p presenceNext) { return p }

// nextOfReign returns what a leader proposes when its reign begins, if the log's
// version has such a command.
func nextOfReign() *command { return nil }

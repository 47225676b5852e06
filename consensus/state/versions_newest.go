//go:build !compatnext

package state

// The newest versions that this build reads, and writes once all members read them.
const (
	NewestLogVersion      = 1
	NewestSnapshotVersion = 1
	newestWireVersion     = 1
)

// commandNext and headerNext are the additions of the next version to a command and to a
// snapshot's header: none in this build (see versions_next.go).
type (
	commandNext struct{}
	headerNext  struct{}
)

func (commandNext) set() bool { return false }

func (commandNext) apply(*History) {}

func nextHeader() (h headerNext) { return h }

// PresenceNext is the addition of the next wire version to a leader's answer to a follower.
type PresenceNext struct{}

// NextPresence returns it.
func NextPresence() (p PresenceNext) { return p }

// NextCommand returns the command that a leader proposes when its term begins, if the
// newest version of the log has one.
func NextCommand() *Command { return nil }

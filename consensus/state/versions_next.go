//go:build compatnext

package state

// A build with the tag compatnext plays the next release in the tests of clusters of
// two releases: it has the next version of everything.
const (
	NewestLogVersion      = 2
	NewestSnapshotVersion = 2
	newestWireVersion     = 2
)

// commandNext has a command of log version 2.
type commandNext struct {
	Note *note `cbor:"99,keyasint,omitempty"`
}

// note changes nothing but the revision.
type note struct {
	Text string `cbor:"1,keyasint"`
}

// headerNext has a member of snapshot version 2.
type headerNext struct {
	Note string `cbor:"99,keyasint,omitempty"`
}

func (c commandNext) set() bool { return c.Note != nil }

func (c commandNext) apply(h *History) {
	if c.Note != nil {
		h.next()
	}
}

func nextHeader() headerNext { return headerNext{Note: "snapshot version 2"} }

// NextCommand returns the command that log version 2 adds.
func NextCommand() *Command {
	return &Command{commandNext: commandNext{Note: &note{Text: "log version 2"}}}
}

// PresenceNext is the addition of wire version 2 to a leader's answer to a follower.
type PresenceNext struct {
	Note string `cbor:"99,keyasint,omitempty"`
}

// NextPresence returns it.
func NextPresence() PresenceNext { return PresenceNext{Note: "wire version 2"} }

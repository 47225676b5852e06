//go:build !compatnext

package consensus

import "github.com/roster-mesh/roster/consensus/state"

// presenceNext is what the next wire version adds to a presenceAnswer: nothing in this
// build (see next.go).
type presenceNext struct{}

func nextPresence() (p presenceNext) { return p }

// nextOfTerm returns the command that a leader proposes when its term begins, if the log's
// version has one.
func nextOfTerm() *state.Command { return nil }

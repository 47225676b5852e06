//go:build compatnext

package consensus

import "github.com/roster-mesh/roster/consensus/state"

// presenceNext is what wire version 2 adds to a presenceAnswer.
type presenceNext struct {
	Note string `cbor:"29,keyasint,omitempty"`
}

func nextPresence() presenceNext { return presenceNext{Note: "wire version 2"} }

func nextOfTerm() *state.Command { return state.NextCommand() }

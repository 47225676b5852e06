// Package agents has the commands for registrations and the agents that they describe:
// register, find, follow, invoke and transfer.
package agents

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// Commands returns the commands of this package.
func Commands(s connect.Session) []*cobra.Command {
	return []*cobra.Command{
		registerCommand(s),
		refreshCommand(s),
		deregisterCommand(s),
		transferCommand(s),
		getCommand(s),
		lookupCommand(s),
		watchCommand(s),
		discoverCommand(s),
		explainCommand(s),
		invokeCommand(s),
		mcpCommand(s),
	}
}

// Package agents has the commands for registrations and the agents that they describe:
// register, find, follow, invoke, transfer, and exchange with other catalogues.
package agents

import (
	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// Commands returns the commands of this package.
func Commands(session *connect.Session) []*cobra.Command {
	return []*cobra.Command{
		registerCommand(session),
		refreshCommand(session),
		deregisterCommand(session),
		transferCommand(session),
		getCommand(session),
		lookupCommand(session),
		watchCommand(session),
		discoverCommand(session),
		explainCommand(session),
		invokeCommand(session),
		mcpCommand(session),
		importCommand(session),
		exportCommand(session),
	}
}
